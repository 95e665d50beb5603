"""One drawing as inline SVG: lines, boxes, words, axes, and the marks that all drawings share.

All of one history's drawings share one time axis and are as wide as each other, so that a fault
stands in one line through all of them. Colours are the page's CSS variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from holdfast.judge.timeline import UP_ACTIONS, Timeline
from holdfast.lab.report.scales import Scale, duration, number, ticks

WIDTH = 980
LEFT, RIGHT = 74, 14
TOP, BOTTOM = 12, 26


class Drawing:
    """One SVG with a time axis below, faults and leaderless time drawn in."""

    def __init__(self, timeline: Timeline, height: float, label: str) -> None:
        self.timeline = timeline
        self.height = height
        self.x = Scale(timeline.begin_ms, timeline.end_ms, LEFT, WIDTH - RIGHT)
        self._parts: list[str] = []
        self._label = label

    def add(self, text: str) -> None:
        self._parts.append(text)

    def text(self, x: float, y: float, words: str, kind: str, anchor: str = "start") -> None:
        self.add(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">'
            f"{escape(words)}</text>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.add(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def box(self, x1: float, y1: float, x2: float, y2: float, kind: str, title: str = "") -> None:
        inside = f"<title>{escape(title)}</title>" if title else ""
        self.add(
            f'<rect x="{x1:.1f}" y="{y1:.1f}" width="{max(0.0, x2 - x1):.1f}" '
            f'height="{max(0.0, y2 - y1):.1f}" class="{kind}">{inside}</rect>'
        )

    def path(
        self, places: Sequence[tuple[float, float] | None], kind: str, style: str = ""
    ) -> None:
        """A line through these places, interrupted where there is none."""
        commands = []
        for before, place, after in zip([None, *places], places, [*places[1:], None], strict=False):
            if place is None:
                continue
            commands.append(f"{'M' if before is None else 'L'}{place[0]:.1f} {place[1]:.1f}")
            if before is None and after is None:
                commands.append("m-1.5 0h3")  # alone between gaps: a dot, or nothing is seen
        extra = f' style="{style}"' if style else ""
        self.add(f'<path d="{" ".join(commands)}" class="{kind}"{extra}/>')

    def time_axis(self, bottom: float) -> None:
        total_s = (self.timeline.end_ms - self.timeline.begin_ms) / 1000
        self.line(LEFT, bottom, WIDTH - RIGHT, bottom, "axis")
        for tick in ticks(0, total_s, 10):
            at = self.x(self.timeline.begin_ms + tick * 1000)
            self.line(at, bottom, at, bottom + 4, "axis")
            self.text(at, bottom + 17, f"{number(tick)} s", "tick", "middle")

    def value_axis(self, scale: Scale, marks: Sequence[float], unit: str) -> None:
        for mark in marks:
            at = scale(mark)
            self.line(LEFT, at, WIDTH - RIGHT, at, "grid")
            self.text(LEFT - 8, at + 4, number(mark), "tick", "end")
        middle = (scale.start + scale.end) / 2
        self.add(
            f'<text x="14" y="{middle:.1f}" class="unit" text-anchor="middle" '
            f'transform="rotate(-90 14 {middle:.1f})">{escape(unit)}</text>'
        )

    def leaderless(self, top: float, bottom: float) -> None:
        """Shade the time in which any partition had no working leader."""
        for begin, end in union(
            span
            for partition in self.timeline.partitions
            for span in self.timeline.leaderless(partition)
        ):
            self.box(
                self.x(begin),
                top,
                max(self.x(end), self.x(begin) + 1.5),
                bottom,
                "leaderless",
                f"a partition without leader for {duration(end - begin)}",
            )

    def faults(self, top: float, bottom: float) -> None:
        for fault in self.timeline.faults:
            at = self.x(fault.at_ms)
            kind = "mark-up" if fault.action in UP_ACTIONS else "mark-down"
            self.line(at, top, at, bottom, f"mark {kind}")

    def render(self) -> str:
        return (
            f'<svg class="chart" viewBox="0 0 {WIDTH} {self.height:.0f}" role="img" '
            f'aria-label="{escape(self._label)}" data-left="{LEFT}" data-right="{WIDTH - RIGHT}" '
            f'data-width="{WIDTH}">{"".join(self._parts)}</svg>'
        )


def union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same time as these spans, without overlaps, in order."""
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined
