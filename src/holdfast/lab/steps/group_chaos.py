"""Random faults for a group under load: its members, its coordinator, any broker or controller.

One node is down at a time, as the topics' replicas allow; members come and go beside that. Each
kind comes as often as its weight says before the next round of all. Half of them wait until the
group is at work: while it shares its partitions out anew it has nothing to lose, and who hurts it
again and again before it is done proves little. That it comes back to work is checked each time.
All moments come from one generator of random numbers, whose seed is kept.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.lab.group import Group
from holdfast.lab.group_members import Member
from holdfast.lab.parameters import LabError
from holdfast.lab.run import Run
from holdfast.lab.steps.mishaps import expect_running
from holdfast.lab.steps.wants import whole
from holdfast.lab.workload_processes import Worker

TRAFFIC_S = (0.0, 2.0)  # between two deeds
DOWN_S = (0.0, 5.0)  # of a node: sometimes its session ends meanwhile
STILL_SESSIONS = 1.5  # a member stands still for no more of its sessions
OUT_SESSIONS = (1.2, 2.0)  # and for so many, to be thrown out
ALONE_S = 1.0  # a coordinator, before it dies; no session is over in that time
AT_WORK = 0.5  # of all faults
AT_WORK_S = 90.0  # for a group to be at work again, on a slow machine
KILLED_MAX = 3  # members at one instant
LONELY = "coordinator killed, its followers stopped"
THROWN_OUT = "member thrown out in its batch"
NEEDS_WORK = frozenset({LONELY, THROWN_OUT})  # these say nothing of a group that does nothing
END_S = 90.0  # for all replicas to be in sync again, on a slow machine


@dataclass(frozen=True, slots=True)
class Counts:
    """How often each kind of fault was done."""

    done: Counter[str] = field(default_factory=Counter)
    at_work: Counter[str] = field(default_factory=Counter)  # of these: to a group that was at work


class Chaos:
    """What is done to one group."""

    def __init__(
        self,
        group: Group,
        producer: Worker,
        chance: random.Random,
        counts: Counts | None = None,
    ) -> None:
        self._run: Run = group.run
        self._group = group
        self._producer = producer
        self._chance = chance
        self._lives = 0
        self._counts = counts or Counts()
        # What does it, and how often for all others; False: it could not be done just now.
        self._deeds: dict[str, tuple[Callable[[], bool | None], int]] = {
            "broker killed": (self._kill_broker, 2),
            "coordinator killed": (self._kill_coordinator, 3),
            LONELY: (self._kill_lonely_coordinator, 2),
            "controller killed": (self._kill_controller, 1),
            "members killed": (self._kill_members, 4),
            "member stood still": (self._stop_member, 1),
            THROWN_OUT: (self._throw_out, 2),
            "member left": (self._replace_member, 2),
        }

    def start(self, count: int) -> None:
        for _ in range(count):
            self._start_member()
        self._group.wait_shared()

    def last(self, seconds: float) -> None:
        """Do one thing after the other for so long, and wait until nothing is down any more."""
        until_s = time.monotonic() + seconds
        left: list[str] = []
        while time.monotonic() < until_s:
            left = left or self._drawn()
            self._do(left.pop())
        self._run.expect("at the end", whole(self._run.replicas), END_S)
        expect_running(self._run, "at the end")
        self._run.expect_flow(self._producer, "at the end", 30.0)

    def _drawn(self) -> list[str]:
        """Return each kind of fault as often as its weight says, in any order."""
        names = [name for name, (_, weight) in self._deeds.items() for _ in range(weight)]
        return self._chance.sample(names, len(names))

    def _do(self, name: str) -> None:
        deed, _ = self._deeds[name]
        is_at_work = name in NEEDS_WORK or self._chance.random() < AT_WORK
        if is_at_work:
            self._group.expect_progress(f"before {name}", AT_WORK_S)
        else:
            self._run.steady(self._producer, self._chance.uniform(*TRAFFIC_S))
        if deed() is not False:
            self._counts.done[name] += 1
            self._counts.at_work[name] += is_at_work

    # -- nodes -----------------------------------------------------------------------------------

    def _kill_broker(self) -> None:
        self._kill(self._chance.choice(self._run.cluster.broker_ids))

    def _kill_controller(self) -> None:
        self._kill(self._chance.choice(self._run.cluster.controller_ids))

    def _kill_coordinator(self) -> None:
        self._kill(self._coordinator())

    def _kill_lonely_coordinator(self) -> None:
        """Kill it when nobody has what it took last: that it must not have acknowledged."""
        node = self._coordinator()
        others = [each for each in self._run.cluster.broker_ids if each != node]
        self._run.fault("STOP", *others)
        self._run.steady_view(ALONE_S)
        self._kill(node, *others)

    def _coordinator(self) -> int:
        try:
            return self._group.coordinator()
        except LabError:  # it moves just now
            return self._chance.choice(self._run.cluster.broker_ids)

    def _kill(self, node: int, *stopped: int) -> None:
        """Kill a node, let those go on that were stopped, and start it again."""
        self._run.fault("KILL", node)
        if stopped:
            self._run.fault("CONT", *stopped)
        self._run.steady(self._producer, self._chance.uniform(*DOWN_S))
        self._run.start_node(node)

    # -- members ---------------------------------------------------------------------------------

    def _start_member(self) -> Member:
        self._lives += 1
        return self._group.start(f"{self._group.name}-{self._lives}")

    def _some(self, most: int) -> list[Member]:
        count = self._chance.randint(1, min(most, len(self._group.members)))
        return self._chance.sample(self._group.members, count)

    def _kill_members(self) -> None:
        victims = self._some(KILLED_MAX)
        self._group.fault("KILL", *victims)
        for _ in victims:
            self._start_member()

    def _stop_member(self) -> None:
        (member,) = self._some(1)
        most_s = STILL_SESSIONS * self._group.session_ms / 1000
        self._group.fault("STOP", member)
        self._run.steady(self._producer, self._chance.uniform(0.0, most_s))
        self._group.fault("CONT", member)

    def _throw_out(self) -> bool:
        """Stop a member in its batch until its session is over: its commit comes too late."""
        owners = [member for member in self._group.members if member.told.begun]
        if not owners:
            return False
        member = self._chance.choice(owners)
        try:
            self._group.hold({member: 1})
        except LabError:  # it has lost what it had
            self._group.let_go(member)
            return False
        self._group.fault("STOP", member)
        still_s = self._chance.uniform(*OUT_SESSIONS) * self._group.session_ms / 1000
        self._run.steady(self._producer, still_s)
        self._group.let_go(member)
        self._group.fault("CONT", member)
        return True

    def _replace_member(self) -> None:
        """Ask one that has joined: a process that has only just begun knows of no signals yet."""
        joined = [member for member in self._group.members if member.told.member]
        if joined:
            self._group.leave(self._chance.choice(joined))
            self._start_member()
