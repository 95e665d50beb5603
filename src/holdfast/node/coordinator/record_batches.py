"""Records of a state machine over a log, as one batch.

A batch of commits has hundreds, all of one time and without headers, so their bytes are put
together here.

Rules: group-records.md#frame, batches.md#records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from holdfast.core.log_machine import RecordPart
from holdfast.wire.batch_header import HEADER_SIZE, Codec
from holdfast.wire.batch_records import wrap_records
from holdfast.wire.primitives import uvarint
from holdfast.wire.records.group_records import encode_key, encode_value
from holdfast.wire.records.group_tables import GroupKey, GroupValue
from holdfast.wire.records.offset_records import (
    CommittedOffset,
    OffsetKey,
    encode_offset,
    encode_offset_key,
)

Bytes: TypeAlias = tuple[bytes, bytes | None]
"""A record's key and value."""

BATCH_OVERHEAD: Final = HEADER_SIZE
RECORD_BYTES_MIN: Final = 40  # of a committed offset, in a batch that is not compressed
RECORD_OVERHEAD: Final = 24  # bytes of a record beside its key and value, at most
_HEAD: Final = b"\0\0"  # no attributes, and the batch's time
_TAIL: Final = b"\0"  # no headers
_NULL: Final = b"\x01"
_NUMBERS: Final = tuple(uvarint(2 * number) for number in range(4096))  # as they are written


def encoded(records: Iterable[tuple[RecordPart, RecordPart | None]]) -> list[Bytes]:
    """Return records as they go into a batch. EncodeError: one can't."""
    return [
        (encode_offset_key(key), None if value is None else encode_offset(value))
        if isinstance(key, OffsetKey) and (value is None or isinstance(value, CommittedOffset))
        else _encoded(key, value)
        for key, value in records
    ]


def _encoded(key: object, value: object) -> Bytes:
    assert isinstance(key, GroupKey), "a record of groups"
    if value is None:
        return encode_key(key), None
    assert isinstance(value, GroupValue), "a record of groups"
    return encode_key(key), encode_value(value)


def size_of(records: Iterable[Bytes]) -> int:
    """Return the bytes that records take in a batch that is not compressed, or a few more."""
    return sum(RECORD_OVERHEAD + len(key) + len(value or b"") for key, value in records)


def batch_of(records: Sequence[Bytes], now_ms: int, codec: Codec) -> memoryview:
    """Return one batch, writable, stamped with this time."""
    parts: list[bytes] = []
    for delta, (key, value) in enumerate(records):
        at, key_size = _number(delta), _number(len(key))
        value_size = _NULL if value is None else _number(len(value))
        data = value or b""
        length = 3 + len(at) + len(key_size) + len(key) + len(value_size) + len(data)
        parts += (_number(length), _HEAD, at, key_size, key, value_size, data, _TAIL)
    return memoryview(wrap_records(b"".join(parts), len(records), now_ms, codec=codec))


def _number(value: int) -> bytes:
    """Return a number that is not negative as records have it."""
    return _NUMBERS[value] if value < len(_NUMBERS) else uvarint(2 * value)
