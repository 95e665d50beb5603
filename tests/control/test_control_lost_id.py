"""A replica whose partition.metadata was lost with the power is nobody's until it is told whose.

Goal: what a topic of the same name left behind never becomes part of the new one; the last replica
of a partition keeps what it has. Method: the file is removed, as a power cut soon after a topic's
creation does. Seen to fail with every such replica adopted.
"""

from __future__ import annotations

import asyncio

from tests.control.control_world import play

from holdfast.testing.simulated_client import ClusterClient, RefusedError
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

METADATA = "/data/t-0/partition.metadata"


def lose_id(cluster: SimulatedCluster, node: int) -> None:
    """Kill a broker whose disk does not know any more whose replica it holds."""
    cluster.machine(node).disk.remove(METADATA)
    cluster.crash(node)


async def fill(client: ClusterClient, value: bytes) -> None:
    """Have a value acknowledged three times, though who leads may not know yet who is dead."""
    producer_id, epoch = await client.until(client.producer_id)
    batch = build_batch(
        [Record(value=value)] * 3, producer_id=producer_id, producer_epoch=epoch, base_sequence=0
    )

    async def send() -> None:
        leader = await client.leader("t", 0)
        try:
            await client.produce_batch("t", 0, bytes(batch), acks=-1, node=leader)
        except RefusedError as error:
            if error.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                raise  # else an earlier attempt is there

    await client.until(send)


def test_what_a_deleted_topic_left_does_not_get_into_its_namesake() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", partitions=1, replication_factor=3)
        await fill(client, b"of the old one")
        await cluster.until(
            lambda: all(log is not None and log.end == 3 for log in cluster.logs("t", 0).values()),
            "everybody has it",
        )
        lose_id(cluster, 2)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
        assert (await client.ask(request)).responses[0].error_code == 0
        await cluster.until(lambda: "t" not in cluster.image.topics, "it is deleted")
        client.forget()
        await client.create_topic("t", assignments=[[0, 2, 1]])
        await client.refresh("t")
        await fill(client, b"of the new one")
        cluster.start_node(2)
        await cluster.until_ready(2)
        await cluster.until(
            lambda: (found := cluster.image.partition("t", 0)) is not None and 2 in found.isr,
            "it has joined",
        )
        whole = [cluster.bytes_of(node, "t", 0, 3) for node in cluster.brokers]
        assert whole[0] == whole[1] == whole[2]

    play(story)


def test_the_last_replica_keeps_what_it_has() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", partitions=1, replication_factor=1)
        await fill(client, b"kept")
        (node,) = cluster.logs("t", 0)
        lose_id(cluster, node)
        await asyncio.sleep(1)  # virtual
        cluster.start_node(node)
        await cluster.until_ready(node)
        client.forget()
        assert [one.value for one in await client.read("t", 0)] == [b"kept"] * 3

    play(story)
