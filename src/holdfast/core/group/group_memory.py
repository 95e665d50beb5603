"""What all groups of a broker take in memory, about, and how much they may.

Each group and each shard has bounds of its own, and a broker may lead fifty shards: a stranger who
may make groups would otherwise have as much memory as he likes. What is there is never thrown away
for it; what would add to it is refused, until members leave and offsets expire.

Rules: classic-groups.md#bounds, committed-offsets.md#bounds.
"""

from __future__ import annotations

from typing import Final

GROUP_OVERHEAD_BYTES: Final = 3072  # what a group takes that has no member and no offset


class GroupMemory:
    """Of one broker."""

    __slots__ = ("bytes", "bytes_max")

    def __init__(self, bytes_max: int = 2**30) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max

    def has_room(self, more: int) -> bool:
        """Whether so many bytes may be added; less may always be."""
        return more <= 0 or self.bytes + more <= self.bytes_max
