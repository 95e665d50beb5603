"""One segment: a stretch of the log in a file, with its two indexes.

Owns positions in one file. Knows nothing of epochs, producers or what is committed. Every failure
of the disk is an OSError; CorruptFileError: there is no batch where one should be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.log.errors import CorruptFileError
from holdfast.log.files import FileCache
from holdfast.log.index import RELATIVE_MAX, OffsetIndex, TimeIndex
from holdfast.runtime.ports import Buffer, Disk
from holdfast.wire.batch_header import (
    BATCH_LENGTH_MIN,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
)

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SUFFIXES: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
# Behind these, while a file is on its way: out, or in the place of others.
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

READ_STEP_BYTES: Final = 1 << 20  # the most that one pread brings: the loop must not stand still
_SCAN_BYTES: Final = 8192  # an index interval and a header fit


def prefix_of(directory: str, base: int) -> str:
    """Return a segment's path without suffix, as Kafka spells it."""
    return f"{directory}/{base:020d}"


class Found(NamedTuple):
    """A segment's files as they lie on the disk. Entries are None where an index isn't trusted."""

    size: int = 0
    created_ms: int = 0
    offset_entries: int | None = None
    time_entries: int | None = None


class Segment:
    """`size` is the end of its last whole batch; nothing beyond is ever looked at."""

    __slots__ = (
        "_files",
        "_first_timestamp",
        "_max_timestamp",
        "base",
        "created_ms",
        "jitter_ms",
        "log_path",
        "offsets",
        "prefix",
        "size",
        "times",
    )

    def __init__(
        self,
        files: FileCache,
        prefix: str,
        base: int,
        found: Found = Found(),  # noqa: B008 - a value
        *,
        jitter_ms: int = 0,
    ) -> None:
        self._files = files
        self.prefix = prefix
        self.base = base
        self.log_path = prefix + LOG_SUFFIX
        self.size = found.size
        self.created_ms = found.created_ms
        self.jitter_ms = jitter_ms  # rolled so much sooner, to spread the rolls of many replicas
        self.offsets = OffsetIndex(files, prefix + OFFSET_INDEX_SUFFIX, base, found.offset_entries)
        self.times = TimeIndex(files, prefix + TIME_INDEX_SUFFIX, base, found.time_entries)
        self._first_timestamp: int | None = None  # of the first batch; None: not looked at yet
        # (largest timestamp, last offset of the first batch that has it); None: not looked at yet.
        self._max_timestamp: tuple[int, int] | None = None if found.size else (NO_TIMESTAMP, base)

    @classmethod
    def create(
        cls, files: FileCache, prefix: str, base: int, *, now_ms: int, jitter_ms: int
    ) -> Segment:
        """Make an empty segment; what an earlier one of the same name left is emptied."""
        segment = cls(files, prefix, base, Found(created_ms=now_ms), jitter_ms=jitter_ms)
        file = files.get(segment.log_path, create=True)
        if file.size:
            file.truncate(0)
        return segment

    @classmethod
    def open(
        cls, disk: Disk, files: FileCache, prefix: str, base: int, *, indexes: bool, jitter_ms: int
    ) -> Segment:
        """Open what is on disk. `indexes`: they were closed properly, so trust them.

        CorruptFileError: an index is missing or can't be right; open again without.
        """
        found = Found(disk.size(prefix + LOG_SUFFIX), disk.modified_ms(prefix + LOG_SUFFIX))
        if not indexes or not found.size:
            return cls(files, prefix, base, found, jitter_ms=jitter_ms)
        found = found._replace(
            offset_entries=_entries(disk, prefix + OFFSET_INDEX_SUFFIX, OffsetIndex.entry_size),
            time_entries=_entries(disk, prefix + TIME_INDEX_SUFFIX, TimeIndex.entry_size),
        )
        segment = cls(files, prefix, base, found, jitter_ms=jitter_ms)
        segment.offsets.check(found.size)
        segment.times.check()
        return segment

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """(largest timestamp, last offset of the first batch that has it); -1: none has any."""
        self.make_ready()
        assert self._max_timestamp is not None
        return self._max_timestamp

    @property
    def first_timestamp(self) -> int:
        """Largest timestamp of the first batch, -1 for none: what segment.ms counts from."""
        if self._first_timestamp is None:
            first = next(self.headers(0), None)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first[1].max_timestamp
        return self._first_timestamp

    def reaches(self, offset: int) -> bool:
        """Whether `offset` can be held by this segment's indexes."""
        return offset - self.base <= RELATIVE_MAX

    def make_ready(self) -> None:
        """Read what `note` has to know. OSError, CorruptFileError: nothing can be appended.

        Once batches are in the file it is too late to find that out.
        """
        if self._max_timestamp is None:
            self._max_timestamp = self.times.last() or self._scan_max_timestamp()

    def append(self, data: Buffer) -> None:
        """Write whole batches in one write. `note` each of them afterwards."""
        file = self._files.get(self.log_path)
        if file.size != self.size:
            # Somebody else wrote, or what a failed write left could not be cut off.
            raise OSError(f"{self.log_path} has {file.size} bytes instead of {self.size}")
        file.append(data)

    def note(self, size: int, last_offset: int, max_timestamp: int, interval: int) -> None:
        """Take in one batch of `size` bytes that lies at the end now. Touches no file."""
        position = self.size
        found = self._max_timestamp
        assert found is not None, "`make_ready` comes before anything is written"
        if max_timestamp > found[0]:
            found = self._max_timestamp = (max_timestamp, last_offset)
        if not position:
            self._first_timestamp = max_timestamp
        if position - self.offsets.last_position > interval:
            self.offsets.add(last_offset, position)
            self.times.add(*found)
        self.size = position + size

    def seal(self) -> None:
        """Enter the largest timestamp: it is read from the index when the segment is opened."""
        if self.size:
            self.times.add(*self.max_timestamp)

    def headers(self, position: int, step: int = _SCAN_BYTES) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of each batch from `position` on. CRCs are not checked."""
        data, start = b"", position
        while position < self.size:
            at = position - start
            if at + HEADER_SIZE > len(data):
                start, at = position, 0
                data = self._files.get(self.log_path).pread(min(step, self.size - start), start)
                if len(data) < HEADER_SIZE:
                    raise CorruptFileError(f"{self.log_path}: no batch at byte {position}")
            header = BatchHeader._make(HEADER.unpack_from(data, at))
            following = position + header.size
            if (
                header.magic != MAGIC
                or header.batch_length < BATCH_LENGTH_MIN
                or following > self.size
            ):
                raise CorruptFileError(f"{self.log_path}: no batch at byte {position}")
            yield position, header
            position = following

    def find(self, offset: int) -> tuple[int, BatchHeader | None]:
        """Return position and header of the first batch that ends at `offset` or later.

        Behind the last batch: (size, None).
        """
        for position, header in self.headers(self.offsets.floor(offset)):
            if header.base_offset + header.last_offset_delta >= offset:
                return position, header
        return self.size, None

    def boundary(self, position: int, limit: int, *, minimum_one: bool) -> tuple[int, int]:
        """Return where the last batch that ends at or before `limit` ends, and the next offset.

        `position` is the start of a batch, `limit` lies in the segment. With `minimum_one` the
        first batch counts although it does not fit; else (position, -1) says that none fits.
        """
        nearest = max(position, self.offsets.floor_position(limit))
        found, next_offset = position, -1
        try:
            for start, header in self.headers(nearest):
                end = start + header.size
                if end > limit:
                    if next_offset < 0 and start > position:
                        return start, header.base_offset  # all in front of this one fits
                    if next_offset < 0 and minimum_one:
                        return end, header.next_offset
                    break
                found, next_offset = end, header.next_offset
        except CorruptFileError:
            if next_offset < 0:
                raise
            # What lies in front of the damage is good; the next read meets it.
        return found, next_offset

    def read(self, position: int, size: int) -> bytes:
        """Read exactly `size` bytes, in steps."""
        assert 0 <= position <= position + size <= self.size
        file = self._files.get(self.log_path)
        if size <= READ_STEP_BYTES:
            data = file.pread(size, position)
        else:
            data = b"".join(
                file.pread(min(READ_STEP_BYTES, position + size - at), at)
                for at in range(position, position + size, READ_STEP_BYTES)
            )
        if len(data) != size:
            raise OSError(f"{self.log_path} is shorter than it was")
        return data

    @property
    def is_indexed(self) -> bool:
        """Whether its indexes on disk are those in memory."""
        return not self.size or (self.offsets.is_written and self.times.is_written)

    @property
    def is_sealed(self) -> bool:
        """Whether the largest timestamp is in the index, as far as batches behind it can tell."""
        return self._scan_max_timestamp() == (self.times.last() or (NO_TIMESTAMP, self.base))

    def cut_at(self, offset: int) -> tuple[int, int]:
        """Return where the batch that holds `offset` begins, and the offset that is next there.

        That is where the batch before it ends. Were it one in a hole that compaction left, no
        follower would ever reach it. All that `truncate` there will read is read here, so that
        damage is met before anything is cut. CorruptFileError: there is damage.
        """
        position, _ = self.find(offset)
        end = self.base
        for start, before in self.headers(self.offsets.floor_position(max(position - 1, 0))):
            if start >= position:
                break
            end = before.next_offset
        return position, end

    def truncate(self, position: int, offset: int) -> None:
        """Cut the file at `position`, where the batch that holds `offset` began."""
        self.offsets.load()
        self.times.load()
        self._files.get(self.log_path).truncate(position)
        self.size = position
        self.offsets.truncate(position)
        self.times.truncate(offset)
        self._max_timestamp = self._scan_max_timestamp()
        if not position:
            self._first_timestamp = None

    def rewind(self) -> int:
        """Forget everything but the file; return its size. Batches are to be noted again."""
        size, self.size = self.size, 0
        self._max_timestamp = (NO_TIMESTAMP, self.base)
        self._first_timestamp = None
        return size

    def paths(self) -> list[str]:
        """Return every file that may belong to it."""
        return [self.prefix + suffix for suffix in SUFFIXES]

    def forget_files(self) -> None:
        for path in self.paths():
            self._files.forget(path)

    def _scan_max_timestamp(self) -> tuple[int, int]:
        """Find it from the indexes and the batches behind the last entry, which has all before."""
        found = self.times.last() or (NO_TIMESTAMP, self.base)
        for _, header in self.headers(self.offsets.floor_position(self.size)):
            if header.max_timestamp > found[0]:
                found = header.max_timestamp, header.last_offset
        return found


def _entries(disk: Disk, path: str, entry_size: int) -> int:
    if not disk.exists(path):
        raise CorruptFileError(f"{path} is missing")
    count, rest = divmod(disk.size(path), entry_size)
    if rest:
        raise CorruptFileError(f"{path} is cut in an entry")
    return count
