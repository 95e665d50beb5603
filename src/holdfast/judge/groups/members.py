"""Who is a member, whose process is in trouble, and whether a group is left in peace."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from holdfast.judge.groups.history import CalmBegan, ConsumerFault, GroupExpected, Joined
from holdfast.judge.history import Event, HistoryError

# What ends which trouble.
_ENDS = {"CONT": frozenset({"STOP", "SLOW"}), "HEAL": frozenset({"CUT"})}
BEGINS = frozenset({"KILL", "STOP", "CUT", "SLOW"})


@dataclass(slots=True)
class Process:
    """A process of members, and what was done to it."""

    open: set[str] = field(default_factory=set)
    ended_ms: float = -inf  # when the last trouble was over
    last: ConsumerFault | None = None

    @property
    def trouble_ms(self) -> float:
        """Return until when it has been in trouble: infinite while it is."""
        return inf if self.open else self.ended_ms

    def feed(self, fault: ConsumerFault) -> None:
        if fault.action in BEGINS:
            self.open.add(fault.action)
        elif fault.action in _ENDS:
            self.open -= _ENDS[fault.action]
            self.ended_ms = fault.at_ms
        else:
            raise HistoryError(f"nobody knows what {fault.action!r} does to a consumer")
        self.last = fault

    def revive(self, at_ms: float) -> None:
        """Another process has begun under a dead one's name."""
        if "KILL" in self.open:
            self.open.clear()
            self.ended_ms = at_ms


class Group:
    """What concerns all partitions of one group."""

    def __init__(self, name: str, processes: dict[str, Process]) -> None:
        self.name = name
        self._processes = processes
        self.expected: GroupExpected | None = None
        self.topics: set[str] = set()
        self.silence_ms = 0.0  # none is granted that nobody has named
        self.looks_may_lag = False
        self.members: dict[str, str] = {}  # the process of each that has not left
        self.told_ms: dict[
            str, float
        ] = {}  # when the coordinator last had to do with each, for certain
        self.calm: CalmBegan | None = None
        self.live_ms = inf  # since when it has had a member that can work; infinite: it has none

    def expect(self, event: GroupExpected) -> None:
        self.expected = event
        self.topics.update(event.topics)
        self.silence_ms = event.silence_ms
        self.looks_may_lag = event.looks_may_lag

    def join(self, event: Joined) -> None:
        self._processes.setdefault(event.process, Process()).revive(event.at_ms)
        self.members[event.member] = event.process
        self.told_ms[event.member] = event.at_ms

    def killed(self, process: str) -> None:
        self.members = {each: of for each, of in self.members.items() if of != process}

    def look(self, event: Event) -> None:
        """Find whether there is a member that can work, behind this event."""
        if not any(self._processes[of].trouble_ms < inf for of in self.members.values()):
            self.live_ms = inf
        elif self.live_ms == inf:
            self.live_ms = event.at_ms

    @property
    def peace_ms(self) -> float:
        """Return since when partitions must not wait; infinite: they may."""
        return inf if self.calm is None else max(self.calm.at_ms, self.live_ms)
