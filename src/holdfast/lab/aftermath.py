"""What is reckoned from a finished history beside the judgement: recovery, exact numbers."""

from __future__ import annotations

from collections import Counter
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
from holdfast.judge.timeline import CUT, HEAL, HURTS
from holdfast.judge.verdict import Anomaly, Judgement
from holdfast.lab.report import Check, Table
from holdfast.lab.report.scales import duration
from holdfast.lab.report.words import ACTION_WORDS

FAULTS_MAX = 12  # in the table
# A check by this name counts what is lost where nobody came to read the log to its end.
LOST_WHERE_IT_BROKE_OFF = "acknowledged events, where the run broke off"
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


Client = tuple[str, int]  # a process, in one partition


class _Recovery:
    """A fault, or its healing: how long each client waited until it was acknowledged, in ms."""

    def __init__(self, fault: Fault) -> None:
        self.action = fault.action
        self.nodes = [fault.node]
        self.since_ms = fault.at_ms
        self.waited: dict[Client, float] = {}
        self.never: dict[Client, float] = {}  # who was not, and how long that could be seen

    @property
    def is_healed(self) -> bool:
        return self.action == HEAL

    def is_over(self, sent_ms: float) -> bool:
        """Whether it is, with an acknowledgement of what was sent then.

        What was sent before a fault may be answered whatever it hurt. Behind a healing it shows
        that the network carries again.
        """
        return self.is_healed or self.since_ms <= sent_ms

    def cell(self, client: Client) -> str:
        if client in self.waited:
            return duration(self.waited[client])
        return f"never, {duration(self.never[client])}" if client in self.never else "-"


class _Wait(NamedTuple):
    """A client has waited since `begin_ms` for an acknowledgement behind a fault or a healing."""

    fault: _Recovery
    begin_ms: float


class Recoveries:
    """How long clients waited after each fault. Fed with a whole history, in order of its clock.

    Who waits for an answer at the fault has waited since then. Who has nothing in flight waits for
    nothing: not before it sends again, or for the first time. The same is said of what heals links:
    that is shorter than since they were cut, unless nothing was sent in between.
    """

    def __init__(self) -> None:
        self._faults: list[_Recovery] = []  # those in the table, with what healed them
        self._latest: _Recovery | None = None  # of the faults
        self._healed: _Recovery | None = None  # since the latest fault
        self._is_told_whole = False  # and nobody has said so of the links yet
        self._told: list[_Recovery] = []  # cuts that nobody has said to be made yet
        self._sent: dict[str, float] = {}  # what has no outcome yet
        self._in_flight: Counter[Client] = Counter()
        self._waits: dict[Client, list[_Wait]] = {}  # that go on
        self._begun: dict[Client, _Recovery] = {}  # the latest fault that each has waited after
        self._again: dict[Client, _Recovery] = {}  # the latest healing
        self._ever: set[Client] = set()  # who has waited at all
        self._seen_ms: dict[Client, float] = {}  # when it last sent or was answered
        self._longest_ms: float | None = None

    def feed(self, event: Event) -> None:
        if isinstance(event, Send):
            self._send((event.process, event.partition), event)
        elif isinstance(event, Acknowledged | Refused | Unknown):
            self._answer((event.process, event.partition), event)
        elif isinstance(event, Fault):
            if event.action in HURTS:
                self._hurt(_Recovery(event))
            elif event.action == HEAL:
                self._heal(_Recovery(event))
        elif isinstance(event, LinkChange):
            self._is_told_whole = False
            if event.state == CUT and self._told:
                self._cut(event.at_ms)

    def _send(self, client: Client, event: Send) -> None:
        self._sent[event.id] = self._seen_ms[client] = event.at_ms
        self._in_flight[client] += 1
        if self._latest is not None and self._begun.get(client) is not self._latest:
            self._wait(client, self._latest, event.at_ms)
        if self._healed is not None and self._again.get(client) is not self._healed:
            self._wait(client, self._healed, event.at_ms)

    def _answer(self, client: Client, event: Acknowledged | Refused | Unknown) -> None:
        sent_ms = self._sent.pop(event.id, None)
        if sent_ms is None:
            return
        self._in_flight[client] -= 1
        self._seen_ms[client] = event.at_ms
        waits = self._waits.get(client)
        if not waits or not isinstance(event, Acknowledged):
            return
        for wait in waits:
            if wait.fault.is_over(sent_ms):
                wait.fault.waited[client] = event.at_ms - wait.begin_ms
                if wait.fault not in self._told:
                    self._take(event.at_ms - wait.begin_ms)
        self._waits[client] = [wait for wait in waits if not wait.fault.is_over(sent_ms)]

    def _take(self, waited_ms: float) -> None:
        self._longest_ms = max(waited_ms, self._longest_ms or 0.0)

    def _hurt(self, fault: _Recovery) -> None:
        self._list(fault)
        if fault.action == CUT:  # it is told before it is made
            self._told.append(fault)
        else:
            self._take_told()
        self._healed = None  # what comes now is of this fault as well
        self._latest = fault
        self._begin(fault)

    def _heal(self, healed: _Recovery) -> None:
        """Links are about to be whole again; of several nodes at once each is told by itself."""
        if self._is_told_whole and self._healed is not None and not self._healed.waited:
            self._healed.nodes += healed.nodes
            return
        self._list(healed)
        self._healed, self._is_told_whole = healed, True
        self._begin(healed)

    def _list(self, fault: _Recovery) -> None:
        if len(self._faults) < FAULTS_MAX:
            self._faults.append(fault)

    def _take_told(self) -> None:
        """Take cuts for made of which nobody has said so."""
        for fault in self._told:
            for waited_ms in fault.waited.values():
                self._take(waited_ms)
        self._told.clear()

    def _cut(self, at_ms: float) -> None:
        """Links are cut from now on: what was told of that is one fault, and begins now.

        Whoever was acknowledged between the word and the cut has waited for nothing yet.
        """
        cut, *same = self._told
        for client, waits in self._waits.items():
            self._waits[client] = [each for each in waits if each.fault not in self._told]
        self._begun = {
            client: fault for client, fault in self._begun.items() if fault not in self._told
        }
        for fault in same:
            cut.nodes += fault.nodes
            if fault in self._faults:
                self._faults.remove(fault)
        self._told.clear()
        cut.since_ms = at_ms
        cut.waited.clear()  # what slipped through
        self._latest = cut
        self._begin(cut)

    def _begin(self, fault: _Recovery) -> None:
        """Let those wait who have something in flight, and the others when they send."""
        for client, count in self._in_flight.items():
            if count:
                self._wait(client, fault, fault.since_ms)

    def _wait(self, client: Client, fault: _Recovery, begin_ms: float) -> None:
        (self._again if fault.is_healed else self._begun)[client] = fault
        self._waits.setdefault(client, []).append(_Wait(fault, begin_ms))
        self._ever.add(client)

    def finish(self) -> None:
        """The history is at its end: who waits still was seen to do so until it last did a thing.

        A client that ended by then waits no longer, so that much is certain, and no more.
        """
        self._take_told()
        for client, waits in self._waits.items():
            for wait in waits:
                wait.fault.never[client] = self._seen_ms[client] - wait.begin_ms
                self._take(wait.fault.never[client])
        self._waits.clear()

    @property
    def longest_ms(self) -> float | None:
        """The longest that any client waited in any partition; None: nothing was to recover.

        Of who was never acknowledged: as long as that could be seen.
        """
        return self._longest_ms

    def table(self) -> Table | None:
        """How long each client waited after each fault, if there was any."""
        if not self._faults:
            return None
        partitions = sorted({partition for _, partition in self._ever})
        rows = [
            [
                f"{ACTION_WORDS[fault.action]} {', '.join(map(str, fault.nodes))}",
                process,
                *(fault.cell((process, partition)) for partition in partitions),
            ]
            for fault in self._faults
            for process in sorted({process for process, _ in self._ever})
        ]
        return Table(
            title="How long clients waited after each fault",
            header=["fault", "client", *(f"P{partition}" for partition in partitions)],
            rows=rows,
            note=(
                "Until the first event that was sent after the fault was acknowledged, or behind a "
                "healing any event: from that moment on for who waited for an answer then, for "
                "others from what they sent next. What breaks later is in the longest gap. A dash: "
                "they sent nothing before the next fault. Never: as long as it could be seen. The "
                "raw client has no back-off of its own; the other is librdkafka, which waits "
                "between its attempts."
            ),
        )
