"""What one replica holds, as a chain of batches: offsets, epoch and CRC of each, and no bytes.

Owns the arithmetic over it. It knows nothing of nodes, nor of what is right.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias
from zlib import crc32

from holdfast.wire.batch_header import Buffer, batches

Name: TypeAlias = tuple[int, int]  # (leader epoch, base offset): names one batch in the cluster


class Entry(NamedTuple):
    """One batch. Two that are equal hold the same bytes but for what CRC-32C can't tell."""

    base: int
    last: int
    epoch: int
    crc: int

    @property
    def name(self) -> Name:
        return self.epoch, self.base

    def __str__(self) -> str:
        return f"{self.base}-{self.last} epoch {self.epoch} crc {self.crc:08x}"


def entries_of(records: Buffer) -> Iterator[Entry]:
    """The batches of a run of bytes as they stand in a log; an incomplete one at the end is not."""
    for _, header in batches(memoryview(records)):
        yield Entry(header.base_offset, header.last_offset, header.leader_epoch, header.crc)


def content_of(values: Iterable[bytes | None]) -> int:
    """What a batch says, whatever its codec and its timestamps; no CRC is as large."""
    return 1 << 32 | crc32(b"\0".join(value or b"" for value in values))


class Chain:
    """A run of batches in order of their offsets."""

    __slots__ = ("_bases", "entries")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._bases: list[int] = []

    @property
    def end(self) -> int:
        """The offset behind the last batch; 0 when there is none."""
        return self.entries[-1].last + 1 if self.entries else 0

    @property
    def latest_epoch(self) -> int:
        """In which the last batch was written; -1 when there is none."""
        return self.entries[-1].epoch if self.entries else -1

    def append(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._bases.append(entry.base)

    def index_at(self, offset: int) -> int:
        """Index of the first batch that ends at `offset` or behind it."""
        index = bisect_right(self._bases, offset) - 1
        return index if index >= 0 and self.entries[index].last >= offset else index + 1

    def at(self, offset: int) -> Entry | None:
        """The batch that contains an offset."""
        index = bisect_right(self._bases, offset) - 1
        if index < 0 or self.entries[index].last < offset:
            return None
        return self.entries[index]

    def between(self, low: int, high: int) -> list[Entry]:
        """Batches that touch [low, high)."""
        first = self.index_at(low)
        return self.entries[first : bisect_right(self._bases, high - 1)]

    def truncate(self, offset: int) -> list[Entry]:
        """Drop every batch that reaches `offset` or beyond; return them."""
        index = self.index_at(offset)
        dropped = self.entries[index:]
        del self.entries[index:]
        del self._bases[index:]
        return dropped
