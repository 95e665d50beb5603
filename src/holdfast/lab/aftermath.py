"""What is reckoned from a finished history beside the judgement: recovery, exact numbers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

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
    """Hold what is lost against the number that the steps foretell from who held what."""
    lost = judgement.count(Anomaly.LOST)
    return Check(
        name="acknowledged events lost",
        expected=f"exactly {expected}",
        seen=str(lost),
        kept=lost == expected,
        beyond=f"{lost} lost, where {expected} may be" if lost > expected else "",
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
        beyond = seen - wanted
        return Check(
            name="acknowledged events lost, offset by offset",
            expected=_places(wanted),
            seen="the same" if seen == wanted else _places(seen),
            kept=seen == wanted,
            beyond=f"{len(beyond)} lost that may not be: {_places(beyond)}" if beyond else "",
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
    """One fault: how long each client waited until it was acknowledged again, in ms."""

    def __init__(self, fault: Fault) -> None:
        self.action = fault.action
        self.nodes = [fault.node]
        self.since_ms = fault.at_ms
        self.waited: dict[tuple[str, int], float] = {}


class _Wait(NamedTuple):
    """A client has waited since `begin_ms` for an acknowledgement of what it sent after a fault."""

    fault: _Recovery
    begin_ms: float


class Recoveries:
    """How long clients waited after each fault. Fed with a whole history, in order of its clock.

    Who waits for an answer at the fault has waited since then. Who has nothing in flight waits for
    nothing: not before it sends again, or for the first time.
    """

    def __init__(self) -> None:
        self._faults: list[_Recovery] = []  # those in the table
        self._latest: _Recovery | None = None
        self._told: list[_Recovery] = []  # cuts that nobody has said to be made yet
        self._sent: dict[str, float] = {}  # what has no outcome yet
        self._in_flight: Counter[tuple[str, int]] = Counter()
        self._waits: dict[tuple[str, int], deque[_Wait]] = {}  # that go on, by client
        self._begun: dict[
            tuple[str, int], _Recovery
        ] = {}  # the latest fault that each has waited after
        self._recovered: set[tuple[str, int]] = set()  # after any fault
        self._longest_ms: float | None = None

    def feed(self, event: Event) -> None:
        if isinstance(event, Send):
            self._send((event.process, event.partition), event)
        elif isinstance(event, Acknowledged | Refused | Unknown):
            self._answer((event.process, event.partition), event)
        elif isinstance(event, Fault):
            if event.action in HURTS:
                self._hurt(_Recovery(event))
        elif isinstance(event, LinkChange) and event.state == CUT and self._told:
            self._cut(event.at_ms)

    def _send(self, client: tuple[str, int], event: Send) -> None:
        self._sent[event.id] = event.at_ms
        self._in_flight[client] += 1
        if self._latest is not None and self._begun.get(client) is not self._latest:
            self._wait(client, self._latest, event.at_ms)

    def _answer(self, client: tuple[str, int], event: Acknowledged | Refused | Unknown) -> None:
        sent_ms = self._sent.pop(event.id, None)
        if sent_ms is None:
            return
        self._in_flight[client] -= 1
        waits = self._waits.get(client)
        while waits and isinstance(event, Acknowledged) and waits[0].fault.since_ms <= sent_ms:
            wait = waits.popleft()
            self._recovered.add(client)
            wait.fault.waited[client] = event.at_ms - wait.begin_ms
            if wait.fault not in self._told:
                self._take(wait.fault.waited[client])

    def _take(self, waited_ms: float) -> None:
        self._longest_ms = max(waited_ms, self._longest_ms or 0.0)

    def _hurt(self, fault: _Recovery) -> None:
        if len(self._faults) < FAULTS_MAX:
            self._faults.append(fault)
        if fault.action == CUT:  # it is told before it is made
            self._told.append(fault)
        else:
            self._take_told()
        self._begin(fault)

    def _take_told(self) -> None:
        """Take cuts for made of which nobody has said so."""
        for fault in self._told:
            for waited_ms in fault.waited.values():
                self._take(waited_ms)
        self._told.clear()

    def _cut(self, at_ms: float) -> None:
        """Links are cut from now on: what was told of that is one fault, and begins now."""
        cut, *same = self._told
        for client, waits in self._waits.items():
            left = deque(each for each in waits if each.fault not in self._told)
            self._waits[client] = left
        for fault in same:
            cut.nodes += fault.nodes
            if fault in self._faults:
                self._faults.remove(fault)
        self._told.clear()
        cut.since_ms = at_ms
        cut.waited.clear()  # what slipped through
        self._begin(cut)

    def _begin(self, fault: _Recovery) -> None:
        """Let those wait who have something in flight, and the others when they send."""
        self._latest = fault
        for client, count in self._in_flight.items():
            if count:
                self._wait(client, fault, fault.since_ms)

    def _wait(self, client: tuple[str, int], fault: _Recovery, begin_ms: float) -> None:
        self._begun[client] = fault
        self._waits.setdefault(client, deque()).append(_Wait(fault, begin_ms))

    @property
    def longest_ms(self) -> float | None:
        """The longest that any client waited in any partition; None: nothing was to recover."""
        self._take_told()
        return self._longest_ms

    def table(self) -> Table | None:
        """How long each client waited after each fault, if there was any."""
        if not self._faults:
            return None
        partitions = sorted({partition for _, partition in self._recovered})
        rows = []
        for recovery in self._faults:
            for process in sorted({process for process, _ in self._recovered}):
                cells = []
                for partition in partitions:
                    waited_ms = recovery.waited.get((process, partition))
                    cells.append("-" if waited_ms is None else duration(waited_ms))
                nodes = ", ".join(map(str, recovery.nodes))
                rows.append([f"{ACTION_WORDS[recovery.action]} {nodes}", process, *cells])
        return Table(
            title="How long clients waited after each fault",
            header=["fault", "client", *(f"P{partition}" for partition in partitions)],
            rows=rows,
            note=(
                "Until an event that was sent after the fault was acknowledged: from the fault on "
                "for who waited for an answer then, for others from what they sent next. A dash: "
                "they sent nothing before the next fault, or that was never acknowledged. The raw "
                "client has no back-off of its own; the other is librdkafka, which waits between "
                "its attempts."
            ),
        )
