"""A broker with two disks loses one of them: the rest of it, and the cluster, must go on.

Goal: what lay on the lost disk is refused with KAFKA_STORAGE_ERROR and never made up anew; all else
is served, and the broker goes on learning what the cluster decides. Method: unmodified nodes on the
virtual-time loop, each with two log directories; every call to one of them fails from some moment.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, get_args

import pytest

from holdfast.testing.ground.disk import DiskFault, MemoryDisk, Operation
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_client import AnswerError, ClusterClient
from holdfast.testing.simulated_cluster import CONTROLLER, SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

LOST = "/more"  # of /data and /more, the second replica of a broker lies here
Story = Callable[[SimulatedCluster, ClusterClient], Coroutine[Any, Any, None]]


def play(story: Story) -> None:
    world = World(1)

    async def main() -> None:
        cluster = SimulatedCluster(world, config={"log.dirs": f"/data,{LOST}"})
        await cluster.start()
        await story(cluster, cluster.client())

    world.run(main)


def lose(cluster: SimulatedCluster, broker: int) -> None:
    every = get_args(Operation)
    cluster.machine(broker).disk.inject(DiskFault(operations=every, prefix=LOST))


async def produce(client: ClusterClient, topic: str, partition: int = 0) -> int:
    """Write one record with acks=all; the offset."""

    async def once() -> int:
        node = await client.leader(topic, partition)
        return await client.produce(topic, partition, [b"x"], acks=-1, node=node)

    return await client.until(once)


async def refusal(client: ClusterClient, topic: str, partition: int) -> ErrorCode:
    """What broker 0, which leads, says to a write."""
    await client.refresh(topic)
    with pytest.raises(AnswerError) as caught:
        await client.produce(topic, partition, [b"x"], acks=-1, node=0)
    return caught.value.code


def lies_in(cluster: SimulatedCluster, broker: int, topic: str, partition: int) -> str:
    log = cluster.nodes[broker].directories.get(topic, partition)
    assert log is not None
    return log.home.path


def test_a_leader_without_its_disk_goes_on_learning() -> None:
    """A change of the ISR in the same leader epoch must not find it taken for a second election."""

    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        await client.create_topic("t", assignments=[[0, 1, 2], [0, 1, 2]])
        await produce(client, "t", 0)
        await produce(client, "t", 1)
        assert lies_in(cluster, 0, "t", 1) == LOST
        lose(cluster, 0)
        assert await refusal(client, "t", 1) is ErrorCode.KAFKA_STORAGE_ERROR
        cluster.crash(1)
        await cluster.until(
            lambda: 1 not in cluster.image.partition("t", 1).isr,  # type: ignore[union-attr]
            "broker 1 is out of the ISR",
        )
        await client.create_topic("later", assignments=[[0, 2]])
        await produce(client, "later")
        await produce(client, "t", 0)

    play(story)


def test_others_lead_what_lay_on_a_lost_disk() -> None:
    """It answered KAFKA_STORAGE_ERROR for ever, although two others had all of it."""

    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        await client.create_topic("t", assignments=[[0, 1, 2], [0, 1, 2]])
        for partition in (0, 1):
            await produce(client, "t", partition)
        lose(cluster, 0)
        assert await refusal(client, "t", 1) is ErrorCode.KAFKA_STORAGE_ERROR
        client.forget()
        assert await produce(client, "t", 1) == 1
        assert await produce(client, "t", 0) == 1
        await cluster.until(
            lambda: 0 in cluster.image.partition("t", 0).isr,  # type: ignore[union-attr]
            "broker 0 follows what it still has",
        )
        assert not cluster.image.brokers[0].fenced
        lost = cluster.image.partition("t", 1)
        assert lost is not None
        assert sorted(lost.isr) == [1, 2]
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        told = (await client.ask(asked, node=1)).topics[0].partitions
        assert [list(each.offline_replicas) for each in told] == [[], [0]]

    play(story)


def test_what_lay_on_a_disk_that_is_lost_at_start_is_not_made_up_anew() -> None:
    """The only member of an ISR comes back without its disk: it must not lead an empty log."""

    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        await client.create_topic("t", assignments=[[0], [0]])
        for _ in range(3):
            await produce(client, "t", 1)
        cluster.crash(0)
        lose(cluster, 0)
        cluster.start_node(0)
        await cluster.until_ready(0)
        await produce(client, "t", 0)
        assert await refusal(client, "t", 1) is ErrorCode.KAFKA_STORAGE_ERROR
        await client.create_topic("new", assignments=[[0]])
        await produce(client, "new")  # what never was anywhere may be made
        cluster.crash(0)
        cluster.machine(0).disk.heal()
        cluster.start_node(0)
        await cluster.until_ready(0)
        assert await produce(client, "t", 1) == 3

    play(story)


def test_a_topic_made_again_does_not_get_the_log_that_is_lost() -> None:
    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        await client.create_topic("other", assignments=[[0]])
        await client.create_topic("t", assignments=[[0]])
        assert lies_in(cluster, 0, "t", 0) == LOST
        await produce(client, "t")
        lose(cluster, 0)
        assert await refusal(client, "t", 0) is ErrorCode.KAFKA_STORAGE_ERROR
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
        assert (await client.ask(request)).responses[0].error_code == 0
        client.forget()
        await cluster.until(lambda: cluster.image.is_active(0), "broker 0 is back")
        await client.create_topic("t", assignments=[[0]])
        assert await produce(client, "t") == 0

    play(story)


def test_an_emptied_metadata_log_deletes_no_data(caplog: pytest.LogCaptureFixture) -> None:
    """Every broker finds replicas that nobody knows: they stay, beside what is made anew."""

    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        await client.create_topic("t", assignments=[[0, 1, 2]])
        for _ in range(3):
            await produce(client, "t")
        nodes = [CONTROLLER, *cluster.brokers]
        for node in nodes:
            cluster.crash(node)
        machine = cluster.machine(CONTROLLER)
        machine.disk = MemoryDisk("emptied", now_ms=machine.clock.wall_ms)
        for node in nodes:
            cluster.start_node(node)
        await cluster.until_ready(*cluster.brokers)
        client.forget()
        await client.create_topic("t", assignments=[[0, 1, 2]])
        assert await produce(client, "t") == 0
        for broker in cluster.brokers:
            disk = cluster.machine(broker).disk
            names = [f"{path}/{name}" for path in ("/data", LOST) for name in disk.list(path)]
            (aside,) = [name for name in names if name.endswith("-stray")]
            assert disk.size(f"{aside}/{0:020}.log") > 0

    play(story)
    assert "t-0 (topic id " in caplog.text
    assert "is not in the cluster's metadata: kept as /data/t-0." in caplog.text


def test_a_replica_whose_id_was_lost_is_still_the_topics() -> None:
    """A power cut may take partition.metadata, which alone says whose the records are."""

    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        await client.create_topic("t", assignments=[[0]])
        for _ in range(3):
            await produce(client, "t")
        cluster.crash(0)
        cluster.machine(0).disk.remove("/data/t-0/partition.metadata")
        cluster.start_node(0)
        await cluster.until_ready(0)
        assert await produce(client, "t") == 3

    play(story)


@pytest.mark.slow
@pytest.mark.parametrize("left_bytes", [0, 700, 1500])
def test_a_file_system_that_is_full_for_a_while(left_bytes: int) -> None:
    """Started without room and then with room, the directory is back and copies what it lacks.

    What could be cut off no more, of a write that did not fit, the next start cuts off.
    """

    async def main() -> None:
        cluster = SimulatedCluster(world, config={"log.dirs": f"/data,{LOST}"})
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, 2]] * 2)
        disk = cluster.machine(0).disk
        full = disk.limit(LOST, left_bytes)
        written = [await produce(client, "t", n % 2) for n in range(60)]
        assert full.struck
        lost, kept = (cluster.image.partition("t", index) for index in (1, 0))
        assert lost is not None
        assert kept is not None
        assert (0 in lost.isr, 0 in kept.isr) == (False, True)
        cluster.crash(0)
        cluster.start_node(0)
        await cluster.until_ready(0)
        written += [await produce(client, "t", n % 2) for n in range(10)]
        cluster.machine(0).disk.heal()
        cluster.crash(0)
        cluster.start_node(0)

        def whole() -> bool:
            found = [cluster.image.partition("t", index) for index in (0, 1)]
            return all(each is not None and len(each.isr) == 3 for each in found)

        await cluster.until(whole, "everybody is in sync")
        for index in (0, 1):
            ends = {log.end for log in cluster.logs("t", index).values() if log is not None}
            assert ends == {max(written) + 1}

    for seed in range(4):
        world = World(seed)
        world.run(main)
