"""Random faults for a group under load: its members, its coordinator, any broker or controller.

One node is down at a time, as the topics' replicas allow; members come and go beside that. All
moments come from one generator of random numbers, whose seed is kept.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

from holdfast.lab.group import Group
from holdfast.lab.group_members import Member
from holdfast.lab.parameters import LabError
from holdfast.lab.run import Run
from holdfast.lab.steps.wants import whole
from holdfast.lab.workload_processes import Worker

TRAFFIC_S = (0.0, 2.0)  # between two deeds
DOWN_S = (0.0, 5.0)  # of a node: sometimes its session ends meanwhile
STILL_SESSIONS = 1.5  # a member stands still for no more of its sessions
KILLED_MAX = 3  # members at one instant
END_S = 90.0  # for all replicas to be in sync again, on a slow machine


class Chaos:
    """What is done to one group, and how often each was done."""

    def __init__(self, group: Group, producer: Worker, chance: random.Random) -> None:
        self._run: Run = group.run
        self._group = group
        self._producer = producer
        self._chance = chance
        self._lives = 0
        self.done: Counter[str] = Counter()
        self._deeds: dict[str, tuple[Callable[[], None], int]] = {
            "broker killed": (self._kill_broker, 2),
            "coordinator killed": (self._kill_coordinator, 3),
            "controller killed": (self._kill_controller, 1),
            "members killed": (self._kill_members, 4),
            "member stood still": (self._stop_member, 2),
            "member left": (self._replace_member, 2),
        }

    def start(self, count: int) -> None:
        for _ in range(count):
            self._start_member()
        self._group.wait_shared()

    def last(self, seconds: float) -> None:
        """Do one thing after the other for so long, and wait until nothing is down any more."""
        until_s = time.monotonic() + seconds
        names = list(self._deeds)
        weights = [weight for _, weight in self._deeds.values()]
        while time.monotonic() < until_s:
            self._run.steady(self._producer, self._chance.uniform(*TRAFFIC_S))
            (name,) = self._chance.choices(names, weights)
            self._deeds[name][0]()
            self.done[name] += 1
        self._run.expect("at the end", whole(self._run.replicas), END_S)
        self._run.expect_flow(self._producer, "at the end", 30.0)

    # -- nodes -----------------------------------------------------------------------------------

    def _kill_broker(self) -> None:
        self._kill(self._chance.choice(self._run.cluster.broker_ids))

    def _kill_controller(self) -> None:
        self._kill(self._chance.choice(self._run.cluster.controller_ids))

    def _kill_coordinator(self) -> None:
        try:
            node = self._group.coordinator()
        except LabError:  # it moves just now
            node = self._chance.choice(self._run.cluster.broker_ids)
        self._kill(node)

    def _kill(self, node: int) -> None:
        self._run.fault("KILL", node)
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

    def _replace_member(self) -> None:
        """Ask one that has joined: a process that has only just begun knows of no signals yet."""
        joined = [member for member in self._group.members if member.told.member]
        if joined:
            self._group.leave(self._chance.choice(joined))
            self._start_member()
