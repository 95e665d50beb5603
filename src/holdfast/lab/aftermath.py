"""What is reckoned from a finished history beside the judgement: recovery, exact numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.judge.groups.verdict import GroupAnomaly, GroupJudgement
from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Event,
    Fault,
    LinkChange,
    Refused,
    Send,
    Unknown,
)
from holdfast.judge.timeline import CUT, HURTS
from holdfast.judge.verdict import Anomaly, Judgement
from holdfast.lab.report import Check, Table
from holdfast.lab.report.scales import duration
from holdfast.lab.report.words import ACTION_WORDS

FAULTS_MAX = 12  # in the table
LAST_READ = "final"  # the process that reads all of the run's topic at the end


def lost_check(expected: int, judgement: Judgement) -> Check:
    lost = judgement.count(Anomaly.LOST)
    return Check(
        name="acknowledged events lost",
        expected=f"exactly {expected}",
        seen=str(lost),
        kept=lost == expected,
    )


def expired_check(expected: Mapping[str, int], judgement: Judgement) -> Check:
    """Hold what the verdict says of expired records against exact numbers, by what allowed it."""

    def text(counts: Mapping[str, int]) -> str:
        return ", ".join(f"{count} by {why}" for why, count in sorted(counts.items())) or "none"

    return Check(
        name="acknowledged events expired, and why that was allowed",
        expected=text(expected),
        seen=text(judgement.expired),
        kept=judgement.expired == expected,
    )


def group_checks(expected: Mapping[str, tuple[int, int]], groups: GroupJudgement) -> list[Check]:
    """Hold counts and anomalies of all groups against what must be seen: from least to most."""
    checks = []
    for name, (least, most) in expected.items():
        seen = (
            groups.count(GroupAnomaly(name))
            if name in {each.value for each in GroupAnomaly}
            else getattr(groups.counts, name)
        )
        wanted = f"exactly {least:,}" if least == most else f"{least:,} to {most:,}"
        checks.append(
            Check(
                name=f"records of groups: {name.replace('_', ' ')}",
                expected=wanted,
                seen=f"{seen:,}",
                kept=least <= seen <= most,
            )
        )
    return checks


class Missing:
    """Which acknowledged events the last read did not meet. Fed with a whole history.

    It knows no rule by which something may be gone, so it is for runs in which nothing may expire.
    """

    def __init__(self) -> None:
        self._acknowledged: dict[str, tuple[int, int]] = {}  # id -> partition, offset
        self._read: set[str] = set()

    def feed(self, event: Event) -> None:
        if isinstance(event, Acknowledged) and event.offset is not None:
            self._acknowledged[event.id] = event.partition, event.offset
        elif isinstance(event, Delivered) and event.id and event.process == LAST_READ:
            self._read.add(event.id)

    def check(self, expected: Iterable[tuple[int, int, str]]) -> Check:
        """Hold what is missing against these (partition, offset, id), each of them."""
        wanted = set(expected)
        seen = {
            (*place, name) for name, place in self._acknowledged.items() if name not in self._read
        }
        return Check(
            name="acknowledged events lost, offset by offset",
            expected=_places(wanted),
            seen="the same" if seen == wanted else _places(seen),
            kept=seen == wanted,
        )


def _places(named: Iterable[tuple[int, int, str]]) -> str:
    """Return events by partition and offset, neighbours as ranges."""
    ranges: list[list[int]] = []
    for partition, offset, _ in sorted(named):
        if ranges and ranges[-1][0] == partition and ranges[-1][2] + 1 == offset:
            ranges[-1][2] = offset
        else:
            ranges.append([partition, offset, offset])
    return (
        ", ".join(f"P{p}: {a}" if a == b else f"P{p}: {a} to {b}" for p, a, b in ranges) or "none"
    )


class Errors:
    """Which process was answered with which errors. Fed with a whole history."""

    def __init__(self) -> None:
        self._met: set[tuple[str, str]] = set()

    def feed(self, event: Event) -> None:
        if isinstance(event, Refused | Unknown):
            self._met.add((event.process, event.error))

    def missing(self, process: str, error: str) -> str | None:
        """Say that a process was never answered with this error; None: it was."""
        if (process, error) in self._met:
            return None
        return f"nothing that {process!r} wrote was answered with {error}"


class _Recovery:
    """One fault: when each process was first acknowledged again, by partition."""

    def __init__(self, fault: Fault) -> None:
        self.action = fault.action
        self.nodes = [fault.node]
        self.since_ms = fault.at_ms
        self.is_in_force = fault.action != CUT  # a cut is told before it is made
        self.first: dict[tuple[str, int], float] = {}


class Recoveries:
    """How long it took after each fault. Fed with a whole history, in the order of its clock."""

    def __init__(self) -> None:
        self._faults: list[_Recovery] = []
        self._sent: dict[str, float] = {}  # what has no outcome yet, and was sent after a fault
        self._partitions: set[int] = set()
        self._processes: set[str] = set()

    def feed(self, event: Event) -> None:
        if isinstance(event, Fault):
            if event.action in HURTS and len(self._faults) < FAULTS_MAX:
                self._faults.append(_Recovery(event))
        elif not self._faults:
            return
        elif isinstance(event, LinkChange):
            if event.state == CUT:
                self._cut(event.at_ms)
        elif isinstance(event, Send):
            self._sent[event.id] = event.at_ms
        elif isinstance(event, Acknowledged | Refused | Unknown):
            sent_ms = self._sent.pop(event.id, None)
            latest = self._faults[-1]
            if (
                isinstance(event, Acknowledged)
                and sent_ms is not None
                and sent_ms >= latest.since_ms
            ):
                self._partitions.add(event.partition)
                self._processes.add(event.process)
                latest.first.setdefault((event.process, event.partition), event.at_ms)

    def _cut(self, at_ms: float) -> None:
        """Links are cut from now on: what was told of that is one fault, and begins now."""
        cut: _Recovery | None = None
        while self._faults and not self._faults[-1].is_in_force:
            told = self._faults.pop()
            told.nodes += [] if cut is None else cut.nodes
            cut = told
        if cut is not None:
            cut.since_ms, cut.is_in_force = at_ms, True
            cut.first.clear()  # what slipped through
            self._faults.append(cut)

    @property
    def longest_ms(self) -> float | None:
        """The longest that any client waited in any partition; None: nothing was to recover."""
        return max(
            (
                at_ms - recovery.since_ms
                for recovery in self._faults
                for at_ms in recovery.first.values()
            ),
            default=None,
        )

    def table(self) -> Table | None:
        """From each fault to the first acknowledgement of what was sent after it, if any was."""
        if not self._faults:
            return None
        rows = []
        partitions = sorted(self._partitions)
        for recovery in self._faults:
            for process in sorted(self._processes):
                cells = []
                for partition in partitions:
                    at_ms = recovery.first.get((process, partition))
                    cells.append("-" if at_ms is None else duration(at_ms - recovery.since_ms))
                nodes = ", ".join(map(str, recovery.nodes))
                rows.append([f"{ACTION_WORDS[recovery.action]} {nodes}", process, *cells])
        return Table(
            title="From the fault to the first acknowledgement of an event sent after it",
            header=["fault", "client", *(f"P{partition}" for partition in partitions)],
            rows=rows,
            note=(
                "The raw client has no back-off of its own; the other is librdkafka, which waits "
                "between its attempts. A dash: none before the next fault."
            ),
        )
