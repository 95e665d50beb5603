"""How large a request may be, by what it asks.

Owns the bounds on frames below socket.request.max.bytes. Records stay where they are, but structs
become objects of up to 40 times their bytes, made on the loop while everybody waits. So a request
without records is held to what clients of the largest clusters send, and a produce request to so
many parts (rules: connections.md#frames). The decoder counts elements, which may be tiny.
"""

from __future__ import annotations

from typing import Final

from holdfast.wire.errors import WireError
from holdfast.wire.messages import FLEXIBLE_SINCE
from holdfast.wire.primitives import read_uvarint, skip_tags

PRODUCE: Final = 0
FETCH: Final = 1
ENVELOPE: Final = 58
HOT: Final = frozenset((PRODUCE, FETCH))
"""What data comes and goes by: however large, it is not held back for what others ask."""

SMALL_BYTES_MAX: Final = 4 * 1024 * 1024
"""A Fetch of 100,000 partitions has 3.3 MB. The worst of so many elements takes a second."""

_ENVELOPE_BYTES_MAX: Final = SMALL_BYTES_MAX + 64 * 1024  # around what a client may have sent

_PRODUCE_BY_ID: Final = 13

PRODUCED_MAX: Final = 100_000
"""Topics and partitions in a produce request, and tagged fields of theirs.

A partition with records in it has 70 bytes at least.
"""


def frame_bytes_max(key: int, request_bytes_max: int) -> int:
    """The most bytes that a request of this API may have."""
    if key == PRODUCE:
        return request_bytes_max
    return min(request_bytes_max, _ENVELOPE_BYTES_MAX if key == ENVELOPE else SMALL_BYTES_MAX)


def check_produce(version: int, view: memoryview, offset: int) -> None:
    """WireError: the produce request that begins at `offset` has too many parts to be decoded.

    Nothing is made of it but numbers; what else is wrong with it, the decoder says.
    """
    walk = _Walk(view, offset, version >= FLEXIBLE_SINCE[PRODUCE])
    walk.skip(2)  # the transactional id
    walk.offset += 6  # acks, time-out
    for _ in range(walk.number(4)):
        if version < _PRODUCE_BY_ID:
            walk.skip(2)
        else:
            walk.offset += 16
        partitions = walk.number(4)
        walk.count(1 + partitions)
        for _ in range(partitions):
            walk.offset += 4
            walk.skip(4)
            walk.end_struct()
        walk.end_struct()


class _Walk:
    """A place in a produce request that moves from field to field."""

    __slots__ = ("_flexible", "_left", "_view", "offset")

    def __init__(self, view: memoryview, offset: int, flexible: bool) -> None:
        self._view = view
        self._flexible = flexible
        self._left = PRODUCED_MAX
        self.offset = offset

    def count(self, parts: int) -> None:
        """WireError: with these there are too many."""
        self._left -= parts
        if self._left < 0:
            raise WireError(f"a produce request to more than {PRODUCED_MAX} topics and partitions")

    def number(self, size: int) -> int:
        """A length or a count of `size` bytes, where they are not compact: -1 for null."""
        if self._flexible:
            value, self.offset = read_uvarint(self._view, self.offset)
            return value - 1
        end = self.offset + size
        if end > len(self._view):
            raise WireError("truncated in a length")
        value = int.from_bytes(self._view[self.offset : end], "big", signed=True)
        self.offset = end
        return value

    def skip(self, size: int) -> None:
        """Skip a text or records, whose length has `size` bytes."""
        length = self.number(size)
        self.offset += max(0, length)

    def end_struct(self) -> None:
        if not self._flexible:
            return
        tags, self.offset = read_uvarint(self._view, self.offset)
        if tags:
            self.count(tags)
            self.offset = skip_tags(self._view, self.offset, tags)
