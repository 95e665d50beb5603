"""Carries out a plan's events on a simulated cluster, and puts everything right in the end.

Owns which nodes are down on purpose, and for how long; whoever exits by itself is started again, as
an init system does. An event that can't be carried out when its time has come (its target is down
already) is passed over, and counted as that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from holdfast.testing.ground.links import Weather
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.testing.simulation.clients import History
from holdfast.testing.simulation.groups.group_work import GroupWork
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.oracle import Oracle
from holdfast.testing.simulation.plan import Event, Plan
from holdfast.testing.simulation.truth import POWER_CUT, WIPED
from holdfast.testing.simulation.voting import Roll

_LOOK_S = 0.25
_RESTART_S = 1.0  # what an init system waits before it starts a process again
_STOP_S = 40.0  # a clean stop that takes longer ends with SIGKILL

_WAIT_S = 3.0  # for the moment at which to strike

_STOPPING = ("stop", "unregister_broker")  # events in whose middle a process is half stopped

Perform = Callable[["Conductor", Event], Awaitable[bool]]
Strike = Callable[["Conductor", Event, int], Awaitable[bool]]  # an event's node is given, too
Unless = Callable[["Conductor", int], bool]  # whether a node is to be passed over


def held(strike: Strike, *, unless: Unless | None = None) -> Perform:
    """Take the event's node, strike it, and release it when the event's time is over."""

    async def perform(hand: Conductor, event: Event) -> bool:
        node = hand.take(event.target, event, unless=unless)
        if node is None:
            return False
        struck = await strike(hand, event, node)
        await asyncio.sleep(event.seconds)
        hand.release(node)
        return struck

    return perform


class Conductor:
    """The hand that does it all."""

    def __init__(
        self, plan: Plan, cluster: SimulatedCluster, oracle: Oracle, history: History
    ) -> None:
        self.plan: Final = plan
        self.history: Final = history  # for the judge: what an operator asks to be deleted
        self.cluster: Final = cluster
        self.oracle: Final = oracle
        self.roll: Final = Roll(cluster)
        self.groups: GroupWork | None = None  # where the plan has some
        self.counts: Counter[str] = Counter()
        self.log: list[str] = []  # what was done, with its time
        self.held: dict[int, str] = {}  # node -> the event that keeps it down, or is at it
        self.links: Counter[tuple[str, str]] = Counter()  # how many events have a link cut
        self.topics: dict[str, int] = {}  # made by events: name -> partitions
        self.throttled: Counter[str] = Counter()  # by topic, events that lifted no throttle yet
        self.replaced: dict[int, None] = {}  # nodes whose disks were replaced by empty ones
        self._tasks: list[asyncio.Task[None]] = []
        self._snapshots: dict[int, object] = {}  # node -> the newest that it had
        self._loads: dict[object, int] = {}  # a broker's observer -> the snapshots it has loaded

    # -- the run -------------------------------------------------------------------------------

    def start(self, table: dict[str, Perform]) -> None:
        """Begin: each event at its time, counted from now."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._tasks += [
            loop.create_task(self._perform(event, began, table[event.kind]))
            for event in self.plan.events
        ]
        self._tasks.append(loop.create_task(self._keep_running()))

    async def _perform(self, event: Event, began: float, perform: Perform) -> None:
        await asyncio.sleep(max(0.0, began + event.at - asyncio.get_running_loop().time()))
        self.note(f"begins: {event}")
        done = await perform(self, event)
        self.counts[event.kind if done else f"{event.kind} passed over"] += 1

    def note(self, text: str) -> None:
        self.log.append(f"{asyncio.get_running_loop().time():9.3f} {text}")
        self.cluster.world.trace.fold("event", text)

    async def _keep_running(self) -> None:
        """Start again whoever gave up by himself."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for node in self.nodes:
                self._look_at(node)
                if node in self.held or self.cluster.is_up(node):
                    continue
                self.note(f"node {node} exited by itself: {self.cluster.exits[-1:]}")
                self.counts["exits by themselves"] += 1
                self.held[node] = "init"
                self.oracle.died(node)
                self._tasks.append(
                    asyncio.get_running_loop().create_task(self._start_later(node, _RESTART_S))
                )

    def _look_at(self, node: int) -> None:
        """Whether a process has died of its own mistake; and what it has opened, it has."""
        failure = self.cluster.failure(node)
        if failure is not None:
            self.oracle.fail(Invariant.NODES_LIVE, f"node {node}: {failure!r}")
        made = self.cluster.nodes.get(node)
        if made is not None and made.broker is not None and self.cluster.is_ready(node):
            self.oracle.metadata.compare(node, made.broker.image)
            observer = made.broker.observer
            loads = observer.snapshots_loaded
            self.counts["snapshots loaded"] += loads - self._loads.get(observer, 0)
            self._loads[observer] = loads
        store = None if made is None or made.controller is None else made.controller.snapshots
        if store is not None and store.latest is not None:
            self.counts["snapshots written"] += self._snapshots.get(node) != store.latest
            self._snapshots[node] = store.latest

    async def _start_later(self, node: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.release(node)

    async def heal(self) -> None:
        """End every event now, mend everything, and start all but the plan's broken minority."""
        self.close()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        self._tasks.clear()
        world = self.cluster.world
        world.fabric.heal_all()
        world.fabric.weather = Weather(delay_us=self.plan.delay_us)
        for one in self.names:
            for other in self.names:
                world.fabric.change_weather(one, other, None)
        world.provocations.stop()
        broken = {self.resolve(target) for target in self.plan.broken}
        for node in self.nodes:
            machine = self.cluster.machine(node)
            machine.resume()
            machine.disk.heal()
            self.oracle.faults.healed(node, up=self.cluster.is_up(node))
            machine.disk.capacity_bytes = None
            machine.slow_disk()
            machine.drift_clock(0)
            if node in broken:
                if self.cluster.is_up(node):
                    self.kill(node)
                self.held[node] = "broken"
            elif not self.cluster.is_up(node):
                self.oracle.died(node)
                self.release(node)
            elif self._has_lost_a_disk(node) or self.held.get(node) in _STOPPING:
                self.kill(node)
                self.release(node)
            else:
                self.held.pop(node, None)
        self._tasks.append(asyncio.get_running_loop().create_task(self._keep_running()))
        self.note("all healed but " + (", ".join(self.plan.broken) or "nobody"))

    def _has_lost_a_disk(self, node: int) -> bool:
        """Serving on without a log directory, until a technician starts it anew."""
        made = self.cluster.nodes.get(node)
        return made is None or any(not each.online for each in made.directories.directories)

    def revive(self) -> None:
        """Start the broken minority as well."""
        for node in self.nodes:
            if self.held.get(node) == "broken":
                self.release(node)

    def close(self) -> None:
        """Cancel every event, wherever it is."""
        for task in self._tasks:
            task.cancel()

    # -- nodes ---------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[int]:
        return list(dict.fromkeys([*self.cluster.brokers, *self.cluster.controllers]))

    @property
    def names(self) -> list[str]:
        return [*(self.cluster.machine(node).name for node in self.nodes), "client"]

    def resolve(self, target: str) -> int | None:
        """Which node an event means; None: there is none at present."""
        kind, _, name = target.partition(":")
        if kind == "broker":
            return self.cluster.brokers[int(name) % len(self.cluster.brokers)]
        if kind == "controller":
            return self.cluster.controllers[int(name) % len(self.cluster.controllers)]
        if kind == "active":
            return self.cluster.active_controller()
        topic, _, partition = name.partition("/")
        key = self.oracle.metadata.find(topic, int(partition))
        if key is None:
            return None
        state = self.oracle.metadata.partitions[key]
        if kind == "leader":
            return state.leader if state.leader >= 0 else None
        return next((node for node in state.isr if node != state.leader), None)

    def is_voter(self, node: int) -> bool:
        return node in self.cluster.controllers

    def has_not_begun(self, node: int) -> bool:
        """Whether there is nothing yet that could be asked to stop."""
        return self.cluster.nodes.get(node) is None

    def take(self, target: str, event: Event, *, unless: Unless | None = None) -> int | None:
        """Resolve a node that is up and that no other event is at; it is this event's then.

        None, too, when `unless` is true of it.
        """
        node = self.resolve(target)
        if (
            node is None
            or node in self.held
            or not self.cluster.is_up(node)
            or (unless is not None and unless(self, node))
        ):
            return None
        self.held[node] = event.kind
        return node

    def release(self, node: int) -> None:
        """Let a node go: its process is started, if it is dead."""
        self.held.pop(node, None)
        if not self.cluster.is_up(node):
            self.cluster.start_node(node)

    def start_held(self, node: int) -> None:
        """Start a node for an event that goes on with it."""
        kind = self.held[node]
        self.release(node)
        self.held[node] = kind

    def kill(self, node: int) -> None:
        self.oracle.died(node)
        self.cluster.crash(node)

    def power_cut(self, node: int, *, torn: bool) -> None:
        self.oracle.died(node, POWER_CUT)
        self.cluster.power_cut(node, torn=torn)
        self.counts["machines without power"] += 1

    async def power_cut_in_job(self, node: int, part: str, after: int, *, torn: bool) -> bool:
        """Cut the power in the middle of what a job does to files with `part` in their paths.

        False: no job came to touch one in time, and the power was cut at some moment.
        """
        cut = partial(self.power_cut, node, torn=torn)
        struck = await self._lie_in_wait(node, part, cut, after=after, in_job=True)
        if not struck and self.cluster.is_up(node):
            cut()
        return struck

    async def kill_at(self, node: int, part: str, seconds: float) -> bool:
        """Kill it so long after it has begun to touch a file with `part` in its path.

        False: it did not come to that in time, and was killed at some moment.
        """
        struck = await self._lie_in_wait(node, part, lambda: None)
        if struck:
            await asyncio.sleep(seconds)
        if self.cluster.is_up(node):
            self.kill(node)
        return struck

    async def _lie_in_wait(
        self,
        node: int,
        part: str,
        strike: Callable[[], None],
        *,
        after: int = 0,
        in_job: bool = False,
    ) -> bool:
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def act() -> None:
            strike()
            if not came.done():
                came.set_result(None)

        machine = self.cluster.machine(node)
        machine.lie_in_wait(part, act, after=after, in_job=in_job)
        try:
            await asyncio.wait([came], timeout=_WAIT_S)
        finally:
            machine.stand_down()
        return came.done()

    def wipe(self, node: int) -> None:
        self.replaced[node] = None
        self.oracle.died(node, WIPED)
        if self.cluster.is_up(node):
            self.cluster.crash(node)
        self.cluster.machine(node).wipe_disk()

    async def stop(self, node: int) -> bool:
        """Stop a node as SIGTERM does. False: it took so long that it was killed."""
        self.oracle.stopping.add(node)
        try:
            await asyncio.wait_for(self.cluster.stop(node), _STOP_S)
        except TimeoutError:
            if self.cluster.is_up(node):
                self.kill(node)
            return False
        self.oracle.died(node)
        return True

    # -- links ---------------------------------------------------------------------------------

    def cut(self, *links: tuple[str, str]) -> None:
        for link in links:
            self.links[link] += 1
            self.cluster.world.fabric.cut(*link)

    def mend(self, *links: tuple[str, str]) -> None:
        """Take back one `cut`; a link is whole when all have been."""
        for link in links:
            self.links[link] -= 1
            if not self.links[link]:
                self.cluster.world.fabric.heal(*link)
