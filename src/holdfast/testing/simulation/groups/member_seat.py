"""The place of a member in a plan: its machine, and one life after the other on it.

Owns when a life begins and how it ends. A member that gives up by itself is started again, as an
init system does.
"""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast.clients.group_member.light_member import Phase
from holdfast.testing.ground.loop import VirtualLoop
from holdfast.testing.ground.runtime import Machine
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.testing.simulation.groups.group_oracle import GroupOracle
from holdfast.testing.simulation.groups.member_life import Life
from holdfast.testing.simulation.plan import GroupPlan, MemberPlan

_RESTART_S: Final = 1.5


class Seat:
    """One member of a plan."""

    def __init__(
        self,
        number: int,
        group: GroupPlan,
        plan: MemberPlan,
        cluster: SimulatedCluster,
        oracle: GroupOracle,
    ) -> None:
        self.number: Final = number
        self.group: Final = group
        self.plan: Final = plan
        self.life: Life | None = None
        self.is_taken = False  # an event is at it
        self._cluster: Final = cluster
        self._oracle: Final = oracle
        self._lives = 0
        self._ghost = "", -1
        self.ended = asyncio.Event()  # its present life is over

    @property
    def machine(self) -> Machine:
        return self._cluster.world.machine(f"member-{self.number}")

    @property
    def is_up(self) -> bool:
        process = self.machine.process
        return process is not None and process.alive

    def start(self) -> None:
        """Begin a life, unless there is one."""
        if self.is_up:
            return
        self._lives += 1
        self.ended = asyncio.Event()
        process, runtime = self.machine.begin()
        life = self.life = Life(
            f"member-{self.number}#{self._lives}",
            self.group,
            self.plan,
            runtime,
            [self._cluster.machine(node).name for node in self._cluster.brokers],
            self._oracle,
            self._ghost,
        )
        process.start(self._live(life), name="member")

    async def _live(self, life: Life) -> None:
        await life.run()
        failure = life.light.failure
        if failure is not None:
            self._oracle.counts[f"members that gave up: {failure}"] += 1
        if failure is not None or not self.is_taken:  # or what had it leave is over meanwhile
            loop = VirtualLoop.running()  # of no process: this one ends now
            loop.at(loop.now + _RESTART_S, self._start_again, life)
        self._note_end(life)
        self.machine.exited()
        self.ended.set()

    def _start_again(self, life: Life) -> None:
        if self.life is life and not self.is_taken:
            self.start()

    def _note_end(self, life: Life) -> None:
        light = life.light
        if light.member_id and life.view.last_epoch >= 0:
            self._ghost = light.member_id, life.view.last_epoch

    def kill(self, *, silently: bool) -> None:
        """It dies, and says nothing. `silently`: its machine is without power."""
        life = self.life
        if not self.is_up or life is None:
            return
        self._oracle.leave(life.view)
        self._note_end(life)
        if silently:
            self.machine.power_cut()
        else:
            self.machine.crash()

    def is_stable(self) -> bool:
        return self.is_up and self.life is not None and self.life.light.phase is Phase.STABLE
