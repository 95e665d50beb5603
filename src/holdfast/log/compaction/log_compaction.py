"""Compaction as one log has it: what of it is dirty, and the round under way.

Owns which round that is, and plays its host: it says whether the log is what the round was planned
for, and puts a new segment in the place of old ones. Whoever cuts, resets, closes or deletes the
log, or takes a segment from it, calls `end` first. Whose turn it is, the cleaner knows.

Rules: compaction.md#what-is-dirty, compaction.md#a-round.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from holdfast.config.topic import TopicSettings
from holdfast.log.compaction.compaction_due import (
    Bounds,
    Dirty,
    SegmentFacts,
    what_is_dirty,
)
from holdfast.log.compaction.transaction_index import AbortedTransaction, read_transactions
from holdfast.log.directory import LogDirectory
from holdfast.log.producers import Producers
from holdfast.log.segment import TRANSACTION_INDEX_SUFFIX, Segment
from holdfast.log.segments import Segments

if TYPE_CHECKING:
    from holdfast.log.compaction.compaction_round import LastOfProducer, Round
    from holdfast.log.compaction.compaction_steps import Compaction


class Compacted(Protocol):
    """What is asked of the log, and told to it."""

    settings: TopicSettings
    high_watermark: int
    start: int
    end: int
    cleaned_to: int | None
    home: LogDirectory

    @property
    def directory(self) -> str: ...

    @property
    def recovery_point(self) -> int: ...


class LogCompaction:
    """Of one log. OSError: the disk failed. CorruptFileError: a file is not what it should be."""

    __slots__ = ("_forget_places", "_log", "_producers", "_segments", "_under_way")

    def __init__(
        self,
        log: Compacted,
        segments: Segments,
        producers: Producers,
        forget_places: Callable[[], None],
    ) -> None:
        """`forget_places`: where readers stopped is not where it was."""
        self._log = log
        self._segments = segments
        self._producers = producers
        self._forget_places = forget_places
        self._under_way: Compaction | None = None

    @property
    def is_under_way(self) -> bool:
        return self._under_way is not None

    @property
    def settled(self) -> int:
        """The first offset that is not committed or not synced, or of an undecided transaction."""
        log = self._log
        undecided = self._producers.first_undecided(log.high_watermark)
        settled = min(log.high_watermark, log.recovery_point)
        return settled if undecided is None else min(settled, undecided)

    def dirty(self, now_ms: int) -> Dirty:
        """Say what may be compacted. Looks at each segment, and into those that are dirty."""
        log, segments = self._log, self._segments
        bounds = Bounds(log.start, segments.active.base, self.settled, log.recovery_point, log.end)
        first = log.start if log.cleaned_to is None else max(log.start, log.cleaned_to)
        ends = segments.bases[1:]
        sealed = [
            self._facts(segment, is_dirty=end > first)
            for segment, end in zip(segments.all, ends, strict=False)
        ]
        return what_is_dirty(sealed, bounds, log.cleaned_to, log.settings, now_ms)

    def next_bound(self, dirty: Dirty) -> int | None:
        """Return what `settled` has to reach before more may be compacted; None: no more is sealed.

        Where a segment is only too young, `Dirty.look_again_ms` says so.
        """
        bases = self._segments.bases
        index = bisect_left(bases, dirty.bound) + 1
        if index < len(bases) and self.settled < bases[index]:
            return bases[index]
        return None

    def begin(
        self, dirty: Dirty, now_ms: int, secret: bytes, map_bytes: int
    ) -> tuple[Compaction, Round]:
        """Plan a round over what is dirty. `secret`: 16 bytes that nobody can guess."""
        from holdfast.log.compaction.compaction_round import Round, RoundPlan  # noqa: PLC0415 - rare
        from holdfast.log.compaction.compaction_steps import Compaction  # noqa: PLC0415 - rare

        assert self._under_way is None, "two rounds of one log at a time"
        log, segments = self._log, self._segments
        touched = segments.all[: bisect_left(segments.bases, dirty.bound)]
        plan = RoundPlan(
            directory=log.directory,
            segments=[self._facts(segment, is_dirty=False) for segment in touched],
            first_dirty=dirty.first,
            bound=dirty.bound,
            now_ms=now_ms,
            secret=secret,
            map_bytes=map_bytes,
            aborted=self._aborted(dirty.bound),
            producers=self._last_of_producers(),
        )
        disk = log.home.runtime.disk
        work = Round(disk, log.home.files, plan, log.settings)
        self._under_way = Compaction(disk, log.home.files, work, self)
        return self._under_way, work

    def done(self, checkpoint: int | None) -> None:
        """Take note that the round is over, and up to where the log is clean if it was done."""
        self._under_way = None
        if checkpoint is not None:
            self._log.cleaned_to = checkpoint

    def end(self, *, is_gone: bool = False) -> None:
        """End a round, if there is one: what is half done is done, or never was, durably.

        `is_gone`: see `Compaction.end`. StorageError: the directory goes offline by it. Where it is
        offline, nothing is touched any more.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return
        if not self._log.home.online:
            under_way.abandon()
            return
        with self._log.home.guarded():
            under_way.end(is_gone=is_gone)

    # --- what a round asks (`replacement.Host`) ---

    def is_as_planned(self, bases: Sequence[int]) -> bool:
        there = self._segments.bases
        index = bisect_left(there, bases[0])
        behind = index + len(bases)
        return behind < len(there) and there[index:behind] == list(bases)

    def take_over(self, bases: Sequence[int], segment: Segment, removed: Sequence[str]) -> None:
        self._segments.replace(bases, segment)
        self._forget_places()
        self._log.home.remove_later(removed, self._log.settings.file_delete_delay_ms)

    # --- what a plan says ---

    def _facts(self, segment: Segment, *, is_dirty: bool) -> SegmentFacts:
        """Return what is known of a segment: how old its records are only where that matters."""
        first = largest = -1
        if is_dirty:
            first, (largest, _) = segment.first_timestamp, segment.max_timestamp
            if largest < 0:
                largest = self._log.home.runtime.disk.modified_ms(segment.log_path)
        return SegmentFacts(
            segment.base,
            segment.size,
            first,
            largest,
            segment.offsets.count * segment.offsets.entry_size,
            segment.times.count * segment.times.entry_size,
        )

    def _aborted(self, bound: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have records below `bound`.

        A transaction is told of by the segment that has its marker, which may be one that is not
        touched, the active one too. Were it not known, its records would count as committed ones,
        and older ones of their keys would go for them.
        """
        disk = self._log.home.runtime.disk
        found: list[AbortedTransaction] = []
        for segment in self._segments.all:
            there = read_transactions(disk, segment.prefix + TRANSACTION_INDEX_SUFFIX)
            found += [each for each in there if each.first_offset < bound]
            if any(each.last_stable_offset >= bound for each in there):
                break  # no transaction was open any more that began below the bound
        return found

    def _last_of_producers(self) -> Mapping[int, LastOfProducer]:
        from holdfast.log.compaction.compaction_round import LastOfProducer  # noqa: PLC0415 - rare

        return {
            producer_id: LastOfProducer(last_offset, epoch)
            for producer_id, epoch, _, last_offset, *_ in self._producers.snapshot()
        }
