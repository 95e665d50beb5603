"""What the report of one run holds. Values only: `page` makes a file of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.judge.checker import Evidence
from holdfast.judge.groups.verdict import GroupAnomaly
from holdfast.lab.report.standstill import Standstill


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that had to be seen. `expected` and `seen` are short sentences or values.

    `late`: nodes were starved by then, so it may only have come too late. `beyond`: in words, what
    was lost that nothing allowed; empty: nothing, or it is not about a loss.
    """

    name: str
    expected: str
    seen: str
    kept: bool
    late: bool = False
    beyond: str = ""


@dataclass(frozen=True, slots=True)
class Spot:
    """One value of a curve, and the least and the most that was measured there."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a curve. Its spots in the order in which they are joined.

    None: a place without a value, where the line is interrupted.
    """

    name: str
    spots: Sequence[Spot | None]

    @property
    def known(self) -> list[Spot]:
        return [each for each in self.spots if each is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What rows of a table say of one figure, over another one. Axes are named with their units."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text; columns whose every cell is a number are set flush right.

    `curves`: the same figures, drawn above it.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    curves: Sequence[Curve] = field(default_factory=list)  # a list, as they are read again


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a table was behind its log: events acknowledged that it did not hold yet, over time.

    A chart of steps: each point holds until the next one, and all of them are drawn. A mark is a
    moment with its name.
    """

    title: str
    points: Sequence[tuple[float, int]]  # (monotonic ms as in the history, events), in order
    marks: Sequence[tuple[float, str]] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReport:
    """One part of a run, on a cluster of its own: its headline, charts, checks and tables.

    A control says in `control` what must be seen broken in it; `as_it_must` is about that, and
    `kept` is about the promise that the whole run is held against. `own_broken`: it broke, too,
    what its own settings promise.
    """

    title: str
    headline: str  # one or two sentences: what was seen
    kept: bool | None  # None: not decided
    control: str = ""  # empty: a part to prove
    as_it_must: bool = True
    own_broken: bool = False
    text: str = ""  # what else is to be known, under the headline
    counted: frozenset[str] = frozenset()  # anomalies that are forbidden in the run, and not here
    also_broken: str = ""  # on purpose, beside nodes: "SIGKILL of the Spark driver"
    evidence: Evidence | None = None
    still: Sequence[Standstill] = ()
    checks: Sequence[Check] = ()
    lag: Lag | None = None
    tables: Sequence[Table] = ()
    settings: Mapping[str, str] = field(default_factory=dict)  # Kafka's names, and the lab's


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """What one report says. Every part that was run is in it, in order."""

    title: str  # "one-broker-down", "demo"
    summary: str  # one sentence under the title: what was done
    kept: bool | None  # the promise; None: the run could not be made or judged
    verdict: str  # one or two sentences: "Kept: 4,980 events acknowledged, none lost."
    promise: str  # as it was stated before the run
    command: str  # runs it again
    parts: Sequence[PartReport] = ()
    text: str = ""  # what happens in the run and what must be seen, at length
    forbidden: frozenset[str] = frozenset()  # anomalies that break the promise, by value
    forbidden_groups: frozenset[GroupAnomaly] = frozenset()  # of groups, as their own promise says
