"""One replica on disk: appends, reads, truncation, retention.

Owns the segments of one partition and everything derived from them (epochs, producers, offsets).
Never decides what is committed: the high watermark is an attribute that its owner moves.
Single-threaded: every method runs on the loop; what may be slow is a job in the worker's lane of
the log directory. No record is walked on the append path, only batch headers.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from holdfast.config.topic import TopicSettings
from holdfast.log.producers import ProducerCheck
from holdfast.wire.errors import ErrorCode


class Slice(NamedTuple):
    """Whole batches as they lie on disk. `next_offset` is where the next read goes on."""

    records: bytes
    next_offset: int
    error: ErrorCode = ErrorCode.NONE


class FoundRecord(NamedTuple):
    """A record found by its timestamp: its offset, timestamp (ms) and leader epoch."""

    offset: int
    timestamp: int
    epoch: int


class EpochEnd(NamedTuple):
    """Answer of an epoch look-up (KAFKA.md 4.5); (-1, -1) is undefined."""

    epoch: int
    end: int


class Log:
    """A replica. Made by `LogDirectories` (or `open_log`), never directly.

    Every method that touches the disk raises `StorageError` once the directory is offline.
    """

    topic: str
    partition: int
    topic_id: bytes  # 16 bytes; NULL_UUID when partition.metadata was not there
    directory: str  # the partition's own directory
    settings: TopicSettings  # replace it to change the configuration
    high_watermark: int  # the owner moves it (start <= high_watermark <= end); checkpointed here

    @property
    def start(self) -> int:
        """Log start offset: the first offset that may be read."""
        ...

    @property
    def end(self) -> int:
        """Log end offset (LEO): what the next record gets."""
        ...

    @property
    def recovery_point(self) -> int:
        """Everything below survives a power cut."""
        ...

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        ...

    @property
    def offline(self) -> bool: ...

    def append_as_leader(self, batch: memoryview, epoch: int) -> int:
        """Append exactly one validated batch; return its base offset.

        `batch` is writable: offset and epoch are put into it in place. One write. The caller has
        validated it (`wire.batch.validate_producer_batch`) and asked `check_producer`.
        """
        ...

    def append_batches_as_leader(self, batches: memoryview, epoch: int) -> int:
        """Append batches built here (the metadata log's), one after the other, in one write.

        `batches` is writable. Returns the base offset of the first.
        """
        ...

    def append_as_follower(self, records: memoryview) -> ErrorCode:
        """Append whole batches as the leader sent them, offsets and epochs included.

        Nothing is appended unless the answer is NONE. CORRUPT_MESSAGE: a CRC or a length is
        wrong. OFFSET_OUT_OF_RANGE: offsets don't go on from `end`, or not upwards.
        An incomplete batch at the very end is left out. Epochs are learnt from headers.
        """
        ...

    def check_producer(self, batch: memoryview) -> ProducerCheck:
        """Judge a client's batch against what its producer wrote before. Changes nothing."""
        ...

    def read(
        self, offset: int, max_bytes: int, upper_bound: int, *, minimum_one: bool = True
    ) -> Slice:
        """Read whole batches from the one that contains `offset`, all below `upper_bound`.

        At most `max_bytes`, but with `minimum_one` the first batch comes even if it is larger.
        The error is OFFSET_OUT_OF_RANGE outside [start, end], CORRUPT_MESSAGE if the file holds
        no batch where one should be.
        """
        ...

    def offset_for_timestamp(self, timestamp: int) -> FoundRecord | None:
        """Return the first record whose timestamp is at least `timestamp`, or None."""
        ...

    def max_timestamp(self) -> FoundRecord | None:
        """Return the first record that carries the log's largest timestamp, or None."""
        ...

    @property
    def latest_epoch(self) -> int:
        """Epoch of the last entry, -1 for none. It is `lastFetchedEpoch` of a follower's fetch."""
        ...

    def start_epoch(self, epoch: int) -> None:
        """Enter a leader epoch at `end`: effective at once, durable before the recovery point passes."""
        ...

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Look an epoch up (KAFKA.md 4.5, the table)."""
        ...

    def epoch_at(self, offset: int) -> int:
        """Return the epoch in which `offset` was (or will be) written, -1 if unknown."""
        ...

    def truncate_to(self, offset: int) -> None:
        """Throw away everything from `offset` on. A batch that straddles it goes whole."""
        ...

    def reset_to(self, offset: int) -> None:
        """Throw everything away; the log starts and ends at `offset`."""
        ...

    def advance_start(self, offset: int) -> bool:
        """Raise the log start (to the high watermark at most). True if it moved."""
        ...

    def retention(self, now_ms: int, upper_bound: int) -> int:
        """Delete old segments by time, size and log start, all below `upper_bound`.

        Returns how many went.
        """
        ...

    def flush(self) -> asyncio.Future[None]:
        """Make all that is appended until now durable: data, epochs, directory entries.

        Then the recovery point is at least what `end` was. The future may hold StorageError.
        """
        ...

    def close(self) -> asyncio.Future[None]:
        """Write indexes, producer snapshot and epochs, sync everything; nothing works after."""
        ...
