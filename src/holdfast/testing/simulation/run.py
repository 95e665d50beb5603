"""One run of one plan: safety under faults, then healing and liveness, then the judge's word.

Owns the phases, and how a failing plan is made smaller: fewer events, while the same invariant
still breaks (delta debugging). `run_plan` returns an `Outcome` whatever happens; it raises for
nothing that the simulated cluster does.
"""

from __future__ import annotations

import asyncio
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Final

from holdfast.config.key import ConfigError
from holdfast.judge.history import Delivered, Refused, Unknown
from holdfast.testing.ground.links import Weather
from holdfast.testing.ground.loop import SimulationError, UnhandledError
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_client import AnswerError
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.testing.simulation import verdict
from holdfast.testing.simulation.admin import elect, lift_throttles
from holdfast.testing.simulation.conductor import Conductor
from holdfast.testing.simulation.drawing import GROUPS, draw_plan
from holdfast.testing.simulation.faults import KINDS
from holdfast.testing.simulation.groups.group_checks import GroupChecks
from holdfast.testing.simulation.groups.group_oracle import GroupOracle
from holdfast.testing.simulation.groups.group_work import GroupWork
from holdfast.testing.simulation.invariants import JUDGE, Invariant
from holdfast.testing.simulation.liveness import can_acknowledge, waiting
from holdfast.testing.simulation.oracle import Oracle, Violation
from holdfast.testing.simulation.plan import CLASSIC, CONSUMER, Event, Plan
from holdfast.testing.simulation.watch import WatchedLog
from holdfast.testing.simulation.workload import STOP_S, Workload
from holdfast.wire.administration import Election
from holdfast.wire.well_known import ELIGIBLE_LEADER_REPLICAS

_SETTLE_S: Final = 90.0  # within which all must be well again
_CALM_S: Final = 8.0  # of work on the healed cluster
_LOOK_S: Final = 0.2
_LOST: Final = Event(at=0.0, kind="lost")
# What futures end with that a process waited for when it was killed.
_OF_THE_DEAD: Final = (
    "StorageError", "ControllerUnavailableError", "ConnectionError", "ConnectionResetError",
    "TimeoutError", "OSError",
)  # fmt: skip
_LAST_LINES: Final = 25
_TRIES_MAX: Final = 400  # runs in search of a smaller plan


@dataclass(slots=True)
class Outcome:
    """What came of one run."""

    plan: Plan
    violation: Violation | None = None
    digest: str = ""
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    last: Sequence[str] = ()  # what was done last, and the last of the trace
    trace: Sequence[str] = ()

    @property
    def is_clean(self) -> bool:
        return self.violation is None


def run_plan(plan: Plan, *, trace_lines: int = 0) -> Outcome:
    """Run it, in virtual time."""
    if plan.call_us:
        _rehearse()
    outcome = Outcome(plan)
    began = time.process_time()
    world = World(plan.seed)
    stage = _Stage(plan, world, outcome)
    try:
        world.run(stage.play)
    except UnhandledError as error:
        _take_note(outcome, error, world)
    except (SimulationError, AssertionError, OSError, AnswerError, ConfigError) as error:
        notes = "\n".join(getattr(error, "__notes__", ()))
        where = "".join(traceback.format_exception(error))[-3000:]
        if outcome.violation is None:
            outcome.violation = Violation(
                f"the simulation runs to its end ({type(error).__name__})",
                f"{error}\n{notes}\n{where}",
                world.loop.time(),
            )
    outcome.virtual_s = world.loop.time()
    outcome.digest = world.trace.digest
    outcome.cpu_s = time.process_time() - began
    last = world.trace.last()
    outcome.last = [*stage.log[-_LAST_LINES:], *last[-_LAST_LINES:]]
    if trace_lines:
        outcome.trace = [*stage.log, *last[-trace_lines:]]
    return outcome


@cache
def _rehearse() -> None:
    """Run something short first, once in a process: what is looked up or made at its first use
    must not cost the one run that happens to come first.
    """
    plan = replace(draw_plan(0, GROUPS), seconds=6.0, events=(), broken=(), call_us=0.0)
    (first, *_) = plan.groups
    groups = [
        replace(
            first,
            name=protocol,
            members=tuple(replace(each, protocol=protocol, assignor="") for each in first.members),
        )
        for protocol in (CLASSIC, CONSUMER)
    ]
    run_plan(replace(plan, groups=tuple(groups)))


def _take_note(outcome: Outcome, error: UnhandledError, world: World) -> None:
    """What nobody handled is a mistake, but for futures whose owners were killed meanwhile."""
    left = [
        each
        for each in world.loop.failures
        if not any(f"never retrieved: {name}" in each for name in _OF_THE_DEAD)
    ]
    outcome.counts["futures that nobody looked at"] += len(world.loop.failures) - len(left)
    if left and outcome.violation is None:
        outcome.violation = Violation(
            "nothing goes wrong unhandled", "\n".join(left) or str(error), world.loop.time()
        )


def minimise(plan: Plan, invariant: str, *, tell: Callable[[str], None]) -> Plan:
    """Return the smallest plan found that breaks this invariant.

    Events are data, each with an end of its own: leaving one out changes nothing about the others.
    """
    tries = 0

    def breaks(events: Sequence[Event]) -> bool:
        nonlocal tries
        if tries >= _TRIES_MAX:
            return False
        tries += 1
        outcome = run_plan(replace(plan, events=tuple(events)))
        broken = outcome.violation is not None and outcome.violation.invariant == invariant
        if broken:
            tell(f"{len(events)} events still break it ({tries} runs)")
        return broken

    return replace(plan, events=tuple(shrink(plan.events, breaks)))


def shrink(events: Sequence[Event], breaks: Callable[[Sequence[Event]], bool]) -> list[Event]:
    """Drop ever smaller pieces for as long as what is left still breaks."""
    kept = list(events)
    size = max(1, len(kept) // 2)
    while kept:
        before = kept
        for at in reversed(range(0, len(kept), size)):
            fewer = kept[:at] + kept[at + size :]
            if breaks(fewer):
                kept = fewer
        if size == 1 and kept is before:
            break
        size = max(1, size // 2)
    return kept


class _Stage:
    """Everything that one run is made of."""

    def __init__(self, plan: Plan, world: World, outcome: Outcome) -> None:
        self._plan = plan
        self._world = world
        self._outcome = outcome
        self.log: list[str] = []
        self._calm = ""  # while nobody may lose a session to whom nothing is done: when that is
        self._victim = -1  # the one broker that is killed then

    async def play(self) -> None:
        """All phases; the first violation ends them."""
        plan, world = self._plan, self._world
        world.fabric.weather = Weather(delay_us=plan.delay_us)
        if plan.call_us:
            world.loop.charge(plan.call_us)
        if plan.shuffled:
            world.loop.shuffle = random.Random(f"turns/{plan.seed}")
        oracle = self._oracle = Oracle(
            voters=lambda: self._cluster.controllers[: 1 if plan.dynamic else None],
            static=plan.config,
        )
        oracle.metadata.was_fenced = self._fenced
        if plan.groups:
            oracle.groups = GroupOracle(plan, oracle.metadata, oracle.fail, oracle.counts)
        self._cluster = SimulatedCluster(
            world,
            brokers=plan.brokers,
            controllers=plan.controllers,
            combined=plan.combined,
            config=plan.config,
            config_of=self._config_of,
            make_log=lambda node: partial(WatchedLog, oracle=oracle, node=node),
            loaded=oracle.loaded,
            features={ELIGIBLE_LEADER_REPLICAS: 1 if plan.elr else 0},
            dynamic=plan.dynamic,
        )
        self._work = Workload(plan, self._cluster, oracle)
        self._hand = Conductor(plan, self._cluster, oracle, self._work.history)
        if oracle.groups is not None:
            self._hand.groups = GroupWork(plan, self._cluster, oracle.groups)
            self._group_checks = GroupChecks(plan, self._cluster, oracle.groups)
        self.log = self._hand.log
        phases = asyncio.get_running_loop().create_task(self._phases())
        broken = asyncio.get_running_loop().create_task(oracle.broken.wait())
        try:
            await asyncio.wait([phases, broken], return_when=asyncio.FIRST_COMPLETED)
            if phases.done():
                await phases
        finally:
            phases.cancel()
            broken.cancel()
            self._work.cancel()
            self._hand.close()
            self._outcome.violation = oracle.violation
            self._outcome.counts = self._count()

    def _config_of(self, node: int) -> dict[str, str]:
        plan = self._plan
        own = {}
        if node < len(plan.racks):
            own["broker.rack"] = plan.racks[node]
        if plan.log_directories > 1 and node < plan.brokers:
            own["log.dirs"] = ",".join(f"/data{n}" for n in range(plan.log_directories))
        return own

    async def _phases(self) -> None:
        plan, hand = self._plan, self._hand
        await self._cluster.start()
        if plan.dynamic:
            await hand.roll.grow()
        self._calm = "while topics were made"
        await self._work.start()
        if hand.groups is not None:
            await hand.groups.start()
        self._calm = ""
        if plan.provoked:
            self._world.provocations.pick()
        hand.start(KINDS)
        await asyncio.sleep(plan.seconds)
        await hand.heal()
        if hand.groups is not None:
            await hand.groups.heal(partial(can_acknowledge, hand))
        await lift_throttles(hand)
        # Who was cut off until now may lose its session yet: the next heartbeat comes too late.
        await asyncio.sleep(int(plan.config.get("broker.session.timeout.ms", 9_000)) / 1000)
        await self._settle("after healing", drained=False)
        self._calm = "in the calm"
        await asyncio.sleep(_CALM_S)
        if hand.groups is not None:
            await self._group_checks.describe(partial(can_acknowledge, hand))
        self._calm = ""
        if plan.wide:
            await self._lose_one()
        await self._make_topic()
        if plan.broken:
            hand.revive()
            await self._settle("with everybody back", drained=False)
        if hand.groups is not None:
            await hand.groups.stop()
        if late := await self._work.stop():
            self._oracle.fail(Invariant.ALL_ANSWERED, f"{late} wait for {STOP_S} s")
        await self._settle("after the last record", drained=True)
        await self._rescue()
        for topic in plan.topics:
            led = [
                key[1]
                for key, state in self._oracle.metadata.partitions.items()
                if self._oracle.metadata.topics[key[0]] == topic.name and state.leader >= 0
            ]
            await self._work.read_whole(topic.name, led)
        if hand.groups is not None:
            await self._group_checks.last_word(self._oracle.is_led)
        self._judge()

    def _fenced(self, node: int) -> None:
        """Nobody loses a session to work that grows with what there is."""
        if self._calm and node not in self._hand.held and node != self._victim:
            self._oracle.fail(Invariant.SESSIONS_HOLD, f"{self._calm} {node} was fenced")

    async def _lose_one(self) -> None:
        """Kill one broker where there is much to move, and let it come back; do nothing else."""
        hand, metadata = self._hand, self._oracle.metadata
        victim = next(
            (each for each in self._cluster.brokers if hand.take(f"broker:{each}", _LOST)), None
        )
        if victim is None:
            return
        self._victim = victim
        self._calm = f"when broker {victim} was lost"
        hand.kill(victim)
        await self._cluster.until(
            lambda: all(state.leader != victim for state in metadata.partitions.values()),
            "somebody else leads what a lost broker led",
            seconds=_SETTLE_S,
        )
        await asyncio.sleep(_CALM_S)
        self._oracle.counts["brokers lost among many partitions"] += 1
        self._calm = f"when broker {victim} came back"
        hand.release(victim)
        await self._settle("with the lost one back", drained=False)
        self._calm = ""

    async def _settle(self, when: str, *, drained: bool) -> None:
        """Wait until nobody waits any more, within bounds."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        is_read = drained  # then nobody reads any more
        while True:
            found = waiting(self._hand, drained=drained) or ([] if drained else self._stuck(began))
            if not found and not is_read:
                self._expect_reading()
                is_read = True
            if not drained:
                found += [each for reader in self._work.readers for each in reader.behind()]
                found += self._groups_waiting(began)
            if not found:
                self._hand.note(f"all is well {when}")
                self._count_served()
                return
            if loop.time() > began + _SETTLE_S:
                self._oracle.fail(
                    Invariant.WELL_AGAIN,
                    f"{when}, after {_SETTLE_S} s:\n" + "\n".join(found),
                )
                return
            await asyncio.sleep(_LOOK_S)

    async def _rescue(self) -> None:
        """Where all who may lead have lost their disks, an operator elects who is left."""
        client = self._cluster.client("operator")
        for key, state in list(self._oracle.metadata.partitions.items()):
            if state.leader >= 0:
                continue
            topic = self._oracle.metadata.topics[key[0]]
            if all(node in self._hand.replaced for node in state.replicas):
                self._oracle.counts["partitions whose disks were all replaced"] += 1
                if not any(self._holds(node, topic, key[1]) for node in state.replicas):
                    continue  # one may have followed another before that one's turn came
            harmed = self._oracle.faults.harmed | self._hand.replaced.keys()
            if key not in self._oracle.metadata.cleared and harmed.isdisjoint(state.replicas):
                self._oracle.fail(
                    Invariant.SOMEBODY_MAY_LEAD,
                    f"{topic}-{key[1]}: {state}\n{self._oracle.truth(key)}",
                )
            self._oracle.metadata.operator_unclean.add((topic, key[1]))
            self._oracle.counts["partitions rescued by an operator"] += 1
            await client.until(partial(elect, client, topic, key[1], Election.UNCLEAN))
        client.close()
        await self._settle("after the rescue", drained=True)

    def _holds(self, node: int, topic: str, partition: int) -> bool:
        """Whether a broker that lives holds records of a partition."""
        made = self._cluster.nodes.get(node) if self._cluster.is_up(node) else None
        log = None if made is None else made.directories.get(topic, partition)
        return log is not None and log.end > log.start

    def _stuck(self, since: float) -> list[str]:
        """Producers to whom nobody has acknowledged anything since, though somebody could.

        Not those that wait: who gives up what it waits for, and begins anew, waits for ever.
        """
        return [
            f"{runner} was served last at {runner.served_s:.3f} s"
            for runner, one in zip(self._work.producers, self._plan.producers, strict=True)
            if runner.served_s < since and can_acknowledge(self._hand, one.topic, one.partition)
        ]

    def _groups_waiting(self, since: float) -> list[str]:
        """Members and partitions that wait, of groups that are kept where that can be written."""
        work = self._hand.groups
        if work is None:
            return []
        return work.waiting(
            self._oracle.metadata, since=since, is_well=partial(can_acknowledge, self._hand)
        )

    def _count_served(self) -> None:
        """Who was served although some are dead: what `_stuck` waits for must have been asked."""
        if "broken" in self._hand.held.values():
            self._oracle.counts["producers served while a minority was dead"] += sum(
                can_acknowledge(self._hand, one.topic, one.partition)
                for one in self._plan.producers
            )

    def _expect_reading(self) -> None:
        """Have each reader come on, as far as there are leaders who have something."""
        metadata = self._oracle.metadata
        for reader, its in zip(self._work.readers, self._plan.readers, strict=True):
            ends = {}
            for key, state in metadata.partitions.items():
                held = self._oracle.truth(key).replicas.get(state.leader)
                if (
                    metadata.topics[key[0]] == its.topic
                    and held is not None
                    and held.log is not None
                ):
                    ends[key[1]] = held.high_watermark
            reader.expect(ends)

    async def _make_topic(self) -> None:
        with closing(self._cluster.client("last")) as client:
            try:
                await client.create_topic(
                    "last", partitions=2, replication_factor=min(2, self._plan.brokers - 1)
                )
            except (OSError, AnswerError) as error:
                self._oracle.fail(Invariant.TOPIC_MADE, f"{error!r}")

    def _judge(self) -> None:
        judgement, found = self._work.judge()
        counts = self._oracle.counts
        counts["records acknowledged"] += judgement.counts.acknowledged
        counts["records in the end"] += judgement.counts.in_log
        for anomaly in ("lost", "duplicated", "vanished"):
            counts[f"records {anomaly}, as allowed"] += sum(
                number
                for each in judgement.partitions
                for kind, number in each.anomalies.items()
                if kind.value == anomaly
            )
        if found:
            anomalies = sorted({one.anomaly.value for one in found})
            self._oracle.fail(JUDGE + ", ".join(anomalies), verdict.describe(found))

    def _count(self) -> Counter[str]:
        counts = Counter(self._oracle.counts)
        counts.update(self._hand.counts)
        provoked = self._world.provocations.counts
        counts.update({f"provoked: {name}": number for name, number in provoked.items()})
        seen = Counter(type(event) for event in self._work.history.events)
        counts.update(
            {
                "controller elections": len(self._oracle.quorum.leaders),
                "runs in which calls take time": int(self._plan.call_us > 0),
                "runs with hundreds of partitions": int(self._plan.wide > 0),
                "records read from followers": sum(
                    one.from_followers for one in self._work.readers
                ),
                "records read": seen[Delivered],
                "records refused": seen[Refused],
                "records in doubt": seen[Unknown],
            }
        )
        return counts
