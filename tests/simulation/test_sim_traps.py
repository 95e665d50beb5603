"""Replication's known traps, each played out on unmodified nodes.

Goal: each scenario has lost, changed or blocked something in a Kafka-like system once. Method:
three brokers and a controller on the virtual-time loop; links are cut and processes killed at the
one moment that matters; then every replica, offset and answer is looked at. Times are virtual.
Rules: losses.md#jepsen, losses.md#replication-traps, losses.md#the-last-replica-standing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.simulation.promises import Promises

from holdfast.judge.history import Acknowledged
from holdfast.testing.ground.disk import DiskFault, MemoryDisk
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_client import AnswerError, RetryError
from holdfast.testing.simulated_cluster import CONTROLLER, SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from holdfast.wire.well_known import ELIGIBLE_LEADER_REPLICAS

LAG_S = 5  # the cluster's replica.lag.time.max.ms
SESSION_S = 3


class Stage:
    """A cluster with one partition t-0 on brokers 0, 1, 2; broker 0 leads in epoch 0."""

    def __init__(self, world: World, cluster: SimulatedCluster) -> None:
        self.world = world
        self.cluster = cluster
        self.client = cluster.client()

    async def until_isr(self, *brokers: int) -> None:
        await self.cluster.until(
            lambda: sorted(self.cluster.image.partition("t", 0).isr) == sorted(brokers),  # type: ignore[union-attr]
            f"the ISR is {brokers}",
        )

    async def until_leader(self, broker: int) -> None:
        await self.cluster.until(
            lambda: self.cluster.image.partition("t", 0).leader == broker,  # type: ignore[union-attr]
            f"broker {broker} leads",
        )
        self.client.forget()

    async def restart(self, broker: int) -> None:
        self.cluster.start_node(broker)
        await self.cluster.until_ready(broker)

    def cut_brokers(self, broker: int, *others: int) -> None:
        """Cut a broker from others, both ways; clients still reach everybody."""
        for other in others:
            here, there = self.cluster.machine(broker).name, self.cluster.machine(other).name
            self.world.fabric.cut(here, there)
            self.world.fabric.cut(there, here)

    async def produce(self, *values: bytes, acks: int = -1) -> None:
        async def once() -> int:
            leader = await self.client.leader("t", 0)
            return await self.client.produce("t", 0, values, acks=acks, node=leader)

        await self.client.until(once)

    async def values(self) -> list[bytes | None]:
        return [one.value for one in await self.client.read("t", 0)]

    def copies(self) -> list[bytes]:
        """The replicas' bytes up to each one's own end."""
        found = []
        for broker, log in self.cluster.logs("t", 0).items():
            assert log is not None, f"broker {broker} has no replica"
            found.append(self.cluster.bytes_of(broker, "t", 0, log.end))
        return found

    def epoch(self) -> int:
        found = self.cluster.image.partition("t", 0)
        assert found is not None
        return found.leader_epoch


def play(
    scenario: Callable[[Stage], Coroutine[Any, Any, None]], seed: int = 1, *, elr: bool = True
) -> None:
    world = World(seed)

    async def main() -> None:
        cluster = SimulatedCluster(world, features={ELIGIBLE_LEADER_REPLICAS: int(elr)})
        await cluster.start()
        stage = Stage(world, cluster)
        await stage.client.create_topic("t", assignments=[[0, 1, 2]])
        await scenario(stage)

    world.run(main)


def test_leaders_that_wrote_nothing_follow_again() -> None:
    """KAFKA-6361, -15608: each leader of an idle partition leaves an epoch that nobody else has.

    Coming back it must drop that epoch, or it diverges for ever and never joins the ISR.
    """

    async def scenario(stage: Stage) -> None:
        await stage.produce(b"a", b"b")
        for _ in range(3):
            # Cut off, not killed: a start would rebuild the epochs from what was written.
            leader = await stage.client.leader("t", 0)
            others = {0, 1, 2} - {leader}
            stage.cut_brokers(leader, *others, CONTROLLER)
            await stage.until_isr(*others)
            stage.world.fabric.heal_all()
            await stage.until_isr(0, 1, 2)
            stage.client.forget()
        assert stage.epoch() >= 3
        await stage.produce(b"c")
        assert await stage.values() == [b"a", b"b", b"c"]

    play(scenario)


def test_new_leader_enters_its_epoch_before_it_writes() -> None:
    """KIP-279: asked where its own epoch ends, a leader that wrote nothing must know it."""

    async def scenario(stage: Stage) -> None:
        await stage.produce(b"a", b"b")
        stage.cluster.crash(0)
        await stage.until_isr(1, 2)
        epoch = stage.epoch()
        assert epoch == 1
        stage.client.forget()

        async def ask() -> Any:
            leader = await stage.client.leader("t", 0)
            asked = OffsetForLeaderPartition(
                partition=0, current_leader_epoch=epoch, leader_epoch=epoch
            )
            request = OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])]
            )
            response = await stage.client.ask(request, node=leader)
            return response.topics[0].partitions[0]

        answer = await stage.client.until(ask)
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, epoch, 2)

    play(scenario)


def test_what_only_a_cut_off_leader_has_is_dropped_and_never_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """KIP-101, KAFKA-14704: the old leader truncates by epochs, not by its high watermark.

    The answer that says it diverges also carries a high watermark beyond what it keeps; taking
    that would expose records that were never committed, and truncate below it.
    """

    async def scenario(stage: Stage) -> None:
        await stage.produce(b"a", b"b")
        stage.cut_brokers(0, 1, 2, CONTROLLER)
        await stage.client.produce("t", 0, [b"dirty-1"], acks=1, node=0)
        await stage.client.produce("t", 0, [b"dirty-2", b"dirty-3"], acks=1, node=0)
        await stage.until_isr(1, 2)
        stage.client.forget()
        for value in (b"c", b"d", b"e", b"f", b"g"):
            await stage.produce(value)
        old = stage.cluster.nodes[0].directories.get("t", 0)
        assert old is not None
        assert (old.end, old.high_watermark) == (5, 2)
        stage.world.fabric.heal_all()
        await stage.until_isr(0, 1, 2)
        assert await stage.values() == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
        assert len(set(stage.copies())) == 1

    play(scenario)
    assert "below the high watermark" not in caplog.text


def test_one_follower_s_own_suffix_is_dropped_after_an_idle_time() -> None:
    """KAFKA-15510: answers without records must not make a follower forget its last epoch.

    Broker 1 alone has got what broker 0 wrote last; broker 2 is elected.
    """

    async def scenario(stage: Stage) -> None:
        await stage.produce(b"a")
        await asyncio.sleep(3 * SESSION_S)  # many empty answers
        stage.cut_brokers(0, 2)
        await stage.client.produce("t", 0, [b"only on 0 and 1"], acks=1, node=0)
        one = stage.cluster.nodes[1].directories.get("t", 0)
        assert one is not None
        await stage.cluster.until(lambda: one.end == 2, "broker 1 has it")
        await asyncio.sleep(1)  # and has heard nothing new since
        stage.cut_brokers(1, 0, 2, CONTROLLER)
        stage.cluster.crash(0)
        # The session of broker 1 ends too, so that only broker 2 can be elected.
        await stage.until_leader(2)
        await stage.client.produce("t", 0, [b"b"], acks=1, node=2)
        stage.world.fabric.heal_all()
        await stage.restart(0)
        await stage.until_isr(0, 1, 2)
        assert await stage.values() == [b"a", b"b"]
        assert len(set(stage.copies())) == 1

    play(scenario)


def test_under_min_isr_nothing_is_acknowledged_and_nothing_shows() -> None:
    """Strict min ISR, and Jepsen's first finding: a lonely leader commits nothing.

    Without eligible leader replicas; with them one of the others leads at once.
    """

    async def scenario(stage: Stage) -> None:
        await stage.produce(b"a")
        stage.cut_brokers(0, 1, 2)
        await stage.client.produce("t", 0, [b"b"], acks=1, node=0)
        await stage.until_isr(0)
        with pytest.raises(RetryError) as caught:
            await stage.client.produce("t", 0, [b"refused"], acks=-1, node=0)
        assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        await stage.client.produce("t", 0, [b"c"], acks=1, node=0)
        assert await stage.values() == [b"a"], "acks=1 under min ISR stays invisible"

        stage.cluster.crash(0)
        await stage.until_leader(-1)  # the others may lack what was committed: nobody leads
        await stage.restart(0)
        await stage.until_leader(0)
        log = stage.cluster.nodes[0].directories.get("t", 0)
        assert log is not None
        assert (log.end, log.high_watermark <= 1) == (3, True), "there, and not shown"
        stage.world.fabric.heal_all()
        await stage.until_isr(0, 1, 2)
        assert await stage.values() == [b"a", b"b", b"c"]
        assert len(set(stage.copies())) == 1

    play(scenario, elr=False)


def test_broker_with_an_empty_disk_joins_only_when_it_has_all() -> None:
    """KIP-903: a replaced disk under a known broker must not pass for the old replica."""

    async def scenario(stage: Stage) -> None:
        await stage.produce(*(b"%d" % n for n in range(20)))
        for broker in (1, 0):  # a follower, then the leader
            machine = stage.cluster.machine(broker)
            stage.cluster.crash(broker)
            machine.disk = MemoryDisk(f"fresh/{broker}", now_ms=machine.clock.wall_ms)
            await stage.restart(broker)
            await stage.until_isr(0, 1, 2)
            log = stage.cluster.nodes[broker].directories.get("t", 0)
            assert log is not None
            assert log.end == 20
        stage.client.forget()
        assert await stage.values() == [b"%d" % n for n in range(20)]

    play(scenario)


@pytest.mark.parametrize("back_after_s", [0.1, 1, 4])
def test_leader_that_lost_power_does_not_lead_with_less(back_after_s: float) -> None:
    """What it had not synced is gone: back within its session or not, others must lead first."""

    async def scenario(stage: Stage) -> None:
        values = [b"%d" % n for n in range(20)]
        for value in values:
            await stage.produce(value)
        stage.cluster.power_cut(0, torn=True)
        await asyncio.sleep(back_after_s)
        await stage.restart(0)
        await stage.until_isr(0, 1, 2)
        stage.client.forget()
        assert await stage.values() == values
        assert len(set(stage.copies())) == 1

    play(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["full", "failing"])
def test_bad_disk_takes_its_broker_out_and_nobody_else(what: str) -> None:
    """A broker whose only disk fails leaves; what it acknowledged is with the others."""

    async def scenario(stage: Stage) -> None:
        work = Promises(stage.cluster, "w", partitions=3)
        await work.start()
        await asyncio.sleep(1)
        disk = stage.cluster.machine(0).disk
        if what == "full":
            disk.capacity_bytes = 1
        else:
            disk.inject(DiskFault(operations={"append"}, after=5))
        await stage.cluster.until(lambda: bool(stage.cluster.exits), "broker 0 gives up")
        assert stage.cluster.exits[0].startswith("broker-0: log directory /data is offline")
        before = work.acknowledged
        await stage.cluster.until(lambda: work.acknowledged > before + 30, "the others go on")
        machine = stage.cluster.machine(0)
        machine.disk.heal()
        machine.disk.capacity_bytes = None
        await stage.restart(0)
        await stage.until_isr(0, 1, 2)
        await work.stop()
        await work.check()

    play(scenario)


@pytest.mark.slow
def test_whole_cluster_killed_at_once_comes_back() -> None:
    async def scenario(stage: Stage) -> None:
        work = Promises(stage.cluster, "w", partitions=2)
        await work.start()
        await asyncio.sleep(1)
        for node in [CONTROLLER, 0, 1, 2]:
            stage.cluster.crash(node)
        await asyncio.sleep(1)
        for node in [0, 1, 2, CONTROLLER]:
            stage.cluster.start_node(node)
        await stage.cluster.until_ready(0, 1, 2)
        before = work.acknowledged
        await stage.cluster.until(lambda: work.acknowledged > before + 10, "it goes on")
        await work.stop()
        await work.check()

    play(scenario)


@pytest.mark.slow
def test_clean_stops_in_turn_interrupt_nobody() -> None:
    """KAFKA-15021: what leaves in order hands over first; no write waits for a session to end."""

    async def scenario(stage: Stage) -> None:
        work = Promises(stage.cluster, "w", partitions=3)
        await work.start()
        await asyncio.sleep(1)
        for broker in (0, 1, 2):
            stopping = asyncio.get_running_loop().create_task(stage.cluster.stop(broker))
            gap_s = await _longest_gap(work, seconds=2)
            await stopping
            assert gap_s < SESSION_S / 2, f"broker {broker} left {gap_s:.1f} s without an answer"
            await stage.restart(broker)
            await stage.until_isr(0, 1, 2)
            await asyncio.sleep(1)
        await work.stop()
        await work.check()

    play(scenario)


def acknowledged(work: Promises) -> Counter[int]:
    """How many records of each partition have been acknowledged."""
    return Counter(
        event.partition for event in work.history.events if isinstance(event, Acknowledged)
    )


async def _longest_gap(work: Promises, *, seconds: float) -> float:
    """Longest time, in virtual seconds, during which some partition acknowledged nothing."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    last = [loop.time() for _ in work.partitions]
    counts = acknowledged(work)
    longest = 0.0
    while loop.time() < end:
        await asyncio.sleep(0.01)
        now = acknowledged(work)
        for n in work.partitions:
            if now[n] > counts[n]:
                counts[n], last[n] = now[n], loop.time()
            longest = max(longest, loop.time() - last[n])
    return longest


def test_refusals_are_not_taken_for_success() -> None:
    """The kit itself: a write to who doesn't lead is an error, not an acknowledgement."""

    async def scenario(stage: Stage) -> None:
        await stage.client.leader("t", 0)
        with pytest.raises(AnswerError) as caught:
            await stage.client.produce("t", 0, [b"x"], acks=-1, node=1)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await stage.values() == []

    play(scenario)
