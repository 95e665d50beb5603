"""The offset index and the time index of one segment, in Apache Kafka's formats.

Owns the entries: arrays in memory while the segment is written, and afterwards the file, which is
searched by `pread`. The file is written by jobs only (`plan_write`, `write_index`), when the
segment is flushed: after a crash it is trusted as far as that went and no further, so nothing is
gained by writing it sooner.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from array import array
from bisect import bisect_right
from contextlib import closing
from struct import Struct as Layout
from typing import Final, NamedTuple

from holdfast.log.errors import CorruptFileError
from holdfast.log.files import FileCache
from holdfast.runtime.ports import Files

RELATIVE_MAX: Final = 0x7FFFFFFF
_WORD: Final = "I"
_LONG: Final = "q"
assert array(_WORD).itemsize == 4
assert array(_LONG).itemsize == 8
_OFFSET_AND_POSITION: Final = Layout(">II")
_TIMESTAMP_AND_OFFSET: Final = Layout(">qI")
_FIRST_WORD: Final = Layout(">I")
_TIMESTAMP: Final = Layout(">q")


class IndexWrite(NamedTuple):
    """What a job has to do to one index file: keep so many bytes, then append."""

    path: str
    keep: int
    data: bytes


def write_index(disk: Files, write: IndexWrite, *, sync: bool) -> None:
    """Run in a job. OSError: the disk failed."""
    try:
        file = disk.open(write.path, create=not write.keep)
    except FileNotFoundError:
        if write.keep:
            return  # its segment was thrown away meanwhile
        raise
    with closing(file):
        has_more = file.size > write.keep
        if has_more:
            file.truncate(write.keep)
        if file.size < write.keep:
            raise OSError(f"{write.path} lost what was written before")
        if write.data:
            file.append(write.data)
        if sync and (write.data or has_more):
            file.sync()


def _big_endian(values: array[int]) -> array[int]:
    """Return a copy in the order of bytes that the file has (or back again)."""
    copy = values[:]
    if sys.byteorder == "little":
        copy.byteswap()
    return copy


class _Index:
    """What both share: how many entries there are, and how many of them the file has."""

    __slots__ = ("_base", "_files", "_has_more", "_persisted", "count", "path", "resident")
    entry_size: int

    def __init__(self, files: FileCache, path: str, base: int, entries: int | None = None) -> None:
        """`entries`: so many are in the file; None: there is no file that could be trusted."""
        self._files = files
        self.path = path
        self._base = base
        self._persisted = entries  # so many entries of the file are those of memory
        self._has_more = False  # the file has others behind them
        self.count = entries or 0
        self.resident = not self.count  # the entries are in memory

    def __len__(self) -> int:
        return self.count

    @property
    def is_written(self) -> bool:
        return self._persisted == self.count and not self._has_more

    def plan_write(self) -> IndexWrite | None:
        """Return what the file lacks, None for nothing. It counts as written from now on."""
        if self.is_written:
            return None
        assert self.resident, "only what is in memory can be unwritten"
        keep = self._persisted or 0
        self._persisted, self._has_more = self.count, False
        return IndexWrite(self.path, keep * self.entry_size, self._encode(keep))

    def unplan_write(self, write: IndexWrite) -> None:
        """Take a plan back: its job was never run."""
        self._persisted = min(self._persisted or 0, write.keep // self.entry_size)
        self._has_more = True

    def release(self) -> None:
        """Drop the arrays of a sealed segment; from now on the file is searched."""
        if self.resident and self.is_written and self.count:
            self._drop()
            self.resident = False

    def load(self) -> None:
        """Bring the entries back into memory: the segment will be written again."""
        if not self.resident:
            data = self._files.get(self.path).pread(self.count * self.entry_size, 0)
            if len(data) != self.count * self.entry_size:
                raise OSError(f"{self.path} is shorter than it was")
            self._decode(data)
            self.resident = True

    def _shrink(self, count: int) -> None:
        self.count = count
        if self._persisted is not None and self._persisted > count:
            self._persisted, self._has_more = count, True

    def _read(self, index: int, layout: Layout) -> tuple[int, ...]:
        data = self._files.get(self.path).pread(layout.size, index * self.entry_size)
        if len(data) < layout.size:
            raise OSError(f"{self.path} is shorter than it was")
        return layout.unpack(data)

    @abstractmethod
    def _encode(self, first: int) -> bytes:
        """Return the entries from `first` on as the file has them."""

    @abstractmethod
    def _decode(self, data: bytes) -> None:
        """Take the entries from the file's bytes."""

    @abstractmethod
    def _drop(self) -> None:
        """Let go of the arrays."""


class OffsetIndex(_Index):
    """Sparse: (last offset of a batch, position of that batch in the file)."""

    __slots__ = ("_offsets", "_positions", "last_position")
    entry_size = _OFFSET_AND_POSITION.size

    def __init__(self, files: FileCache, path: str, base: int, entries: int | None = None) -> None:
        super().__init__(files, path, base, entries)
        self._offsets = array(_WORD)
        self._positions = array(_WORD)
        self.last_position = 0  # of the last entry; known while resident

    def add(self, last_offset: int, position: int) -> None:
        assert self.resident
        assert 0 <= last_offset - self._base <= RELATIVE_MAX
        self._offsets.append(last_offset - self._base)
        self._positions.append(position)
        self.last_position = position
        self.count += 1

    def floor(self, offset: int) -> int:
        """Return a position from which a scan finds the batch that contains `offset`."""
        relative = offset - self._base
        if self.resident:
            above = bisect_right(self._offsets, relative)
            return self._positions[above - 1] if above else 0
        above = bisect_right(
            range(self.count), relative, key=lambda index: self._read(index, _FIRST_WORD)[0]
        )
        return self._entry(above - 1)[1] if above else 0

    def floor_position(self, position: int) -> int:
        """Return the start of some batch at or before `position`: the nearest that is known."""
        if self.resident:
            above = bisect_right(self._positions, position)
            return self._positions[above - 1] if above else 0
        above = bisect_right(range(self.count), position, key=lambda index: self._entry(index)[1])
        return self._entry(above - 1)[1] if above else 0

    def truncate(self, position: int) -> None:
        """Forget entries of batches at `position` or later. The index is in memory."""
        assert self.resident
        count = bisect_right(self._positions, position - 1) if position else 0
        del self._offsets[count:]
        del self._positions[count:]
        self.last_position = self._positions[-1] if count else 0
        self._shrink(count)

    def check(self, log_size: int) -> None:
        """CorruptFileError unless the last entry could be right (the file claims to be whole)."""
        if self.count:
            relative, position = self._entry(self.count - 1)
            if position >= log_size or relative > RELATIVE_MAX:
                raise CorruptFileError(f"{self.path}: its last entry lies outside the log")

    def _entry(self, index: int) -> tuple[int, int]:
        if self.resident:
            return self._offsets[index], self._positions[index]
        relative, position = self._read(index, _OFFSET_AND_POSITION)
        return relative, position

    def _encode(self, first: int) -> bytes:
        words = array(_WORD, bytes((self.count - first) * self.entry_size))
        words[0::2] = self._offsets[first:]
        words[1::2] = self._positions[first:]
        return _big_endian(words).tobytes()

    def _decode(self, data: bytes) -> None:
        words = array(_WORD)
        words.frombytes(data)
        words = _big_endian(words)
        self._offsets, self._positions = words[0::2], words[1::2]
        self.last_position = self._positions[-1] if self.count else 0

    def _drop(self) -> None:
        self._offsets, self._positions = array(_WORD), array(_WORD)


class TimeIndex(_Index):
    """Sparse: (largest timestamp up to a batch, last offset of the batch that has it)."""

    __slots__ = ("_offsets", "_timestamps")
    entry_size = _TIMESTAMP_AND_OFFSET.size

    def __init__(self, files: FileCache, path: str, base: int, entries: int | None = None) -> None:
        super().__init__(files, path, base, entries)
        self._timestamps = array(_LONG)
        self._offsets = array(_WORD)

    def add(self, timestamp: int, last_offset: int) -> None:
        """Enter the largest timestamp so far, unless it is the last entry's."""
        assert self.resident
        if timestamp < 0 or (self.count and timestamp <= self._timestamps[-1]):
            return
        assert 0 <= last_offset - self._base <= RELATIVE_MAX
        self._timestamps.append(timestamp)
        self._offsets.append(last_offset - self._base)
        self.count += 1

    def floor(self, timestamp: int) -> int:
        """Return an offset before which no record is as young as `timestamp`."""
        if self.resident:
            above = bisect_right(self._timestamps, timestamp)
        else:
            above = bisect_right(
                range(self.count), timestamp, key=lambda index: self._read(index, _TIMESTAMP)[0]
            )
        return self._entry(above - 1)[1] if above else self._base

    def last(self) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the last entry."""
        return self._entry(self.count - 1) if self.count else None

    def truncate(self, offset: int) -> None:
        """Forget entries whose batch ends at `offset` or later. The index is in memory."""
        assert self.resident
        relative = offset - self._base
        count = self.count
        while count and self._offsets[count - 1] >= relative:
            count -= 1
        del self._timestamps[count:]
        del self._offsets[count:]
        self._shrink(count)

    def check(self) -> None:
        """CorruptFileError unless first and last entry could be right."""
        if self.count and self._entry(0)[0] > self._entry(self.count - 1)[0]:
            raise CorruptFileError(f"{self.path}: timestamps go backwards")

    def _entry(self, index: int) -> tuple[int, int]:
        if self.resident:
            return self._timestamps[index], self._base + self._offsets[index]
        timestamp, relative = self._read(index, _TIMESTAMP_AND_OFFSET)
        return timestamp, self._base + relative

    def _encode(self, first: int) -> bytes:
        halves = array(_WORD)
        halves.frombytes(_big_endian(self._timestamps[first:]).tobytes())
        words = array(_WORD, bytes((self.count - first) * self.entry_size))
        words[0::3] = halves[0::2]
        words[1::3] = halves[1::2]
        words[2::3] = _big_endian(self._offsets[first:])
        return words.tobytes()

    def _decode(self, data: bytes) -> None:
        words = array(_WORD)
        words.frombytes(data)
        halves = array(_WORD, bytes(self.count * 8))
        halves[0::2] = words[0::3]
        halves[1::2] = words[1::3]
        timestamps = array(_LONG)
        timestamps.frombytes(halves.tobytes())
        self._timestamps = _big_endian(timestamps)
        self._offsets = _big_endian(words[2::3])

    def _drop(self) -> None:
        self._timestamps, self._offsets = array(_LONG), array(_WORD)
