"""One round over one log: first its keys, then its segments, group by group.

Owns the order of a round, and what it has read and written. Touches sealed files and files of its
own only: what it has made of a group is put in the place of the group by `replacement`, on the
loop. All of it are steps, as `runtime.sliced_work` has them, between which anything may happen to
the log; once it says that the round is over, nothing is opened any more.

Rules: compaction.md#a-round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from holdfast.config.topic import TopicSettings
from holdfast.log.compaction.batch_reader import BatchReader, FoundBatch
from holdfast.log.compaction.batch_rewrite import (
    Rewritten,
    Rules,
    UnreadableBatchError,
    emptied,
    enter_keys,
    filter_batch,
    has_horizon,
    stamp_marker,
)
from holdfast.log.compaction.cleaned_segment import Cleaned, CleanedSegment
from holdfast.log.compaction.compaction_due import SegmentFacts, with_ends
from holdfast.log.compaction.seen_transactions import SeenTransactions
from holdfast.log.compaction.segment_groups import Group, group_segments
from holdfast.log.compaction.transaction_index import AbortedTransaction
from holdfast.log.files import FileCache
from holdfast.log.segment import CLEANED_SUFFIX, LOG_SUFFIX, SUFFIXES, prefix_of
from holdfast.runtime.ports import Disk, File, Files
from holdfast.runtime.sliced_work import BYTES_A_SLICE, REST, Effort, Steps
from holdfast.wire.batch_header import BatchHeader, crc_matches
from holdfast.wire.batch_records import read_control_type, read_records
from holdfast.wire.compression import inflated_bytes_max
from holdfast.wire.errors import WireError
from holdfast.wire.walker.record_compaction import COMPACTOR, Compactor

BATCH_EFFORT: Final = 1 / 100  # to look at one batch, and to decide what becomes of it
NAMED_MAX: Final = 10  # batches that nobody can read and that are named; all are counted
_CONTROL_BYTES_MAX: Final = 1 << 20
_NOT_A_KIND: Final = -1  # of a control batch that nobody can read


class RoundOverError(Exception):
    """The log was cut, deleted or closed meanwhile: what the round has made is of no use."""


class LastOfProducer(NamedTuple):
    """Where a producer that the log remembers wrote last."""

    offset: int  # of its last record, -1: none is known
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """What a round is about, as the log was when it began."""

    directory: str  # the partition's own
    segments: Sequence[SegmentFacts]  # all of them below `bound`, the oldest first
    first_dirty: int
    bound: int  # where the last of them ends
    now_ms: int
    secret: bytes  # 16 bytes that nobody can guess
    map_bytes: int  # log.cleaner.dedupe.buffer.size, or a thread's part of it
    aborted: Sequence[AbortedTransaction] = ()  # that overlap with the segments
    producers: Mapping[int, LastOfProducer] = field(default_factory=dict)  # by producer id


@dataclass(slots=True)
class Tally:
    """What a round has done so far."""

    bytes_read: int = 0
    bytes_written: int = 0
    batches_dropped: int = 0
    keyless: int = 0  # records that went because they have no key
    unreadable: int = 0  # batches that stay whole, among those that this round was the first to see
    named: list[str] = field(default_factory=list)  # the first of these, and why

    @property
    def bytes_done(self) -> int:
        """What log.cleaner.io.max.bytes.per.second counts."""
        return self.bytes_read + self.bytes_written


class Round:
    """Find the keys, then copy each of the groups; `compaction_steps` has the order."""

    def __init__(
        self,
        disk: Disk,
        files: FileCache,
        plan: RoundPlan,
        settings: TopicSettings,
        compactor: Compactor = COMPACTOR,
        *,
        is_aside: bool | None = None,
    ) -> None:
        """`files` are what the log reads with. `is_aside`: the steps are taken beside the loop."""
        assert plan.segments, "nothing to compact"
        assert plan.segments[-1].base < plan.bound
        self.is_over = False  # set it when the log is cut, deleted or closed
        self.plan = plan
        self.tally = Tally()
        self.is_aside = compactor.is_native if is_aside is None else is_aside
        self.effort = Effort()
        self._disk = disk
        self._files = files
        self._settings = settings
        inflated_max = inflated_bytes_max(settings.max_message_bytes)
        self._batch_bytes_max = inflated_max
        self._rules = Rules(
            compactor,
            compactor.key_map(plan.map_bytes, plan.secret),
            start=plan.first_dirty,
            now_ms=plan.now_ms,
            delete_retention_ms=settings.delete_retention_ms,
            inflated_max=inflated_max,
            is_aside=self.is_aside,
        )
        self._seen = SeenTransactions(plan.aborted)
        self._ends = {facts.base: end for facts, end in with_ends(plan.segments, plan.bound)}

    @property
    def map_end(self) -> int:
        """Up to here the log is clean once the round is done: the next checkpoint."""
        return self._rules.bound

    # --- the first pass ---

    def find_keys(self) -> Steps[None]:
        """Enter the keys of what is dirty, from its beginning until the map is full.

        CorruptFileError: there is no batch where one should be. OSError: the disk failed.
        """
        plan, seen = self.plan, SeenTransactions(self.plan.aborted)
        for facts, end in with_ends(plan.segments, plan.bound):
            if end <= plan.first_dirty:
                continue
            with closing(self._open(facts.base)) as file:
                full_at = yield from self._find_keys(facts, file, seen)
            if full_at is not None:
                self._rules.bound = max(full_at, self._rules.bound)
                return
            self._rules.bound = end

    def _find_keys(
        self, facts: SegmentFacts, file: File, seen: SeenTransactions
    ) -> Steps[int | None]:
        """Enter the keys of a segment. Returns the offset at which the map was full."""
        reader = self._reader(facts, file)
        for found in reader.batches():
            header = found.header
            if self._count(reader):
                yield REST
                self.effort.spent = 0
            is_aborted = not header.is_control and seen.is_aborted(header)
            if found.data is None or not crc_matches(found.data):
                continue
            if header.is_control:
                seen.may_go(header, _control_kind(found.data))
            elif not is_aborted and header.last_offset >= self.plan.first_dirty:
                try:
                    full_at = yield from enter_keys(found.data, header, self._rules, self.effort)
                except UnreadableBatchError:
                    continue  # it is named by the second pass
                if full_at is not None:
                    return full_at
        return None

    # --- the second pass ---

    def groups(self) -> Sequence[Group]:
        """Return what is to be copied once the keys are found, in this order."""
        ranges = with_ends(self.plan.segments, self.plan.bound)
        copied = [(facts, end) for facts, end in ranges if facts.base < self.map_end]
        if not copied:
            return ()
        _, end = copied[-1]
        return group_segments([facts for facts, _ in copied], end, self._settings)

    def copy(self, group: Group) -> Steps[Cleaned | None]:
        """Write what stays of a group into a new segment; None: all of it stays where it is."""
        filled = [facts for facts in group if facts.size]
        if not filled:
            return None
        bases = [facts.base for facts in group]
        with closing(self._create(bases)) as target:
            is_changed = len(filled) > 1
            for facts in filled:
                with closing(self._open(facts.base)) as file:
                    is_last = facts is filled[-1]
                    changes = yield from self._copy(facts, file, target, is_last=is_last)
                    is_changed = is_changed or changes
            target.add_transactions(self._seen.take_kept())
            if not is_changed:
                return None
            target.write()
            cleaned: Cleaned = yield partial(target.finish, self._inside)
            return cleaned

    def _copy(
        self, facts: SegmentFacts, file: File, target: CleanedSegment, *, is_last: bool
    ) -> Steps[bool]:
        """Copy what stays of a segment. True: it is not what it was.

        `is_last`: of its group, of which the last batch stays: it says where the group ends.
        """
        reader, is_changed = self._reader(facts, file), False
        for found in reader.batches():
            header, size = found.header, target.segment.size
            keeps = (is_last and found.position + header.size == facts.size) or (
                self._is_last_of_producer(header)
            )
            stays = yield from self._rewritten(found, keeps=keeps)
            if stays is None:
                self.tally.batches_dropped += 1
                is_changed = True
            elif stays.data is not None:
                target.add(stays.data, stays.header)
                self.tally.keyless += stays.keyless
                is_changed = True
            elif found.data is not None:
                target.add(found.data, header)
            else:
                target.note(header)
                for piece in reader.pieces(found):
                    target.add_piece(piece)
                    if self._count(reader):
                        yield REST
                        self.effort.spent = 0
            self._wrote(target.segment.size - size)
            if target.wants_sync:
                yield target.sync
            if self._count(reader):
                yield REST
                self.effort.spent = 0
        return is_changed

    def _rewritten(self, found: FoundBatch, *, keeps: bool) -> Steps[Rewritten | None]:
        """Decide what becomes of a batch; None: nothing is left of it.

        `keeps`: what is left of it without records says something all the same.
        """
        try:
            stays = yield from self._decided(found)
        except UnreadableBatchError as error:
            self._name(found.header, str(error))
            return Rewritten(None, found.header)
        if stays.is_gone and not keeps:
            self.tally.keyless += stays.keyless
            return None
        return stays

    def _decided(self, found: FoundBatch) -> Steps[Rewritten]:
        header, data = found.header, found.data
        # Whether it can be read or not: while it is there, readers have to know.
        is_aborted = not header.is_control and self._seen.is_aborted(header)
        if data is None:
            raise UnreadableBatchError(f"it has {header.size} bytes")
        if not crc_matches(data):
            raise UnreadableBatchError("its CRC is wrong")
        if not header.record_count:
            return Rewritten(None, header)
        if header.is_control:
            return (yield from self._control(data, header))
        if is_aborted:
            return emptied(header)
        return (yield from filter_batch(data, header, self._rules, self.effort))

    def _control(self, data: memoryview, header: BatchHeader) -> Steps[Rewritten]:
        if not self._seen.may_go(header, _control_kind(data)):
            return Rewritten(None, header)
        if not has_horizon(header):
            return (yield from stamp_marker(data, header, self._rules, self.effort))
        return emptied(header) if self._rules.may_drop(header) else Rewritten(None, header)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether a producer that the log remembers wrote nothing later.

        Without it a leader that begins with these files would not know what to expect of it.
        """
        if header.producer_id < 0:
            return False
        last = self.plan.producers.get(header.producer_id)
        if last is None:
            return False
        if last.offset >= 0:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch

    def _name(self, header: BatchHeader, why: str) -> None:
        """Take note of a batch that nobody can read; a round that saw it before has named it."""
        self._rules.drops = False  # it may have what a later tombstone deletes
        if header.base_offset < self.plan.first_dirty:
            return
        self.tally.unreadable += 1
        if len(self.tally.named) < NAMED_MAX:
            self.tally.named.append(f"the batch at offset {header.base_offset} stays whole: {why}")

    # --- files ---

    def remove_copy(self, group: Group) -> None:
        """Remove what was written for a group, of which nothing came. Slow: a job.

        OSError: the disk failed.
        """
        prefix = prefix_of(self.plan.directory, group[0].base)

        def remove(files: Files) -> None:
            for suffix in SUFFIXES:
                path = prefix + suffix + CLEANED_SUFFIX
                if files.exists(path):
                    files.remove(path)

        self._inside(remove)

    def _reader(self, facts: SegmentFacts, file: File) -> BatchReader:
        path = prefix_of(self.plan.directory, facts.base) + LOG_SUFFIX
        offsets = facts.base, self._ends[facts.base]
        return BatchReader(file, path, facts.size, offsets, batch_bytes_max=self._batch_bytes_max)

    def _open(self, base: int) -> File:
        opened: list[File] = []
        path = prefix_of(self.plan.directory, base) + LOG_SUFFIX
        self._inside(lambda files: opened.append(files.open(path)))
        return opened[0]

    def _create(self, bases: Sequence[int]) -> CleanedSegment:
        opened: list[File] = []
        path = prefix_of(self.plan.directory, bases[0]) + LOG_SUFFIX + CLEANED_SUFFIX
        self._inside(lambda files: opened.append(files.open(path, create=True)))
        interval = self._settings.index_interval_bytes
        return CleanedSegment(opened[0], self._files, self.plan.directory, bases, interval)

    def _inside(self, work: Callable[[Files], None]) -> None:
        """Do something with files of the directory, which may lose its name meanwhile.

        It is held first and only then asked whether it is ours still: who deletes a replica says so
        before another one can have the name.
        """
        try:
            with self._disk.inside(self.plan.directory) as files:
                self._check()
                work(files)
        except FileNotFoundError:
            self._check()
            raise

    def _check(self) -> None:
        if self.is_over:
            raise RoundOverError

    # --- turns ---

    def _count(self, reader: BatchReader) -> bool:
        """Count what was read. True: it was enough, others have their turn."""
        if self.is_over:
            raise RoundOverError
        count, reader.bytes_read = reader.bytes_read, 0
        self.tally.bytes_read += count
        self.effort.spent += count / BYTES_A_SLICE + BATCH_EFFORT
        return self.effort.is_over

    def _wrote(self, count: int) -> None:
        self.tally.bytes_written += count
        self.effort.spent += count / BYTES_A_SLICE


def _control_kind(data: memoryview) -> int:
    """Return the kind of a control batch's record; a marker that can't be read says nothing."""
    try:
        records = read_records(data, inflated_size_max=_CONTROL_BYTES_MAX)
        return read_control_type(records[0].key) if records else _NOT_A_KIND
    except WireError:
        return _NOT_A_KIND
