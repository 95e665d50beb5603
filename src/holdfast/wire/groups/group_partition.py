"""In which partition of `__consumer_offsets` a group lives. Owns Java's hash of a string.

Rules: group-records.md#where-a-group-lives.
"""

from __future__ import annotations

from functools import lru_cache
from struct import unpack
from typing import Final

_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_SHORT: Final = 128
_REMEMBERED_MAX: Final = 16_384  # ids: some megabytes


def java_hash(text: str) -> int:
    """Return what Java's `String.hashCode` does: over units of UTF-16, in 32 bits with a sign."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in unpack(f">{len(data) // 2}H", data):
        value = (31 * value + unit) & _MASK
    return value - (_MASK + 1) if value & _SIGN else value


_remembered = lru_cache(_REMEMBERED_MAX)(java_hash)


def group_partition(group_id: str, partition_count: int) -> int:
    """Return the partition of a group; the same for every broker and every tool."""
    assert partition_count > 0, "a topic has partitions"
    # Each heartbeat asks. Only short ids are remembered: what a client names is kept here.
    value = _remembered(group_id) if len(group_id) <= _SHORT else java_hash(group_id)
    # The lowest number has no counterpart above zero in 32 bits: Kafka takes it for zero.
    return (0 if value == -_SIGN else abs(value)) % partition_count
