"""Goal: consumers read from the replica in their rack, and see what is committed there only.

Method: three brokers in three racks on virtual time, Kafka's RackAwareReplicaSelector, fetches as a
consumer sends them. Seen to fail: with replicas outside of the ISR, or behind the offset, offered;
with followers that refuse consumers; and with followers that hear of a new high watermark only when
their fetch expires. Rules: fetch.md#nearest-replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.config.node_keys import RACK_AWARE
from holdfast.core.metadata.image import Partition
from holdfast.core.replica.read_replica import preferred_read_replica
from holdfast.core.replica.replication import Follower, Leader
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_client import ClusterClient
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.batch import batches, read_records
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import fetch as wire

RACKS = ("a", "b", "c")
Story = Callable[[SimulatedCluster, ClusterClient], Coroutine[Any, Any, None]]


def play(story: Story, *, seed: int = 1, selector: str = RACK_AWARE) -> None:
    world = World(seed)

    async def main() -> None:
        cluster = SimulatedCluster(
            world,
            brokers=3,
            config={"replica.selector.class": selector},
            config_of=lambda node: {"broker.rack": RACKS[node]} if node < len(RACKS) else {},
        )
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, 2]])
        await write(client, b"1")
        await story(cluster, client)
        client.close()

    world.run(main)


async def write(client: ClusterClient, *values: bytes, acks: int = -1) -> None:
    async def once() -> int:
        leader = await client.leader("t", 0)
        return await client.produce("t", 0, values, acks=acks, node=leader)

    await client.until(once)


async def fetch(
    client: ClusterClient,
    node: int,
    offset: int,
    *,
    rack: str = "",
    wait_ms: int = 0,
    version: int = 17,
    bytes_min: int = 1,
) -> wire.PartitionData:
    asked = wire.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = wire.FetchTopic(topic_id=client.topic_ids["t"], partitions=[asked])
    if version < 13:
        topic = wire.FetchTopic(topic="t", partitions=[asked])
    request = wire.FetchRequest(
        max_wait_ms=wait_ms, min_bytes=bytes_min, max_bytes=1 << 20, rack_id=rack, topics=[topic]
    )
    response = await client.ask(request, node=node, version=version)
    data: wire.PartitionData = response.responses[0].partitions[0]
    return data


def values(data: wire.PartitionData) -> list[bytes | None]:
    view = memoryview(data.records or b"")
    return [one.value for at, _ in batches(view) for one in read_records(view[at:])]


@pytest.mark.parametrize(
    ("rack", "preferred"), [("a", -1), ("b", 1), ("c", 2), ("d", -1), ("", -1)]
)
def test_the_leader_sends_a_consumer_to_its_rack(rack: str, preferred: int) -> None:
    async def story(_: SimulatedCluster, client: ClusterClient) -> None:
        data = await fetch(client, 0, 0, rack=rack, wait_ms=500)
        assert data.error_code == ErrorCode.NONE
        assert data.preferred_read_replica == preferred
        assert values(data) == ([] if preferred != -1 else [b"1"])

    play(story)


def test_without_the_selector_a_rack_means_nothing() -> None:
    async def story(_: SimulatedCluster, client: ClusterClient) -> None:
        data = await fetch(client, 0, 0, rack="b")
        assert data.preferred_read_replica == -1
        assert values(data) == [b"1"]

    play(story, selector="")


def test_a_follower_serves_what_is_committed_and_hears_of_it_at_once() -> None:
    async def story(_: SimulatedCluster, client: ClusterClient) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        waiting = asyncio.ensure_future(fetch(client, 1, 1, rack="b", wait_ms=5000))
        await write(client, b"2")
        assert values(await waiting) == [b"2"]
        assert loop.time() - before < 0.2  # not replica.fetch.wait.max.ms, 500: virtual time
        assert values(await fetch(client, 1, 0, rack="b")) == [b"1", b"2"]

    play(story)


def test_a_follower_keeps_back_what_is_not_committed() -> None:
    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        cluster.crash(2)  # in the ISR still: nothing is committed until it is out
        await write(client, b"2", acks=1)
        log = cluster.logs("t", 0)[1]
        assert log is not None
        await cluster.until(lambda: log.end == 2, "broker 1 has it")
        data = await fetch(client, 1, 1, rack="b")
        assert data.error_code == ErrorCode.NONE
        assert values(data) == []
        assert data.high_watermark == 1

    play(story)


def test_a_follower_refuses_what_it_does_not_have_and_old_clients() -> None:
    async def story(_: SimulatedCluster, client: ClusterClient) -> None:
        beyond = await fetch(client, 1, 5, rack="b")
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        old = await fetch(client, 1, 0, version=10)
        assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(story)


@pytest.mark.parametrize("node", [0, 1])
def test_who_waits_at_a_replica_that_moves_away_is_told_at_once(node: int) -> None:
    """Its log is gone by then, so nothing may be read from it any more."""

    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        other = cluster.client("other")
        other.topic_ids = client.topic_ids
        await other.refresh("t")
        waits = [
            asyncio.ensure_future(fetch(client, node, 0, wait_ms=1900, bytes_min=1000)),
            asyncio.ensure_future(fetch(other, node, 1, wait_ms=1900)),
        ]
        await asyncio.sleep(0.1)
        mover = cluster.client("mover")
        await mover.until(lambda: mover.reassign("t", 0, [2]))
        for data in await asyncio.gather(*waits):
            assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert loop.time() - before < 1
        mover.close()
        other.close()

    play(story)


def test_a_dead_replica_is_not_offered() -> None:
    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        cluster.crash(1)
        await cluster.until(
            lambda: 1 not in cluster.image.partition("t", 0).isr,  # type: ignore[union-attr]
            "it is out of the ISR",
        )
        data = await fetch(client, 0, 0, rack="b")
        assert data.preferred_read_replica == -1
        assert values(data) == [b"1"]

    play(story)


def leading(**followers: Follower) -> Leader:
    """Broker 0 leads; `n1=Follower(...)` is in the ISR, `o1=...` is not."""
    nodes = {int(name[1:]): follower for name, follower in followers.items()}
    isr = (0, *(int(name[1:]) for name in followers if name.startswith("n")))
    decided = Partition(
        topic="t",
        topic_id=bytes(16),
        index=0,
        replicas=(0, *nodes),
        isr=isr,
        leader=0,
        leader_epoch=1,
    )
    leader = Leader.elected(
        decided, min_insync=1, lag_ms_max=1000, log_end=10, high_watermark=5, now_ms=0
    )
    leader.followers = nodes
    return leader


@pytest.mark.parametrize(
    ("offset", "chosen", "followers"),
    [
        (5, 1, {"n1": Follower(log_end=8, log_start=0)}),
        (5, 2, {"n1": Follower(log_end=8, log_start=0), "n2": Follower(log_end=9, log_start=0)}),
        (5, 1, {"n1": Follower(log_end=8, log_start=0), "n2": Follower(log_end=8, log_start=0)}),
        (5, 2, {"n1": Follower(log_end=8, log_start=0, caught_up_ms=1),
                "n2": Follower(log_end=8, log_start=0, caught_up_ms=2)}),
        (9, None, {"n1": Follower(log_end=8, log_start=0)}),
        (2, None, {"n1": Follower(log_end=8, log_start=3)}),
        (5, None, {"o1": Follower(log_end=8, log_start=0)}),
        (0, None, {"n1": Follower()}),
    ],
)  # fmt: skip
def test_the_choice(offset: int, chosen: int | None, followers: dict[str, Follower]) -> None:
    racks = {0: "a", 1: "b", 2: "b"}
    assert preferred_read_replica(leading(**followers), offset, "b", racks.get) == chosen
