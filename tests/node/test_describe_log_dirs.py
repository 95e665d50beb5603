"""Goal: DescribeLogDirs says what lies where. Method: ask a simulated broker for all, for some."""

from __future__ import annotations

import pytest

from holdfast.testing.ground.disk import DiskFault
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_client import RetryError
from holdfast.testing.simulated_cluster import DIRECTORY, SimulatedCluster
from holdfast.wire.errors import ErrorCode
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


def test_room_is_told_where_the_disk_works() -> None:
    world = World(1)

    async def main() -> None:
        cluster = SimulatedCluster(
            world,
            brokers=1,
            config={"min.insync.replicas": "1", "log.dirs": "/data,/more"},
        )
        await cluster.start()
        client = cluster.client()
        cluster.machine(0).disk.capacity_bytes = 10_000
        await client.create_topic("t", assignments=[[0], [0]])
        broken = DiskFault(operations={"append"}, prefix="/more/")
        cluster.machine(0).disk.inject(broken)
        with pytest.raises(RetryError, match="KAFKA_STORAGE_ERROR"):
            await client.produce("t", 1, [b"x"], acks=1, node=0)
        works, fails = (await client.ask(DescribeLogDirsRequest(topics=None), node=0)).results
        assert works.total_bytes == 10_000
        assert 0 < works.usable_bytes < 10_000
        assert fails.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (fails.log_dir, fails.total_bytes, fails.usable_bytes) == ("/more", -1, -1)
        older = await client.ask(DescribeLogDirsRequest(topics=None), node=0, version=3)
        assert older.results[0].total_bytes == -1
        client.close()

    world.run(main)
