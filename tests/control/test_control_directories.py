"""Goal: the controller knows on which disk a replica lies, and an empty one is never taken for it.

Method: unmodified nodes on virtual time; disks fail, and come back empty. Seen to fail: with
`has_directory` always true, the broker whose disk was replaced leads with nothing at once.
"""

from __future__ import annotations

import asyncio
import errno

import pytest

from holdfast.core.metadata.image import NO_LEADER, UNASSIGNED_DIRECTORY, Partition
from holdfast.testing.ground.disk import DiskFault, MemoryDisk
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_client import ClusterClient
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from holdfast.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from holdfast.wire.messages.unregister_broker import UnregisterBrokerRequest
from holdfast.wire.well_known import ELIGIBLE_LEADER_REPLICAS

UNCLEAN = 1
METADATA = MetadataRequest(topics=[MetadataRequestTopic(name="t")])


def at(cluster: SimulatedCluster, topic: str = "t", index: int = 0) -> Partition:
    found = cluster.image.partition(topic, index)
    assert found is not None
    return found


async def produce(client: ClusterClient, *values: bytes, partition: int = 0) -> None:
    async def once() -> int:
        leader = await client.leader("t", partition)
        return await client.produce("t", partition, values, acks=-1, node=leader)

    await client.until(once)


def replace_disk(cluster: SimulatedCluster, broker: int) -> None:
    machine = cluster.machine(broker)
    machine.disk = MemoryDisk(f"fresh/{broker}", now_ms=machine.clock.wall_ms)


def test_the_controller_learns_where_replicas_lie() -> None:
    """Two directories in each broker, so only the broker knows; also after it has moved nothing."""

    async def main() -> None:
        cluster = SimulatedCluster(world, config={"log.dirs": "/data,/more"})
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, 2]] * 4)
        await produce(client, b"x")

        def told() -> bool:
            return all(
                at(cluster, index=index).directory_of(broker)
                == cluster.nodes[broker].directories.get("t", index).home.directory_id  # type: ignore[union-attr]
                for index in range(4)
                for broker in range(3)
            )

        await cluster.until(told, "every replica's directory is recorded")
        assert len({at(cluster, index=index).directory_of(0) for index in range(4)}) == 2

    world = World(1)
    world.run(main)


@pytest.mark.parametrize("elr", [True, False])
def test_an_empty_disk_in_the_place_of_the_last_one_does_not_lead(elr: bool) -> None:
    """0 alone was in sync. Its disk is replaced: nobody leads until an operator gives up."""

    async def main() -> None:
        cluster = SimulatedCluster(
            world,
            brokers=2,
            config={"min.insync.replicas": "1"},
            features={ELIGIBLE_LEADER_REPLICAS: int(elr)},
        )
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1]])
        await produce(client, b"both")
        cluster.crash(1)
        await cluster.until(lambda: at(cluster).isr == (0,), "0 is alone")
        await produce(client, b"alone")
        cluster.crash(0)
        cluster.start_node(1)
        await cluster.until_ready(1)
        await cluster.until(lambda: at(cluster).leader == NO_LEADER, "nobody leads")
        replace_disk(cluster, 0)
        cluster.start_node(0)
        await cluster.until_ready(0)
        await asyncio.sleep(10)
        assert at(cluster).leader == NO_LEADER, "neither the empty disk nor the old replica"
        request = ElectLeadersRequest(
            election_type=UNCLEAN,
            topic_partitions=[TopicPartitions(topic="t", partitions=[0])],
            timeout_ms=5000,
        )
        client.forget()
        await client.refresh("t")
        assert (await client.ask(request)).error_code == 0
        await cluster.until(lambda: sorted(at(cluster).isr) == [0, 1], "both in sync")
        assert at(cluster).leader == 1, "who has something, not who has nothing"
        client.forget()
        assert [one.value for one in await client.read("t", 0)] == [b"both"]

    world = World(1)
    world.run(main)


def test_an_unregistered_broker_is_gone_until_it_comes_back() -> None:
    async def main() -> None:
        cluster = SimulatedCluster(world)
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, 2]])
        await client.refresh("t")
        cluster.crash(2)
        response = await client.ask(UnregisterBrokerRequest(broker_id=2), node=0)
        assert response.error_code == 0
        assert "1 replicas are still assigned" in response.error_message
        await cluster.until(lambda: 2 not in cluster.image.brokers, "2 is unregistered")
        assert 2 not in at(cluster).isr
        cluster.start_node(2)
        await cluster.until_ready(2)
        await cluster.until(lambda: sorted(at(cluster).isr) == [0, 1, 2], "2 is back")
        assert (await client.ask(UnregisterBrokerRequest(broker_id=9), node=0)).error_code != 0
        # One that runs comes back by itself, and nothing is lost by it.
        await produce(client, b"x")
        assert (await client.ask(UnregisterBrokerRequest(broker_id=1), node=0)).error_code == 0
        await cluster.until(lambda: sorted(at(cluster).isr) == [0, 1, 2], "1 is back")
        client.forget()
        await produce(client, b"y")
        assert [one.value for one in await client.read("t", 0)] == [b"x", b"y"]

    world = World(1)
    world.run(main)


def test_the_only_broker_that_is_unregistered_still_says_where_it_is() -> None:
    """Seen to fail: it told of no broker, and librdkafka, once told so, asks nobody any more."""

    async def main() -> None:
        cluster = SimulatedCluster(world, brokers=1)
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", assignments=[[0]])
        await client.refresh("t")
        assert (await client.ask(UnregisterBrokerRequest(broker_id=0), node=0)).error_code == 0
        told: list[MetadataResponse] = []
        while not told or told[-1].topics[0].partitions[0].leader_id == 0:
            told.append(await client.ask(METADATA, node=0))
        while told[-1].topics[0].partitions[0].leader_id != 0:
            told.append(await client.ask(METADATA, node=0))
        address = {(each.node_id, each.host, each.port) for one in told for each in one.brokers}
        assert {len(one.brokers) for one in told} == {len(address)} == {1}

    world = World(1)
    world.run(main)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_followers_lost_directory_does_not_hold_acknowledgements_up(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its broker lives on with its other directory, and is not waited for as one that comes back.

    Seen to fail: acks=all stood still for replica.lag.time.max.ms, and the requests timed out. And
    each of its replicas wrote the same line.
    """

    async def main() -> None:
        cluster = SimulatedCluster(world, config={"log.dirs": "/data,/more"})
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, 2]] * 20)
        await produce(client, b"x")
        await cluster.until(
            lambda: all(
                at(cluster).directory_of(each) != UNASSIGNED_DIRECTORY for each in range(3)
            ),
            "every replica's directory is recorded",
        )
        log = cluster.nodes[1].directories.get("t", 0)
        assert log is not None
        fault = DiskFault(operations={"append"}, prefix=f"{log.home.path}/", code=code)
        cluster.machine(1).disk.inject(fault)
        await asyncio.gather(
            *(client.produce("t", index, [b"y"], acks=-1, node=0) for index in range(20))
        )
        assert fault.struck
        isrs = [at(cluster, index=index).isr for index in range(20)]
        assert sorted(isrs) == [(0, 1, 2)] * 10 + [(0, 2)] * 10, "its other directory serves on"
        assert len([each for each in caplog.messages if "offline" in each]) == 1

    world = World(1)
    world.run(main)


def test_a_broker_with_no_directory_left_for_topics_ends() -> None:
    """Whatever else of its disks works: it can hold nothing, and others have to lead."""

    async def main() -> None:
        cluster = SimulatedCluster(
            world, config={"log.dirs": "/data", "metadata.log.dir": "/metadata"}
        )
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, 2]])
        await produce(client, b"x")
        fault = DiskFault(operations={"append"}, prefix="/data/", code=errno.ENOSPC)
        cluster.machine(0).disk.inject(fault)
        await produce(client, b"y")
        await cluster.until(lambda: bool(cluster.exits), "broker 0 ends")
        assert "log directory /data is offline: the disk is full" in cluster.exits[0]
        await cluster.until(lambda: not cluster.is_up(0), "broker 0 is down")
        await cluster.until(lambda: sorted(at(cluster).isr) == [1, 2], "the others go on")
        cluster.machine(0).disk.heal()
        cluster.start_node(0)
        await cluster.until(lambda: sorted(at(cluster).isr) == [0, 1, 2], "it is back")
        client.forget()
        assert [one.value for one in await client.read("t", 0)] == [b"x", b"y"]

    world = World(1)
    world.run(main)
