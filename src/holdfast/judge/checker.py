"""One pass over a history: its judgement, its timeline, its rates. The judge's front door."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.judge.history import (
    Acknowledged,
    Event,
    PartitionEvent,
    Refused,
    Send,
    Unknown,
)
from holdfast.judge.partition import PartitionFold
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
        self._events += 1
        self._timeline.feed(event)
        if not isinstance(event, PartitionEvent):
            return
        key = (event.topic, event.partition)
        fold = self._folds.get(key)
        if fold is None:
            assert len(self._folds) < PARTITIONS_MAX, "more partitions than the judge holds"
            fold = self._folds[key] = PartitionFold(*key)
        sent_ms = fold.feed(event)
        if isinstance(event, Send | Acknowledged | Refused | Unknown):
            self._series.feed(event, sent_ms)
            self._availability.feed(event, sent_ms)

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
