"""A replica that tells the oracle what it does. Owns nothing else, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.metadata.image_records import SNAPSHOT_SUFFIX
from holdfast.log.compaction.log_compaction import LogCompaction
from holdfast.log.log import Log
from holdfast.log.segment import Segment
from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS
from holdfast.testing.ground.disk import MemoryDisk
from holdfast.testing.simulation.chain import Entry, content_of, entries_of
from holdfast.testing.simulation.compacted import stored
from holdfast.testing.simulation.compacted_truth import CompactedTruth
from holdfast.testing.simulation.deletions import Stretch
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.oracle import METADATA_KEY, Oracle
from holdfast.testing.simulation.replica_seen import Replica
from holdfast.testing.simulation.truth import PartitionTruth
from holdfast.wire.batch import read_records
from holdfast.wire.batch_header import batches, crc_matches
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.uuids import NULL_UUID
from holdfast.wire.well_known import METADATA_TOPIC

_WALK_BYTES = 1 << 20


class _WatchedCompaction(LogCompaction):
    def __init__(self, *arguments: Any, told: Callable[[int], None]) -> None:
        super().__init__(*arguments)
        self._told = told

    def take_over(self, bases: Sequence[int], segment: Segment, removed: Sequence[str]) -> None:
        super().take_over(bases, segment, removed)
        self._told(segment.base)


class WatchedLog(Log):
    """Made in place of `Log`."""

    _truth: PartitionTruth | None = None  # while it is made or nobody's, nothing is told
    _is_made = False
    _high_watermark = 0

    def __init__(self, *arguments: Any, oracle: Oracle, node: int, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._oracle = oracle
        self._replica = Replica(node, self)
        self._is_metadata = self.topic == METADATA_TOPIC
        self.compaction = _WatchedCompaction(
            self, self._segments, self._producers, self._cursors.clear, told=self._swapped
        )
        self._is_made = True
        self._count_successor()
        self._enter()

    def _count_successor(self) -> None:
        """Count a replica that is made while a job of its deleted namesake waits its turn."""
        name = self._replica.node, self.topic, self.partition
        before = self._oracle.flushing.pop(name, None)
        if isinstance(before, WatchedLog) and before.home.runtime is self.home.runtime:
            waits = before._flusher._running is not None  # noqa: SLF001 - as in `abandon`
            self._oracle.counts["replicas made anew behind a waiting job"] += waits

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self._high_watermark = offset
        if self._truth is not None:
            self._truth.committed_until(self._replica, offset, self.end)

    @property
    def topic_id(self) -> bytes:
        return self._topic_id

    @topic_id.setter
    def topic_id(self, topic_id: bytes) -> None:
        self._topic_id = topic_id
        if self._is_made and not self._is_metadata:  # it was lost, and is known again
            self._enter()

    def _enter(self) -> None:
        if self.topic_id == NULL_UUID and not self._is_metadata:
            return
        key = METADATA_KEY if self._is_metadata else (self.topic_id, self.partition)
        entries: list[Entry] = []
        data: list[bytes] = []
        offset = self.start
        while offset < self.end:
            part = self.read(offset, _WALK_BYTES, self.end)
            if part.error is not ErrorCode.NONE or not part.records:
                break
            entries += list(entries_of(part.records))
            data.append(part.records)
            self._check_bytes(part.records)
            if self._is_metadata:
                self._keep(part.records)
            offset = part.next_offset
        self._truth = self._oracle.opened(
            key, self._replica, entries, self.start, self.high_watermark
        )
        if isinstance(self._truth, CompactedTruth):
            self._truth.check_stored(
                self._replica,
                stored(b"".join(data)),
                self.start,
                self._replica.chain.end,
                is_found=True,
            )

    def _check_bytes(self, records: bytes) -> None:
        """The truth goes by CRCs as headers say; that the bytes are those is seen when it opens."""
        for position, header in batches(memoryview(records)):
            if not crc_matches(records, position):
                self._oracle.fail(
                    Invariant.RESTART_FINDS_WHOLE,
                    f"{self!r}, node {self._replica.node}: the CRC of the batch at offset "
                    f"{header.base_offset} is wrong",
                )

    def _keep(self, records: bytes) -> None:
        places = batches(memoryview(records))
        for entry, (at, header) in zip(entries_of(records), places, strict=True):
            self._oracle.keep(entry, records[at : at + header.size])

    @property
    def _is_rewritten(self) -> bool:
        settings = self.settings
        stamped = settings.message_timestamp_type == "LogAppendTime"
        return stamped or settings.compression_type != "producer"

    def _is_over(self, size: int, last: int, timestamp: int) -> bool:
        over = super()._is_over(size, last, timestamp)
        if over and self._segments.active.size + size > self.settings.segment_bytes:
            self._oracle.counts["segments full by size"] += 1
        return over

    # -- what is told --------------------------------------------------------------------------

    def append_as_leader(self, batch: memoryview, epoch: int) -> int:
        base = super().append_as_leader(batch, epoch)
        self._appended(batch, leads=True)
        return base

    def append_batches_as_leader(self, batches_view: memoryview, epoch: int) -> int:
        if self._replica.epoch != epoch:
            # Not when it starts an epoch: a voter does that behind a snapshot, too.
            self._told.led(self._replica, epoch)
        base = super().append_batches_as_leader(batches_view, epoch)
        self._appended(batches_view, leads=True)
        return base

    def append_as_follower(self, records: memoryview) -> ErrorCode:
        error = super().append_as_follower(records)
        if error is ErrorCode.NONE:
            self._appended(records, leads=False)
        return error

    @property
    def _told(self) -> PartitionTruth:
        """Return who is told of what a replica in use does."""
        assert self._truth is not None, "nobody is told of it"
        return self._truth

    def _appended(self, records: memoryview, *, leads: bool) -> None:
        if self._is_metadata:
            self._keep(bytes(records))
        elif leads:
            if self.settings.record_validation == "deep":
                self._read_claims(records)  # before who believes them
            self._read_stamps(records)
            if self.topic == GROUP_OFFSETS and self._oracle.groups is not None:
                self._oracle.groups.keep(self.partition, records)
            if self._is_rewritten:
                self._read_contents(records)
        told = self._told
        if isinstance(told, CompactedTruth):
            if not leads:
                told.fetched(self._replica, stored(records))
                return
            told.compacted.wrote(records)
        for entry in entries_of(records):
            told.appended(self._replica, entry, leads=leads)

    def _swapped(self, base: int) -> None:
        """A new segment is in the place of those that it was made of."""
        if not isinstance(self._truth, CompactedTruth):
            return
        whose = " of groups" if self._oracle.keeps_groups((self.topic_id, self.partition)) else ""
        self._oracle.counts[f"segments{whose} that were compacted"] += 1
        index = self._segments.index_of(base)
        self.check_stored(self._segments.bases[index + 1])

    def check_stored(self, end: int) -> None:
        """Hold what the files have below `end` against what was appended."""
        low, disk = self.start, self._disk()
        with disk.observed():
            data = b"".join(
                disk.read(segment.log_path)[: segment.size]
                for segment in self._segments.all
                if segment.base < end
            )
        found = [one for one in stored(data) if low <= one.entry.last and one.entry.base < end]
        assert isinstance(self._truth, CompactedTruth), "its topic is not compacted"
        self._truth.check_stored(self._replica, found, low, end)

    def _read_claims(self, records: memoryview) -> None:
        """What a client claims of its records is true in the log, or nobody has looked."""
        for position, header in batches(records):
            self._oracle.counts["deep batches judged"] += 1
            try:
                found = [one.offset for one in read_records(records[position:])]
            except WireError as error:
                found, why = [], str(error)
            else:
                why = f"offsets {found}"
            if found != list(range(header.base_offset, header.last_offset + 1)):
                self._oracle.fail(
                    Invariant.RECORDS_AS_CLAIMED,
                    f"{self!r}, node {self._replica.node}: {header}: {why}",
                )

    def _read_contents(self, records: memoryview) -> None:
        """What is written otherwise than it was sent is known again by what it says."""
        settings, counts = self.settings, self._oracle.counts
        counts["batches in the codec of their topic"] += settings.compression_type != "producer"
        counts["batches stamped by their leader"] += (
            settings.message_timestamp_type == "LogAppendTime"
        )
        for position, header in batches(records):
            values = [record.value for record in read_records(records[position:])]
            self._told.contents[header.leader_epoch, header.base_offset] = content_of(values)

    def _read_stamps(self, records: memoryview) -> None:
        """All ages come from headers: one that its records do not bear out is a mistake at once."""
        wrong = self._told.deletions.read(records)
        if wrong:
            self._oracle.fail(
                Invariant.TIMESTAMP_OF_RECORDS,
                f"{self!r}, node {self._replica.node}: {wrong}",
            )

    def start_epoch(self, epoch: int) -> None:
        super().start_epoch(epoch)
        if self._truth is not None and not self._is_metadata:
            self._truth.led(self._replica, epoch)

    def truncate_to(self, offset: int) -> None:
        super().truncate_to(offset)
        if self._truth is not None:
            self._truth.truncated(self._replica, self.end, offset)

    def reset_to(self, offset: int) -> None:
        truth, self._truth = self._truth, None  # start, end and watermark jump together
        try:
            super().reset_to(offset)
        finally:
            self._truth = truth
        if truth is not None:
            truth.reset(self._replica, offset)
            self._check_covered()

    def advance_start(self, offset: int, *, for_good: bool = False) -> bool:
        moved = super().advance_start(offset, for_good=for_good)
        if moved and self._truth is not None:
            self._truth.started(self._replica, self.start)
            self._check_covered()
        return moved

    def retention(self, now_ms: int, upper_bound: int) -> int:
        before = [] if self._truth is None or self._is_metadata else self._stretches()
        try:
            count = super().retention(now_ms, upper_bound)
        finally:
            self._expired(before, now_ms)  # what is gone is gone, if the disk fails then, too
        if count and self._truth is not None:
            self._truth.started(self._replica, self.start)
        return count

    def _check_covered(self) -> None:
        """Of the metadata log nothing expires: what it does not have, a snapshot beside it says."""
        if not self._is_metadata or not self.start:
            return
        with self._disk().observed():
            names = self._disk().list(self.directory)
        covered = [int(name[:20]) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
        if max(covered, default=0) < self.start:
            self._oracle.fail(
                Invariant.BEGINS_AT_SNAPSHOT,
                f"{self!r}, node {self._replica.node}: snapshots until {covered}",
            )

    def _stretches(self) -> list[Stretch]:
        """All segments, as the disk has them."""
        disk = self._disk()
        ends = [*self._segments.bases[1:], self.end]
        with disk.observed():
            return [
                Stretch(
                    one.base,
                    end,
                    disk.size(one.log_path),
                    disk.modified_ms(one.log_path),
                    self._newest(disk.read(one.log_path)[: one.size]),
                )
                for one, end in zip(self._segments.all, ends, strict=True)
            ]

    def _newest(self, data: bytes) -> int | None:
        """The largest timestamp of a segment, where what was appended does not tell it."""
        if not isinstance(self._truth, CompactedTruth):
            return None
        headers = (header for _, header in batches(memoryview(data)))
        return max((header.max_timestamp for header in headers), default=-1)

    def _disk(self) -> MemoryDisk:
        disk = self.home.runtime.disk
        assert isinstance(disk, MemoryDisk), "a replica is watched in simulation only"
        return disk

    def _expired(self, before: list[Stretch], now_ms: int) -> None:
        left = sum(each.size for each in before)
        for each in before:
            if each.first >= self._segments.bases[0]:
                break
            left -= each.size
            self._told.expired(self._replica, each, left=left, now_ms=now_ms)

    def abandon(self) -> None:
        if self._flusher._running is not None:  # noqa: SLF001 - nobody else asks
            self._oracle.flushing[self._replica.node, self.topic, self.partition] = self
        super().abandon()
        if self._truth is not None:
            self._truth.removed(self._replica)
