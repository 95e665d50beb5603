"""What the report of one run holds. Values only: `page` makes a file of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.judge.checker import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that had to be seen. `expected` and `seen` are short sentences or values."""

    name: str
    expected: str
    seen: str
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text; columns whose every cell is a number are set flush right."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a table was behind its log: events acknowledged that it did not hold yet, over time.

    A chart of steps: each point holds until the next one. A mark is a moment with its name.
    """

    title: str
    points: Sequence[tuple[float, int]]  # (monotonic ms as in the history, events), in order
    marks: Sequence[tuple[float, str]] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page of the caller's own: tables, then charts of `evidence`, then checks.

    A section with evidence shows charts and the consistency and availability tables of that
    history: a control run, say.
    """

    title: str
    text: str = ""
    checks: Sequence[Check] = ()
    tables: Sequence[Table] = ()
    evidence: Evidence | None = None
    lag: Lag | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """What one report says. Sections come after the main run's charts and tables, in order."""

    title: str  # "one-broker-down", "demo"
    summary: str  # one sentence under the title: what was done
    kept: bool | None  # the promise; None: the run could not be made or judged
    verdict: str  # one sentence: "Kept: 4,980 events acknowledged, none lost."
    promise: str  # as it was stated before the run
    command: str  # runs it again
    evidence: Evidence | None = None
    checks: Sequence[Check] = ()
    sections: Sequence[Section] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    forbidden: frozenset[str] = frozenset()  # anomalies that break the promise, by value
