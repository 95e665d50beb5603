"""One pass over a history: its judgement, its timeline, its rates. The judge's front door."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from holdfast.judge.deliveries import Columns
from holdfast.judge.findings import FINDINGS_MAX
from holdfast.judge.groups.checker import GroupChecker
from holdfast.judge.groups.history import GroupEvent
from holdfast.judge.groups.verdict import GroupJudgement
from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Event,
    HistoryError,
    PartitionEvent,
    Refused,
    ReplicaBatch,
    ReplicaRecord,
    Send,
    Unknown,
    in_runs,
)
from holdfast.judge.partition import PartitionFold
from holdfast.judge.sends import HistoryTooLargeError
from holdfast.judge.series import PARTITIONS_MAX, AvailabilityFold, Point, Series, Step
from holdfast.judge.timeline import Timeline
from holdfast.judge.verdict import Judgement

# What comes by the million. Everything else is rare, and taken alone.
BUSY: frozenset[type[Event]] = frozenset({Send, Acknowledged, Refused, Unknown, Delivered})


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that a history proves and shows."""

    judgement: Judgement
    timeline: Timeline
    points: tuple[Point, ...]
    point_ms: float  # width of one point
    groups: GroupJudgement = field(default_factory=GroupJudgement)  # without any: it holds nothing


class Checker:
    """Feed it events in the order of the clock, in runs of any length, then `finish` once."""

    def __init__(self, findings_max: int = FINDINGS_MAX) -> None:
        """`findings_max`: of how many of each anomaly evidence is kept, in each partition."""
        self._findings_max = findings_max
        self._folds: dict[tuple[str, int], PartitionFold] = {}
        self._timeline = Timeline()
        self._series = Series()
        self._availability = AvailabilityFold()
        self._groups = GroupChecker(findings_max)
        self._events = 0

    def feed(self, run: Sequence[Event]) -> None:
        """Take events in that follow each other. HistoryError: they contradict what was said."""
        if not run:
            return
        self._events += len(run)
        self._timeline.reach(run[0])
        latest_ms = max([event.at_ms for event in run])
        self._timeline.end_ms = max(self._timeline.end_ms, latest_ms)
        self._groups.feed(run)
        if BUSY.issuperset(map(type, run)):
            self._feed_busy(run)
            return
        for is_busy, events in groupby(run, lambda event: type(event) in BUSY):
            if is_busy:
                self._feed_busy(list(events))
                continue
            for event in events:
                self._feed_rare(event)

    def _feed_rare(self, event: Event) -> None:
        try:
            # `isinstance` takes half a microsecond, and there are many of these.
            if type(event) is ReplicaBatch:
                self._fold(event).hold(event)
                return
            if type(event) is ReplicaRecord:
                self._fold(event).hold_record(event)
                return
            if isinstance(event, GroupEvent):
                return
            if isinstance(event, PartitionEvent):
                self._fold(event).note(event)
            self._timeline.feed(event)
        except OverflowError as error:
            raise too_large(error, event) from None

    def _feed_busy(self, run: Sequence[Event]) -> None:
        """Take sends and outcomes in one by one, and behind them all deliveries together."""
        delivered: list[Delivered] = []
        steps: list[Step] = []
        folds = self._folds
        for event in run:
            kind = type(event)
            if kind is Delivered:
                delivered.append(event)  # type: ignore[arg-type]
                continue
            key = (event.topic, event.partition)  # type: ignore[attr-defined]
            fold = folds.get(key) or self._new_fold(key)
            try:
                steps.append(fold.send(event) if kind is Send else fold.answer(event))  # type: ignore[arg-type]
            except OverflowError as error:
                raise too_large(error, event) from None
        if steps:
            self._series.take(steps)
            self._availability.take(steps)
        if delivered and not self._extend(delivered):
            self._deliver_each(run)

    def _extend(self, delivered: Sequence[Delivered]) -> bool:
        """Take in what readers were given, if nothing of all that is odd."""
        groups: dict[tuple[str, str, int], list[Delivered]] = defaultdict(list)
        for each in delivered:
            groups[each.process, each.topic, each.partition].append(each)
        laid_out: list[tuple[PartitionFold, str, Columns, bool]] = []
        for (process, _, _), given in groups.items():
            fold = self._fold(given[0])
            columns = fold.laid_out(process, given)
            if columns is None:
                return False
            tells = any(each.timestamp is not None for each in given)
            laid_out.append((fold, process, columns, tells))
        for fold, process, columns, tells in laid_out:
            fold.extend(process, columns, tells_timestamp=tells)
        return True

    def _deliver_each(self, run: Sequence[Event]) -> None:
        """Take the same in one by one: each knows the sends before it, and what is odd is told."""
        later = Counter((event.topic, event.partition) for event in run if type(event) is Send)
        for event in run:
            if type(event) is Send:
                later[event.topic, event.partition] -= 1
            elif type(event) is Delivered:
                try:
                    self._fold(event).deliver(event, later[event.topic, event.partition])
                except OverflowError as error:
                    raise too_large(error, event) from None

    def _fold(self, event: PartitionEvent) -> PartitionFold:
        key = (event.topic, event.partition)
        return self._folds.get(key) or self._new_fold(key)

    def _new_fold(self, key: tuple[str, int]) -> PartitionFold:
        if len(self._folds) >= PARTITIONS_MAX:
            raise HistoryTooLargeError(f"the judge holds {PARTITIONS_MAX} partitions, not more")
        fold = self._folds[key] = PartitionFold(*key, findings_max=self._findings_max)
        return fold

    def finish(self, notes: Iterable[str] = ()) -> Evidence:
        judgement = Judgement(
            partitions=tuple(self._folds[key].finish() for key in sorted(self._folds)),
            availability=self._availability.finish(),
            events=self._events,
            notes=tuple(notes),
        )
        return Evidence(
            judgement=judgement,
            timeline=self._timeline,
            points=tuple(self._series.points()),
            point_ms=self._series.width_ms,
            groups=self._groups.finish(),
        )


def judge(events: Iterable[Event], findings_max: int = FINDINGS_MAX) -> Evidence:
    """Judge a whole history. HistoryError when it contradicts itself."""
    checker = Checker(findings_max)
    for run in in_runs(events):
        checker.feed(run)
    return checker.finish()


def too_large(error: OverflowError, event: Event) -> HistoryError:
    return HistoryError(f"a number is too large ({error}): {event}")
