"""The last replica standing loses power: who may lead then, and what is lost.

Goal: with eligible leader replicas and min.insync.replicas=2 nothing acknowledged is lost; without
them, or with 1, it is, and the loss is seen. Method: the ISR is shrunk to its leader by cutting the
links to its followers; then its machine loses power and with it all that was not synced. The whole
node runs, on virtual time. Seen to fail: with `_eligible` in `core.controller.elections` returning
nobody the first test loses values; with `lost` left out of
`core.controller.broker_sessions.register` the last takes 0 for whole. Rules:
losses.md#the-last-replica-standing, elections.md#proof-of-a-clean-stop.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.control.control_world import controller

from holdfast.core.metadata.image import NO_LEADER, Partition, RecoveryState
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.records.metadata import PartitionChangeRecord
from holdfast.wire.well_known import ELIGIBLE_LEADER_REPLICAS

ALL = (0, 1, 2)


class Stand:
    """A cluster with one partition t-0 on brokers 0, 1, 2, which 0 leads."""

    def __init__(self, *, elr: bool, min_insync: int) -> None:
        self.world = World(1)
        self.elr, self.min_insync = elr, min_insync
        self.acknowledged: list[bytes] = []
        self.recovering = False

    def play(self) -> list[bytes | None]:
        """Shrink, cut the power, come back. What is there afterwards."""
        found: list[bytes | None] = []

        async def main() -> None:
            self.cluster = SimulatedCluster(
                self.world,
                config={"min.insync.replicas": str(self.min_insync)},
                features={ELIGIBLE_LEADER_REPLICAS: int(self.elr)},
            )
            await self.cluster.start()
            self.client = self.cluster.client()
            await self.client.create_topic("t", assignments=[list(ALL)])
            await self.shrink()
            await self.lose_power()
            found.extend(one.value for one in await self.client.read("t", 0))

        self.world.run(main)
        return found

    @property
    def partition(self) -> Partition:
        found = self.cluster.image.partition("t", 0)
        assert found is not None
        return found

    async def produce(self, count: int) -> None:
        for _ in range(count):
            value = b"%d" % len(self.acknowledged)
            await self.client.until(lambda value=value: self._send(value))  # type: ignore[misc]
            self.acknowledged.append(value)

    async def _send(self, value: bytes) -> int:
        leader = await self.client.leader("t", 0)
        return await self.client.produce("t", 0, [value], acks=-1, node=leader)

    async def shrink(self) -> None:
        await self.produce(10)
        for other in (1, 2):
            self.world.fabric.cut("broker-0", f"broker-{other}")
            self.world.fabric.cut(f"broker-{other}", "broker-0")
        # Written by the leader alone, so that the others lag; nobody is promised anything.
        await self.client.produce("t", 0, [b"alone"], acks=1, node=0)
        await self.cluster.until(lambda: self.partition.isr == (0,), "0 is alone in the ISR")
        if self.min_insync == 1:
            await self.produce(5)  # nobody else has these

    async def lose_power(self) -> None:
        self.cluster.power_cut(0)
        self.world.fabric.heal_all()
        await self.cluster.until(lambda: self.partition.leader != 0, "0 is fenced")
        self.cluster.start_node(0)
        while self.partition.leader == NO_LEADER:
            await asyncio.sleep(0.0001)  # a leader says very soon that it has recovered
        await self.cluster.until_ready(*ALL)
        await self.cluster.until(lambda: sorted(self.partition.isr) == list(ALL), "all in sync")
        assert self.partition.recovery_state is RecoveryState.RECOVERED
        await asyncio.sleep(1)
        self.recovering = marked_as_recovering(self.cluster)
        self.client.forget()


def marked_as_recovering(cluster: SimulatedCluster) -> bool:
    """Whether any leader was ever: it says at once that it has recovered, so the log is asked."""
    log = controller(cluster).log
    assert log is not None
    offset, found = log.start, False
    while offset < log.committed:
        for batch in log.read_committed(offset, 1 << 20):
            offset = batch.last_offset + 1
            found |= any(
                isinstance(record, PartitionChangeRecord)
                and record.leader_recovery_state == RecoveryState.RECOVERING
                for record in batch.records
            )
    return found


def test_with_eligible_replicas_nothing_is_lost() -> None:
    stand = Stand(elr=True, min_insync=2)
    assert stand.play() == stand.acknowledged
    assert not stand.recovering, "the election was clean"


@pytest.mark.parametrize("min_insync", [1, 2])
def test_without_them_the_loss_is_seen(min_insync: int) -> None:
    """The last member of the ISR leads again with what its disk kept, and the others truncate."""
    stand = Stand(elr=False, min_insync=min_insync)
    found = stand.play()
    assert set(stand.acknowledged) - set(found)
    assert not stand.recovering, "nobody is told"


def test_with_min_isr_1_the_loss_is_known() -> None:
    """Nobody else had it, so it is lost; but the leader is marked: it was elected uncleanly."""
    stand = Stand(elr=True, min_insync=1)
    found = stand.play()
    assert set(stand.acknowledged) - set(found)
    assert stand.recovering


def test_a_leader_says_that_it_has_recovered_although_nobody_joins() -> None:
    """Its only replica crashes and leads again, uncleanly; that does not stay written for ever."""
    world = World(1)

    async def main() -> None:
        cluster = SimulatedCluster(world, brokers=2, config={"min.insync.replicas": "1"})
        await cluster.start()
        await cluster.client().create_topic("t", assignments=[[0]])

        def at() -> Partition:
            found = cluster.image.partition("t", 0)
            assert found is not None
            return found

        cluster.crash(0)
        await cluster.until(lambda: at().leader == NO_LEADER, "0 is fenced")
        cluster.start_node(0)
        await cluster.until(lambda: at().leader == 0, "0 leads again")
        await cluster.until(lambda: at().recovery_state is RecoveryState.RECOVERED, "recovered")
        assert at().isr == (0,)

    world.run(main)
