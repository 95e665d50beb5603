"""Goal: thousands of partitions in one request hold up nobody, and all of them come into being.

Method: one request for far more than a broker takes up in one turn; it is noted how many it takes
up at a time, and that others have their turn between. Seen to fail: with all taken up at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tests.control.control_world import creation

from holdfast.core.metadata.image import PartitionKey
from holdfast.node.broker.replicas import SLICE
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

COUNT = 4 * SLICE


def held(cluster: SimulatedCluster, broker: int) -> int:
    found = cluster.nodes[broker].broker
    assert found is not None
    return len(found.partitions.held)


def test_partitions_are_taken_up_a_few_at_a_time() -> None:
    async def main() -> None:
        cluster = SimulatedCluster(world)
        await cluster.start()
        client = cluster.client()
        node = cluster.nodes[0].broker
        assert node is not None
        tell, loop = node.partitions._taken_up, asyncio.get_running_loop()
        slices: list[int] = []
        between: list[int] = []

        def taken_up(keys: Iterable[PartitionKey]) -> None:
            slices.append(len(list(keys)))
            loop.call_soon(between.append, len(slices))
            tell(keys)

        node.partitions._taken_up = taken_up
        response = await client.ask(creation("t", partitions=COUNT))
        assert response.topics[0].error_code == 0
        await cluster.until(lambda: held(cluster, 0) == COUNT, "all are held")
        assert slices == [SLICE] * (COUNT // SLICE)
        assert between[: len(slices)] == list(range(1, len(slices) + 1)), "others had their turns"
        await cluster.until(lambda: held(cluster, 1) == held(cluster, 2) == COUNT, "all are held")
        await client.refresh("t")
        for partition in (0, COUNT // 2, COUNT - 1):
            leader = await client.leader("t", partition)
            await client.produce("t", partition, [b"x"], acks=-1, node=leader)

    world = World(1)
    world.run(main)


def test_what_is_deleted_while_it_is_taken_up_is_not_there() -> None:
    """And a topic of the same name, made again at once, is whole."""

    async def main() -> None:
        cluster = SimulatedCluster(world)
        await cluster.start()
        client = cluster.client()
        assert (await client.ask(creation("t", partitions=COUNT))).topics[0].error_code == 0
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
        assert (await client.ask(request)).responses[0].error_code == 0
        assert (await client.ask(creation("t", partitions=3))).topics[0].error_code == 0
        await cluster.until(lambda: all(held(cluster, n) == 3 for n in range(3)), "the new three")
        await asyncio.sleep(5)
        assert [held(cluster, n) for n in range(3)] == [3, 3, 3]
        client.forget()
        await client.refresh("t")
        leader = await client.leader("t", 0)
        assert await client.produce("t", 0, [b"x"], acks=-1, node=leader) == 0

    world = World(1)
    world.run(main)
