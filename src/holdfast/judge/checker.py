"""One pass over a history: its judgement, its timeline, its rates. The judge's front door."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Event,
    HistoryError,
    PartitionEvent,
    Refused,
    Send,
    Unknown,
)
from holdfast.judge.partition import PartitionFold
from holdfast.judge.sends import HistoryTooLargeError
from holdfast.judge.series import PARTITIONS_MAX, AvailabilityFold, Point, Series
from holdfast.judge.timeline import Timeline
from holdfast.judge.verdict import Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that a history proves and shows."""

    judgement: Judgement
    timeline: Timeline
    points: tuple[Point, ...]
    point_ms: float  # width of one point


class Checker:
    """Feed it events in the order of the clock, then `finish` once."""

    def __init__(self) -> None:
        self._folds: dict[tuple[str, int], PartitionFold] = {}
        self._timeline = Timeline()
        self._series = Series()
        self._availability = AvailabilityFold()
        self._events = 0

    def feed(self, event: Event) -> None:
        """Take an event in. HistoryError: it contradicts what was said before."""
        self._events += 1
        at_ms, timeline = event.at_ms, self._timeline
        if not timeline.started:
            timeline.reach(event)
        elif at_ms > timeline.end_ms:
            timeline.end_ms = at_ms
        try:
            # `isinstance` takes half a microsecond for an event: here it would be half of the time.
            if type(event) is Delivered:
                self._fold(event).deliver(event)
            elif type(event) is Send:
                self._fold(event).send(event)
                self._series.sent(at_ms)
                self._availability.sent(at_ms)
            elif type(event) is Acknowledged:
                sent_ms = self._fold(event).answer(event)
                self._series.acknowledged((event.topic, event.partition), at_ms, sent_ms)
                self._availability.acknowledged(at_ms, sent_ms)
            elif isinstance(event, Refused | Unknown):
                self._fold(event).answer(event)
                self._series.refused(at_ms, is_certain=isinstance(event, Refused))
                self._availability.refused(at_ms)
            else:
                if isinstance(event, PartitionEvent):
                    self._fold(event).note(event)
                timeline.feed(event)
        except OverflowError as error:
            raise HistoryError(f"a number is too large ({error}): {event}") from None

    def _fold(self, event: PartitionEvent) -> PartitionFold:
        key = (event.topic, event.partition)
        return self._folds.get(key) or self._new_fold(key)

    def _new_fold(self, key: tuple[str, int]) -> PartitionFold:
        if len(self._folds) >= PARTITIONS_MAX:
            raise HistoryTooLargeError(f"the judge holds {PARTITIONS_MAX} partitions, not more")
        fold = self._folds[key] = PartitionFold(*key)
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
        )


def judge(events: Iterable[Event]) -> Evidence:
    """Judge a whole history. HistoryError when it contradicts itself."""
    checker = Checker()
    for event in events:
        checker.feed(event)
    return checker.finish()
