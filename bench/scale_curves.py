"""The curves of `docs/design/scale.md`: one small drawing for each thing measured. Pure but for the
file that is written at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from holdfast.lab.report.scales import Scale, decades, number

_WIDTH, _HEIGHT, _COLUMNS = 340, 220, 2
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 34, 34
_STYLE = (
    "text{font:12px sans-serif;fill:#333}.name{font-weight:bold}.grid{stroke:#ddd}"
    ".curve{stroke:#1f5fa8;stroke-width:2;fill:none}.dot{fill:#1f5fa8}"
    ".goal{stroke:#b3261e;stroke-dasharray:5 4}.goal-word{fill:#b3261e}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#444}"
    ".curve{stroke:#7fb2f0}.dot{fill:#7fb2f0}.goal{stroke:#f2857d}.goal-word{fill:#f2857d}}"
)


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric, and what it should stay under at 10,000 partitions."""

    metric: str
    name: str
    goal: float


CURVES = (
    Curve("create_s", "creation, to a record in each (s)", 5),
    Curve("idle_cores", "three idle brokers (cores)", 0.1),
    Curve("round_trip_ratio", "acks=all, to that of 3 partitions", 2),
    Curve("kill_s", "SIGKILL to the last one's next record (s)", 11),
    Curve("restart_s", "down and up, to whole ISRs (s)", 20),
    Curve("rss_mb", "memory of a broker (MB)", 120),
    Curve("metadata_ms", "Metadata of everything (ms)", 100),
    Curve("return_s", "return of the killed one, to whole ISRs (s)", 20),
)


def render(report: dict[str, Any]) -> str:
    """Return all curves as one SVG."""
    rows = -(-len(CURVES) // _COLUMNS)
    parts = []
    for place, curve in enumerate(CURVES):
        points = [
            (row["partitions"], row[curve.metric])
            for row in report["rows"]
            if row.get(curve.metric, 0) > 0
        ]
        if points:
            x, y = place % _COLUMNS * _WIDTH, place // _COLUMNS * _HEIGHT
            parts.append(f'<g transform="translate({x} {y})">{_one(curve, points)}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH * _COLUMNS} '
        f'{_HEIGHT * rows}" role="img" aria-label="What partitions cost, from 10 to 10,000">'
        f"<style>{_STYLE}</style>{''.join(parts)}</svg>\n"
    )


def _one(curve: Curve, points: list[tuple[float, float]]) -> str:
    values = [value for _, value in points] + [curve.goal]
    marks = decades(min(values), max(values))
    sizes = decades(points[0][0], points[-1][0])
    x = Scale(sizes[0], sizes[-1], _LEFT, _WIDTH - _RIGHT, logarithmic=True)
    y = Scale(marks[0], marks[-1], _HEIGHT - _BOTTOM, _TOP, logarithmic=True)
    parts = [f'<text class="name" x="8" y="18">{escape(curve.name)}</text>']
    for mark in marks:
        at = y(mark)
        parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}"/>')
        words = number(mark) if mark >= 0.01 else f"{mark:g}"
        parts.append(_text(_LEFT - 6, at + 4, words, "end"))
    for size in sizes:
        anchor = "end" if size == sizes[-1] else "middle"
        parts.append(_text(x(size), _HEIGHT - _BOTTOM + 18, number(size), anchor))
    at = y(curve.goal)
    parts.append(f'<path class="goal" d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}"/>')
    parts.append(
        f'<text class="goal-word" x="{_LEFT + 4}" y="{at - 4:.1f}">{number(curve.goal)}</text>'
    )
    places = [(x(size), y(value)) for size, value in points]
    line = "L".join(f"{px:.1f} {py:.1f}" for px, py in places)
    parts.append(f'<path class="curve" d="M{line}"/>')
    parts += [f'<circle class="dot" cx="{px:.1f}" cy="{py:.1f}" r="3"/>' for px, py in places]
    parts.append(_text(places[-1][0], places[-1][1] - 7, number(points[-1][1]), "end"))
    return "".join(parts)


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def draw(report: dict[str, Any], directory: Path) -> None:
    """Write scale.svg."""
    (directory / "scale.svg").write_text(render(report), encoding="utf-8")
