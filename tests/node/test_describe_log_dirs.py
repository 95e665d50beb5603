"""Goal: DescribeLogDirs says what lies where. Method: ask a simulated broker for all, for some."""

from __future__ import annotations

from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import DIRECTORY, SimulatedCluster
from holdfast.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)


def shown(result: DescribeLogDirsResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


def test_replicas_and_their_sizes() -> None:
    world = World(1)

    async def main() -> None:
        cluster = SimulatedCluster(world, brokers=1, config={"min.insync.replicas": "1"})
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", assignments=[[0], [0]])
        await client.create_topic("u", assignments=[[0]])
        await client.produce("t", 1, [b"x"], acks=1, node=await client.leader("t", 1))
        log = cluster.logs("t", 1)[0]
        assert log is not None

        (everything,) = (await client.ask(DescribeLogDirsRequest(topics=None), node=0)).results
        assert everything.log_dir == DIRECTORY
        assert everything.error_code == 0
        assert shown(everything) == {("t", 0): 0, ("t", 1): log.size, ("u", 0): 0}
        assert log.size > 0

        some = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=[1, 7])])
        for version in (1, 4):
            (result,) = (await client.ask(some, node=0, version=version)).results
            assert shown(result) == {("t", 1): log.size}
        client.close()

    world.run(main)
