"""One replica on disk: appends, reads, truncation, retention.

Owns the segments of one partition and everything derived from them (epochs, producers, offsets).
Never decides what is committed: the high watermark is an attribute that its owner moves.
Single-threaded: every method runs on the loop; what may be slow is a job in the worker's lane of
the log directory. No record is walked on the append path, only batch headers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Final, NamedTuple

from holdfast.config.key import LONG_MAX
from holdfast.config.topic import TopicSettings
from holdfast.log import epochs as epoch_files
from holdfast.log import search
from holdfast.log.checkpoints import LOG_START, PARTITION_METADATA
from holdfast.log.compaction.log_compaction import LogCompaction
from holdfast.log.directory import LogDirectory
from holdfast.log.epochs import EpochEnd
from holdfast.log.errors import CorruptFileError, StorageError
from holdfast.log.flusher import Flusher, FlushPlan
from holdfast.log.producers import ACCEPTED, Producer, ProducerCheck
from holdfast.log.recovery import (
    Loaded,
    replay_producers,
)
from holdfast.log.retention import Extent, why_due
from holdfast.log.search import FoundRecord
from holdfast.log.segment import Segment
from holdfast.log.segments import Segments, runs
from holdfast.log.snapshots import Snapshots
from holdfast.runtime.sliced_work import Effort, Steps
from holdfast.wire.batch_header import (
    BASE_OFFSET,
    HEADER,
    LEADER_EPOCH,
    LENGTH_END,
    BatchHeader,
    batches,
    crc_matches,
)
from holdfast.wire.compression import inflated_bytes_max
from holdfast.wire.errors import ErrorCode, WireError

__all__ = ["EpochEnd", "FoundRecord", "Log", "Slice"]

logger = logging.getLogger(__name__)

_EPOCH_POSITION: Final = 12
_ENOUGH_BYTES: Final = 1 << 31
_FLUSH_AGAIN_MS: Final = 1000  # for which the worker had no room
_CURSORS_KEPT: Final = 32  # as many readers go on where they stopped without a search


class Slice(NamedTuple):
    """Whole batches as they lie on disk. `next_offset` is where the next read goes on."""

    records: bytes
    next_offset: int
    error: ErrorCode = ErrorCode.NONE


class Place(NamedTuple):
    """A replica's name, and where it lies."""

    directory: str  # the partition's own directory
    topic: str
    partition: int
    topic_id: bytes  # NULL_UUID when partition.metadata was not there


class Log:
    """A replica. Made by `LogDirectories`, never directly.

    Every method that touches the disk raises `StorageError` once the directory is offline.
    """

    def __init__(
        self,
        home: LogDirectory,
        place: Place,
        settings: TopicSettings,
        loaded: Loaded,
        *,
        is_new: bool,
    ) -> None:
        directory = place.directory
        self.topic = place.topic
        self.partition = place.partition
        self.topic_id = place.topic_id
        self.directory = directory
        self.settings = settings  # `configure` changes it
        self.is_configured = False  # True: these are the topic's; else a start knew no better
        self.high_watermark = loaded.high_watermark  # the owner moves it; checkpointed here
        # If True, a segment's end or a cut is made durable before anything is written behind it.
        # A power cut then leaves a log that ends at its first bad batch. The metadata log sets it.
        self.in_order = False
        # Called when retention has moved the start, or it became durable: its readers are told.
        self.start_moved: Callable[[], None] = lambda: None
        self.home = home
        self._clock = home.runtime.clock
        self._segments = Segments(
            home, directory, loaded.segments, durable=loaded.clean and not is_new
        )
        self.start = loaded.start  # log start offset: the first one that may be read
        self.kept_start = loaded.start  # so far no crash takes the start back
        self.cleaned_to = loaded.cleaned_to  # compaction has come so far; None: nobody knows
        self.end = loaded.end  # log end offset (LEO): what the next record gets
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._snapshots = Snapshots(directory, loaded.snapshots)
        self._cursors: dict[int, tuple[Segment, int]] = {}
        self.compaction = LogCompaction(self, self._segments, self._producers, self._cursors.clear)
        # True until partition.metadata is durable, and with it our own directory's name.
        self._is_new = is_new
        self._name_number = home.add_name() if is_new else 0
        self._closed = False
        self._flusher = Flusher(
            home,
            loaded.recovery_point,
            make_plan=self._plan_flush,
            done=self._flushed,
            undo=self._undo_flush,
        )

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition}, [{self.start}, {self.end}))"

    @property
    def recovery_point(self) -> int:
        """Everything below survives a power cut."""
        return self._flusher.recovery_point

    @property
    def first_segment(self) -> int:
        """Base offset of the oldest segment; the start may lie above it."""
        return self._segments.bases[0]

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        return self._segments.size

    @property
    def offline(self) -> bool:
        return not self.home.online

    @property
    def closed(self) -> bool:
        """Whether it was closed or deleted; may be asked in a worker's job."""
        return self._closed

    @property
    def is_new(self) -> bool:
        """Whether a power cut may take its topic's id, or its directory's name."""
        return self._is_new

    def configure(self, settings: TopicSettings) -> None:
        """Take over the settings of the topic, as its metadata has them."""
        self.settings = settings
        self.home.due_flushes.forget(self)
        self._count_unflushed()
        self.is_configured = True
        if "compact" not in settings.cleanup_policy:
            with suppress(StorageError):  # the directory is offline, and its owner is told
                self.compaction.end()
        self.home.log_changed(self)

    # --- appending ---

    def append_as_leader(self, batch: memoryview, epoch: int) -> int:
        """Append exactly one validated batch; return its base offset.

        `batch` is writable: offset and epoch are put into it in place. One write. The caller has
        validated it (`wire.batch.validate_producer_batch`) and asked `check_producer`.
        """
        self._check()
        base = self.end
        BASE_OFFSET.pack_into(batch, 0, base)
        LEADER_EPOCH.pack_into(batch, _EPOCH_POSITION, epoch)
        header = BatchHeader._make(HEADER.unpack_from(batch))
        size = len(batch)
        assert header.batch_length + LENGTH_END == size, "exactly one batch"
        last = base + header.last_offset_delta
        assert last >= base
        segment = self._writable(size, base, last, header.max_timestamp)
        if epoch != self._epochs.latest:
            assert epoch > self._epochs.latest, "a leader's epoch never goes back"
            self._epochs.assign(epoch, base)
        try:
            segment.append(batch)
        except OSError as error:
            raise self.home.fail(error) from error
        segment.note(size, last, header.max_timestamp, self.settings.index_interval_bytes)
        self.end = last + 1
        if header.producer_id >= 0:
            self._producers.update(header, self._clock.wall_ms())
        if self.settings.flush_messages < LONG_MAX or self.settings.flush_ms < LONG_MAX:
            self._count_unflushed()
        return base

    def append_batches_as_leader(self, batches_view: memoryview, epoch: int) -> int:
        """Append batches built here (the metadata log's), one after the other, in one write.

        `batches_view` is writable. Returns the base offset of the first.
        """
        self._check()
        base = self.end
        headers: list[BatchHeader] = []
        position, offset = 0, base
        while position < len(batches_view):
            BASE_OFFSET.pack_into(batches_view, position, offset)
            LEADER_EPOCH.pack_into(batches_view, position + _EPOCH_POSITION, epoch)
            header = BatchHeader._make(HEADER.unpack_from(batches_view, position))
            headers.append(header)
            position += header.size
            offset = header.next_offset
        assert headers, "nothing to append"
        assert position == len(batches_view), "whole batches"
        assert epoch >= self._epochs.latest, "a leader's epoch never goes back"
        self._epochs.assign(epoch, base)
        self._append_run(batches_view, headers)
        return base

    def append_as_follower(self, records: memoryview) -> ErrorCode:
        """Append whole batches as the leader sent them, offsets and epochs included.

        Nothing is appended unless the answer is NONE. CORRUPT_MESSAGE: a CRC or a length is
        wrong. OFFSET_OUT_OF_RANGE: offsets don't go on from `end`, or not upwards.
        An incomplete batch at the very end is left out. Epochs are learnt from headers.
        """
        self._check()
        headers: list[BatchHeader] = []
        expected, epoch, size = self.end, self._epochs.latest, 0
        try:
            for position, header in batches(records):
                if not crc_matches(records, position):
                    return ErrorCode.CORRUPT_MESSAGE
                if header.base_offset < expected or header.last_offset_delta < 0:
                    return ErrorCode.OFFSET_OUT_OF_RANGE
                if header.leader_epoch < epoch:
                    return ErrorCode.CORRUPT_MESSAGE
                headers.append(header)
                expected, epoch = header.next_offset, header.leader_epoch
                size = position + header.size
        except WireError:
            return ErrorCode.CORRUPT_MESSAGE
        position = 0
        for run in runs(headers, self.settings.segment_bytes):
            length = sum(header.size for header in run)
            self._append_run(records[position : position + length], run)
            position += length
        assert position == size
        return ErrorCode.NONE

    def _append_run(self, view: memoryview, headers: list[BatchHeader]) -> None:
        """Write batches that have their offsets and epochs, all into one segment."""
        last = headers[-1].last_offset
        newest = max(header.max_timestamp for header in headers)
        segment = self._writable(len(view), headers[0].base_offset, last, newest)
        for header in headers:
            if header.leader_epoch != self._epochs.latest:
                self._epochs.assign(header.leader_epoch, header.base_offset)
        try:
            segment.append(view)
        except OSError as error:
            raise self.home.fail(error) from error
        interval = self.settings.index_interval_bytes
        now_ms = self._clock.wall_ms()
        for header in headers:
            segment.note(header.size, header.last_offset, header.max_timestamp, interval)
            if header.producer_id >= 0:
                self._producers.update(header, now_ms)
        self.end = last + 1
        if self.settings.flush_messages < LONG_MAX or self.settings.flush_ms < LONG_MAX:
            self._count_unflushed()

    def check_producer(self, batch: memoryview) -> ProducerCheck:
        """Judge a client's batch against what its producer wrote before. Changes nothing."""
        (_, _, _, _, _, _, last_delta, _, _, producer_id, epoch, first, _) = HEADER.unpack_from(
            batch
        )
        if producer_id < 0:
            return ACCEPTED
        return self._producers.check(producer_id, epoch, first, last_delta)

    def remembered_producers(self) -> list[tuple[int, Producer]]:
        """Return each producer that is known here, by its id."""
        return self._producers.items()

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been silent for so long; return how many."""
        return self._producers.expire(now_ms, expiration_ms)

    def _writable(self, size: int, first: int, last: int, timestamp: int) -> Segment:
        """Return the segment for so many bytes, rolled if it is full or old, and ready for them.

        Rules: log.md#rolling.
        """
        try:
            if self._segments.active.size and (
                self._is_over(size, last, timestamp)
                or self.home.runtime.provoke("segment.rolled-early")
            ):
                self._roll()
            self._segments.active.make_ready()
        except OSError as error:
            raise self.home.fail(error) from error
        except CorruptFileError as error:  # in what says how old it is, or its newest timestamp
            raise StorageError(self.home.path, str(error), is_offline=False) from error
        if not self._segments.active.reaches(last):
            # The gap before the leader's batch is wider than an index can count. The active
            # segment is empty: begin it at that batch.
            self._segments.move_active(first, self.settings)
        return self._segments.active

    def _is_over(self, size: int, last: int, timestamp: int) -> bool:
        """Whether the active segment is too full or too old for so much more."""
        segment, settings = self._segments.active, self.settings
        offsets, times = segment.offsets, segment.times
        index_bytes = settings.segment_index_bytes
        return (
            segment.size + size > settings.segment_bytes
            or not segment.reaches(last)
            or (offsets.count + 1) * offsets.entry_size > index_bytes
            # One entry stays free for the largest timestamp when the segment is sealed.
            or (times.count + 2) * times.entry_size > index_bytes
            or self._age_ms(segment, timestamp) > settings.segment_ms - segment.jitter_ms
        )

    def _age_ms(self, segment: Segment, timestamp: int) -> int:
        first = segment.first_timestamp
        if first >= 0 and timestamp >= 0:
            return timestamp - first
        return self._clock.wall_ms() - segment.created_ms

    def _roll(self) -> None:
        """Seal the active segment and begin the next one at the end."""
        self._segments.active.seal()
        if self.in_order:
            self._segments.sync_active()
        self._segments.begin(self.end, self.settings)
        bases = set(self._segments.bases)
        self._snapshots.forget(lambda offset: offset not in bases)  # those of clean shutdowns
        self._snapshots.take(self.end, self._producers.snapshot())
        self._flusher.sealed()
        self.home.log_changed(self)

    # --- reading ---

    def read(
        self, offset: int, max_bytes: int, upper_bound: int, *, minimum_one: bool = True
    ) -> Slice:
        """Read whole batches from the one that contains `offset`, all below `upper_bound`.

        At most `max_bytes`, but with `minimum_one` the first batch comes even if it is larger.
        The error is OFFSET_OUT_OF_RANGE outside [start, end], CORRUPT_MESSAGE if the file holds
        no batch where one should be.
        """
        self._check()
        if offset < self.start or offset > self.end:
            return Slice(b"", offset, ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset >= upper_bound or offset == self.end or (max_bytes <= 0 and not minimum_one):
            return Slice(b"", offset)
        try:
            return self._read(offset, max(max_bytes, 0), min(upper_bound, self.end), minimum_one)
        except OSError as error:
            raise self.home.fail(error) from error
        except CorruptFileError as error:
            logger.error("%s", error)  # noqa: TRY400 - the trace says nothing more
            return Slice(b"", offset, ErrorCode.CORRUPT_MESSAGE)

    def _read(self, offset: int, max_bytes: int, upper_bound: int, minimum_one: bool) -> Slice:
        segments = self._segments
        index = segments.index_of(offset)
        while True:
            segment = segments.all[index]
            position = self._position(segment, offset)
            is_last = segment is segments.active
            segment_end = self.end if is_last else segments.bases[index + 1]
            stop, next_offset = segment.size, segment_end
            if upper_bound < segment_end:
                stop, bound = segment.find(upper_bound)
                next_offset = bound.base_offset if bound is not None else upper_bound
            if position < stop:
                break
            if is_last or upper_bound <= segment_end:
                return Slice(b"", offset)
            index += 1  # compaction left a hole at this segment's end
        if stop - position > max_bytes:
            stop, next_offset = segment.boundary(
                position, position + max_bytes, minimum_one=minimum_one
            )
            if stop == position:
                return Slice(b"", offset)
        records = segment.read(position, stop - position)
        self._remember(next_offset, segment, stop)
        return Slice(records, next_offset)

    def bytes_between(self, offset: int, bound: int) -> int:
        """Return the bytes of the batches from the one that contains `offset` up to `bound`.

        For `start <= offset < bound <= end`. A reader that waits for many bytes asks this.
        """
        self._check()
        try:
            return self._bytes_between(offset, bound)
        except OSError as error:
            raise self.home.fail(error) from error
        except CorruptFileError:
            return _ENOUGH_BYTES  # whoever waits need not: its read meets the damage

    def _bytes_between(self, offset: int, bound: int) -> int:
        segments = self._segments
        index = segments.index_of(offset)
        total = -self._position(segments.all[index], offset)
        while True:
            segment = segments.all[index]
            is_last = segment is segments.active
            segment_end = self.end if is_last else segments.bases[index + 1]
            if bound < segment_end:
                return total + segment.find(bound)[0]
            total += segment.size
            if is_last or bound == segment_end:
                return total
            index += 1

    def _position(self, segment: Segment, offset: int) -> int:
        """Return where in a segment the batch of `offset` begins, or the first one behind it."""
        cursor = self._cursors.get(offset)
        if cursor is not None and cursor[0] is segment:
            return cursor[1]
        return segment.find(offset)[0]

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        """Note that the batch of `offset` begins here: its reader comes back."""
        cursors = self._cursors
        if len(cursors) >= _CURSORS_KEPT:
            del cursors[next(iter(cursors))]
        cursors[offset] = segment, position

    def find_timestamp(
        self, timestamp: int, effort: Effort, *, is_largest: bool = False
    ) -> Steps[FoundRecord | None]:
        """Look for the first record whose timestamp is at least `timestamp`.

        Between two steps anything may happen to this log; whoever asks looks whether it is still
        theirs. OSError takes the directory offline; damage raises StorageError as well.
        """
        end = self.end

        def look(place: search.Place | None) -> tuple[search.Place | None, search.Candidate | None]:
            if self._closed:
                return None, None
            self._check()
            with self.home.guarded():
                return search.next_batch(
                    self._segments.all, (self.start, end), timestamp, place, effort
                )

        inflated_max = inflated_bytes_max(self.settings.max_message_bytes)
        wanted = search.Wanted(timestamp, is_largest)
        return search.find(look, wanted, inflated_max, effort)

    def find_max_timestamp(self, effort: Effort) -> Steps[FoundRecord | None]:
        """Look for the first record that carries the log's largest timestamp.

        The batch that claims it may have lost its records to compaction: then it is another's.
        """
        self._check()
        with self.home.guarded():
            largest = search.largest_claim(self._segments.all)
        if largest < 0:
            return None
        found = yield from self.find_timestamp(largest, effort, is_largest=True)
        if found is not None:
            return found
        filled = yield from search.largest_filled(self._open_segments, self._scan(effort), effort)
        if not 0 <= filled < largest:  # nobody can read what claims it
            return None
        return (yield from self.find_timestamp(filled, effort, is_largest=True))

    def _open_segments(self) -> Sequence[Segment]:
        return () if self._closed else self._segments.all

    def _scan(self, effort: Effort) -> Callable[[Segment, int], search.Scanned]:
        def scan(segment: Segment, position: int) -> search.Scanned:
            self._check()
            with self.home.guarded():
                return search.scan_filled(segment, position, effort)

        return scan

    # --- epochs ---

    @property
    def latest_epoch(self) -> int:
        """Epoch of the last entry, -1 for none. It is `lastFetchedEpoch` of a follower's fetch."""
        return self._epochs.latest

    def start_epoch(self, epoch: int) -> None:
        """Enter a leader epoch at `end`: effective at once, durable before the recovery point."""
        self._check()
        assert epoch >= self._epochs.latest, "a leader's epoch never goes back"
        self._epochs.assign(epoch, self.end)

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Look an epoch up (rules: log.md#epoch-look-up)."""
        return self._epochs.end_of(epoch, self.end)

    def epoch_at(self, offset: int) -> int:
        """Return the epoch in which `offset` was (or will be) written, -1 if unknown."""
        return self._epochs.at(offset)

    # --- truncating ---

    def truncate_to(self, offset: int) -> None:
        """Throw away everything from `offset` on. A batch that straddles it goes whole.

        At the end it throws away no data, but an epoch that began there: call it even then.
        Rules: log.md#cutting-the-end.
        """
        self._check()
        if offset >= self.end:
            # An epoch may have begun here in which nothing was written.
            self._epochs.truncate_from_end(offset)
            return
        if offset < self._segments.bases[0]:
            self.reset_to(offset)
            return
        with self.home.guarded():
            self._truncate(offset)

    def _truncate(self, offset: int) -> None:
        if offset < self._segments.active.base:
            self.compaction.end()
        if self.cleaned_to is not None and self.cleaned_to > offset:
            self.cleaned_to = offset
            self.home.write_now()  # what is written there next was never looked at
        self._cursors.clear()
        offset = self._segments.truncate(offset, self.settings)
        self.end = offset
        kept = self.start, self.high_watermark, self.cleaned_to
        self.start = min(self.start, offset)
        self.kept_start = min(self.kept_start, offset)
        self.high_watermark = min(self.high_watermark, offset)
        if self.cleaned_to is not None:
            self.cleaned_to = min(self.cleaned_to, offset)  # of a batch that went whole, perhaps
        self._epochs.truncate_from_end(offset)
        self._snapshots.forget(lambda snapshot: snapshot > offset)
        # The shorter file is not durable yet: what was cut off may come back.
        unflushed = self._flusher.truncated(min(offset, self._segments.active.base))
        if unflushed or kept != (self.start, self.high_watermark, self.cleaned_to):
            self.home.write_now()
        if self.in_order:
            self._segments.sync_active()
        self.home.log_changed(self)
        # Last, for it reads what stays, which may be damaged: the cut itself is done.
        if not self._producers.truncate(offset):
            replay_producers(
                self.home.runtime,
                self.directory,
                self._segments.all,
                self._snapshots.written(),
                self._producers,
                self.end,
            )

    def reset_to(self, offset: int) -> None:
        """Throw everything away; the log starts and ends at `offset`.

        No crash brings any of it back. First the checkpoints are lowered to what is true of both
        the old files and the new one. Then the files go, and that is durable before this returns.
        """
        self._check()
        self.compaction.end()
        self._cursors.clear()
        self.cleaned_to = None
        self.start = min(self.start, offset)
        self.kept_start = min(self.kept_start, offset)
        self.high_watermark = min(self.high_watermark, offset)
        # A producer snapshot may exist at `offset` itself, and is thrown away as well. Recovery
        # ignores snapshots beyond the recovery point, so that point goes below `offset`.
        self._flusher.truncated(max(offset - 1, 0))
        self.home.write_now()
        self._forget_epochs_file()
        self._segments.begin_anew(offset, self.settings)
        self.start = self.end = self.high_watermark = offset
        self._epochs.clear()
        self._producers.clear()
        self._snapshots.forget(lambda _: True)
        self._flusher.sealed()  # a job under way may put files back that are of no use any more
        self.home.log_changed(self)

    def _forget_epochs_file(self) -> None:
        """Remove the epochs file: recovery would believe it in a log without records."""
        disk = self.home.runtime.disk
        path = f"{self.directory}/{epoch_files.FILE_NAME}"
        with self.home.guarded():
            if disk.exists(path):
                disk.remove(path)

    def advance_start(self, offset: int, *, for_good: bool = False) -> bool:
        """Raise the log start (to the high watermark at most). True if it moved.

        It is written soon; after `keep_start` no crash takes it back. `for_good`: nor does one once
        `kept_start` is there, of which readers are told; it stays behind when the disk fails.
        Segments that lie before it go with the next look at what is kept.
        """
        offset = min(offset, self.high_watermark)
        moved = offset > self.start
        if moved:
            self._check()
            self.start = offset
            self._epochs.truncate_from_start(offset)
        if for_good and self.kept_start < offset:
            self.home.starts.keep(self)
        elif moved:
            self.home.checkpoint(LOG_START)
        return moved

    def keep_start(self) -> None:
        """Make the log start and the topic's id durable before this returns.

        A replica without its topic's id may be set aside after a power cut, and its start is lost.
        """
        self.home.write_starts_now()
        self.kept_start = self.start
        if not self._is_new:
            return
        disk = self.home.runtime.disk
        with self.home.guarded():
            with closing(disk.open(f"{self.directory}/{PARTITION_METADATA}")) as file:
                file.sync()
            disk.sync_directory(self.directory)
            disk.sync_directory(self.home.path)

    def start_is_kept(self, start: int) -> None:
        """This start, the topic's id and the directory's name are durable."""
        self.kept_start = max(self.kept_start, start)
        self._is_new = False
        self.start_moved()

    # --- retention ---

    def retention(self, now_ms: int, upper_bound: int) -> int:
        """Delete old segments by time, size and log start, all below `upper_bound`.

        Returns how many went. Each is logged with why it was due.
        """
        self._check()
        count, size = 0, self.size
        try:
            with self.home.guarded():
                while why := why_due(
                    self._segments,
                    self.settings,
                    self.home.runtime.disk,
                    Extent(self.start, self.end, size),
                    upper_bound=upper_bound,
                    now_ms=now_ms,
                ):
                    self.compaction.end()
                    if len(self._segments.all) == 1:
                        self._roll()
                    segment = self._segments.drop_first(self.settings)
                    logger.info(
                        "%s-%d: offsets %d to %d (%d bytes) are deleted: %s",
                        self.topic, self.partition, segment.base, self._segments.bases[0] - 1,
                        segment.size, why,
                    )  # fmt: skip
                    count, size = count + 1, size - segment.size
        finally:
            # Also when a damaged segment has ended it: nothing may be looked for in what is gone.
            if count:
                self._begin_at(self._segments.bases[0])
        return count

    def _begin_at(self, first: int) -> None:
        """Take note that the oldest segment is now the one that begins here."""
        if first > self.start:
            self.start = first
            self._epochs.truncate_from_start(first)
            self.start_moved()
        self.high_watermark = max(self.high_watermark, self.start)
        self._cursors.clear()
        self._snapshots.forget(lambda snapshot: snapshot < first)
        self.home.log_changed(self)

    # --- flushing ---

    def flush(self) -> asyncio.Future[None]:
        """Make all that is appended until now durable: data, epochs, directory entries.

        Then the recovery point is at least what `end` was. The future may hold StorageError.
        """
        self._check()
        return self._flusher.whole()

    def _count_unflushed(self) -> None:
        """Have records forced to disk once they are enough, or old enough; nothing waits for it.

        Rules: log.md#forced-to-disk.
        """
        count, settings = self.end - self._flusher.planned, self.settings
        if count >= settings.flush_messages:
            self.home.due_flushes.now(self)
        elif count > 0 and settings.flush_ms < LONG_MAX:
            self.home.due_flushes.add(self, settings.flush_ms)

    def flush_in_background(self) -> None:
        """Begin to flush what is appended, if that has not begun."""
        if not self._closed and self.end > self._flusher.planned:
            self._flusher.everything()

    def flush_sealed(self) -> None:
        """Flush in the background what recovery left: all but the active segment."""
        self._check()
        if self._flusher.recovery_point < self._segments.active.base:
            self._flusher.sealed()

    def close(self) -> asyncio.Future[None]:
        """Write indexes, producer snapshot and epochs, sync everything; nothing works after."""
        self._check()
        self.home.due_flushes.forget(self)
        self.compaction.end()
        self._closed = True
        with self.home.guarded():
            self._segments.active.seal()
        if self.end > max(self._snapshots.latest, self.start):
            self._snapshots.take(self.end, self._producers.snapshot())
        return self._flusher.whole()

    def abandon(self) -> None:
        """Stop using the files: the replica is deleted. Nothing works after."""
        with suppress(StorageError):  # that directory is offline, and a start puts it right
            self.compaction.end(is_gone=True)
        self._closed = True
        self.home.due_flushes.forget(self)
        self._flusher.abandon()
        with suppress(StorageError), self.home.guarded():  # as above
            self._segments.forget_files()

    def _check(self) -> None:
        if not self.home.online:
            self.home.check()
        assert not self._closed, "the log is closed"

    def _plan_flush(self, whole: bool) -> FlushPlan:
        """Capture what is not durable: of all segments (`whole`), or of the sealed ones."""
        segments = self._segments
        up_to = self.end if whole else segments.active.base
        logs, indexes = segments.plan(
            up_to, self.end, self._flusher.recovery_point, closed=self._closed
        )
        epochs = None
        if self._epochs.dirty:
            epochs = f"{self.directory}/{epoch_files.FILE_NAME}", self._epochs.text()
            self._epochs.dirty = False
        stale_snapshots, snapshots = self._snapshots.plan()
        new_files = epochs or snapshots or any(not write.keep for write in indexes)
        has_new_names = segments.names_dirty or bool(new_files)
        segments.names_dirty = False
        is_named = self._is_new and (whole or bool(logs))
        if is_named:
            logs.append(f"{self.directory}/{PARTITION_METADATA}")
        return FlushPlan(
            up_to=up_to,
            indexes=indexes,
            logs=logs,
            stale_snapshots=stale_snapshots,
            snapshots=snapshots,
            epochs=epochs,
            directory=self.directory,
            has_new_names=has_new_names,
            is_name_new=is_named and self._name_number > self.home.names_durable,
            names=self.home.names,
        )

    def _flushed(self, plan: FlushPlan) -> None:
        """Take note of a flush that was done."""
        self._segments.flushed(plan, closed=self._closed)
        self._snapshots.flushed(plan)
        if f"{self.directory}/{PARTITION_METADATA}" in plan.logs:
            self._is_new = False
        if plan.is_name_new:
            self.home.names_durable = max(self.home.names_durable, plan.names)

    def _undo_flush(self, plan: FlushPlan) -> None:
        """The plan never ran: everything in it is to be done again."""
        self._segments.undo(plan)
        self._snapshots.undo(plan)
        self._epochs.dirty = self._epochs.dirty or plan.epochs is not None
        if self.settings.flush_messages < LONG_MAX or self.settings.flush_ms < LONG_MAX:
            self.home.due_flushes.add(self, _FLUSH_AGAIN_MS)
