"""What all charts of one part share: the time they show, what went wrong in it, and the figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from holdfast.judge.history import Fault
from holdfast.judge.timeline import UP_ACTIONS, Timeline, TopicPartition
from holdfast.lab.report.drawing import LAYOUTS, Drawing, Frame, Layout, State, union
from holdfast.lab.report.marks import Mark
from holdfast.lab.report.scales import duration
from holdfast.lab.report.standstill import Standstill

CROWDED = 8  # points that a fault's line needs for something to be seen beside it
STUB = 8  # points of a line that only says where a fault was


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One part's time, with its faults, anomalies and standstills."""

    frame: Frame
    timeline: Timeline
    marks: Sequence[Mark] = ()
    standstills: Sequence[Standstill] = ()

    @cached_property
    def _is_of_one_topic(self) -> bool:
        topics = {topic for topic, _ in self.timeline.partitions}
        return len(topics | {mark.partition[0] for mark in self.marks}) <= 1

    def place(self, partition: TopicPartition) -> str:
        """A partition's name in drawings: short where there is one topic."""
        return f"P{partition[1]}" if self._is_of_one_topic else f"{partition[0]}-{partition[1]}"

    def leaderless(self, drawing: Drawing, top: float, bottom: float) -> None:
        """Shade the time in which any partition had no working leader."""
        timeline = self.timeline
        spans = union(
            span for partition in timeline.partitions for span in timeline.leaderless(partition)
        )
        states = [
            State(
                begin, end, "leaderless", f"a partition without leader for {duration(end - begin)}"
            )
            for begin, end in spans
        ]
        drawing.row(top, bottom, states, least=1.5)

    def faults(self, drawing: Drawing, top: float, bottom: float) -> None:
        """Draw every fault through a chart; where they would hide it, above it."""
        if len(self.timeline.faults) * CROWDED > drawing.right - drawing.left:
            bottom = min(bottom, top + STUB)
        for way in ("down", "up"):
            places = [drawing.x(f.at_ms) for f in self.timeline.faults if direction(f) == way]
            drawing.lines(places, top, bottom, f"mark mark-{way}")

    def lines(self, drawing: Drawing, top: float, bottom: float) -> None:
        """Draw every fault and every anomaly through a chart; anomalies have a cross on top."""
        self.faults(drawing, top, bottom)
        for mark in self.marks:
            at = drawing.x(mark.at_ms)
            kind = "anomaly" if mark.forbidden else "anomaly allowed"
            drawing.line(at, top, at, bottom, f"mark {kind}")
            drawing.cross(at, top, kind, mark.words(self.place(mark.partition)))


def direction(fault: Fault) -> str:
    """Whether a fault takes a node away or brings it back."""
    return "up" if fault.action in UP_ACTIONS else "down"


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: a name, and the style's class of its sample."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart: its words, and one drawing a layout. `data` is what the cursor shows."""

    title: str
    note: str
    drawings: tuple[str, ...]
    legend: Sequence[Key] = ()
    said: Sequence[str] = ()  # under the chart: what its axis leaves out
    data: Mapping[str, object] | None = None

    @property
    def payload(self) -> str:
        """The data as JSON that may stand inside a script element."""
        if self.data is None:
            return ""
        return json.dumps(self.data, separators=(",", ":")).replace("</", "<\\/")


def drawn(draw: Callable[[Layout], Drawing]) -> tuple[str, ...]:
    """The same chart in every layout."""
    return tuple(draw(layout).render() for layout in LAYOUTS)
