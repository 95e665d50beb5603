"""What is asked of us, and whether it was met. Pure.

A goal is about one figure of one case, ours alone; what Apache Kafka did in the same rounds stands
beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

OURS: Final = "holdfast"
THEIRS: Final = "apache"
MET: Final = {True: "met", False: "NOT MET", None: "not measured"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound on a figure. By the median of the rounds, or by the worst of them."""

    case: str
    metric: str
    says: str  # what the figure is, with its unit
    bound: float
    at_least: bool = False
    by_worst: bool = False
    engine: str = OURS

    def figure(self, cases: dict[str, Any], engine: str) -> float | None:
        """Return what counts of an engine's rounds; None: it was not measured."""
        found = cases.get(self.case, {}).get(engine, {}).get(self.metric)
        if found is None:
            return None
        worst = min if self.at_least else max
        return float(worst(found["rounds"]) if self.by_worst else found["median"])

    def is_met(self, figure: float | None) -> bool | None:
        """Say whether a figure is good enough; None: there is none."""
        if figure is None:
            return None
        return figure >= self.bound if self.at_least else figure <= self.bound


def judged(goals: Iterable[Goal], cases: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each goal with what was measured; `cases` is a summary of rounds."""
    rows = []
    for goal in goals:
        ours = goal.figure(cases, goal.engine)
        row = {
            "case": goal.case,
            "figure": goal.says,
            "of": goal.engine,
            "counts": "the worst round" if goal.by_worst else "the median round",
            "bound": goal.bound,
            "bound_is": "least" if goal.at_least else "most",
            "measured": ours,
            "met": goal.is_met(ours),
        }
        if goal.engine == OURS:
            row["apache"] = goal.figure(cases, THEIRS)
        rows.append(row)
    return rows


def render(rows: Iterable[dict[str, Any]]) -> str:
    """Return a table in Markdown."""
    lines = ["| goal | asked | measured | Apache Kafka | |", "|--|--|--|--|--|"]
    for row in rows:
        sign = ">=" if row["bound_is"] == "least" else "<="
        name = row["case"] if row["of"] == OURS else f"{row['case']} ({row['of']})"
        cells = [
            f"{name}: {row['figure']}",
            f"{sign} {row['bound']:,g}",
            _number(row["measured"]),
            _number(row.get("apache")),
            MET[row["met"]],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
