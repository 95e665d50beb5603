"""A segment that is written beside those whose place it will take.

Owns the `.cleaned` files until they are durable. Nobody reads them meanwhile, and what a crash
leaves of them is removed.

Rules: compaction.md#files-of-a-round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from holdfast.log.compaction.transaction_index import AbortedTransaction, write_transactions
from holdfast.log.errors import CorruptFileError
from holdfast.log.files import FileCache
from holdfast.log.index import RELATIVE_MAX, write_index
from holdfast.log.segment import CLEANED_SUFFIX, TRANSACTION_INDEX_SUFFIX, Segment, prefix_of
from holdfast.runtime.ports import Buffer, File, Files
from holdfast.wire.batch_header import BatchHeader

WRITE_BYTES: Final = 1 << 20  # written at once
SYNC_BYTES: Final = 64 << 20  # written between two syncs: one of a gigabyte would take seconds

# Does something with the files of the replica's directory, while that is held.
Inside: TypeAlias = Callable[[Callable[[Files], None]], None]


class Cleaned(NamedTuple):
    """A segment whose `.cleaned` files are durable, and what it replaces."""

    segment: Segment
    bases: Sequence[int]  # of the segments whose place it takes
    suffixes: Sequence[str]  # of its files


class CleanedSegment:
    """Batches in, durable files out."""

    __slots__ = (
        "_bases", "_file", "_interval", "_pending", "_pending_bytes", "_transactions", "_unsynced",
        "segment",
    )  # fmt: skip

    def __init__(
        self, file: File, files: FileCache, directory: str, bases: Sequence[int], interval: int
    ) -> None:
        """`file` is new, or what an earlier round left; `files` are what the log reads with."""
        file.truncate(0)
        self._file = file
        self._bases = bases
        self._interval = interval
        self._pending: list[Buffer] = []
        self._pending_bytes = 0
        self._unsynced = 0
        self._transactions: list[AbortedTransaction] = []
        self.segment = Segment(files, prefix_of(directory, bases[0]), bases[0])

    @property
    def wants_sync(self) -> bool:
        return self._unsynced >= SYNC_BYTES

    def add(self, data: Buffer, header: BatchHeader) -> None:
        """Take a whole batch."""
        self.note(header)
        self.add_piece(data)

    def note(self, header: BatchHeader) -> None:
        """Take note of a batch whose bytes follow in pieces."""
        segment = self.segment
        if segment.size + header.size > RELATIVE_MAX:
            raise CorruptFileError(f"{segment.log_path}: compacted it would be larger than 2 GiB")
        segment.note(header.size, header.last_offset, header.max_timestamp, self._interval)

    def add_piece(self, data: Buffer) -> None:
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= WRITE_BYTES:
            self.write()

    def add_transactions(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Take note of aborted transactions whose markers are in here, and whose records are."""
        self._transactions += aborted

    def write(self) -> None:
        """Write what was taken."""
        if self._pending:
            self._file.append(b"".join(self._pending))
            self._unsynced += self._pending_bytes
            self._pending.clear()
            self._pending_bytes = 0

    def sync(self) -> None:
        """Make what is written durable. Slow: a job."""
        self._file.sync()
        self._unsynced = 0

    def finish(self, inside: Inside) -> Cleaned:
        """Make all of it durable: batches, indexes. Slow: a job."""
        assert not self._pending, "not all of it is written"
        segment = self.segment
        segment.seal()
        self.sync()
        writes = segment.offsets.plan_write(), segment.times.plan_write()

        def write(files: Files) -> None:
            for planned in writes:
                if planned is not None:
                    path = planned.path + CLEANED_SUFFIX
                    write_index(files, planned._replace(path=path), sync=True)
            if self._transactions:
                path = segment.prefix + TRANSACTION_INDEX_SUFFIX + CLEANED_SUFFIX
                write_transactions(files, path, self._transactions)

        inside(write)
        suffixes = [path.removeprefix(segment.prefix) for path in segment.paths()]
        if not self._transactions:
            suffixes.remove(TRANSACTION_INDEX_SUFFIX)
        return Cleaned(segment, self._bases, suffixes)

    def close(self) -> None:
        self._file.close()
