"""A client leaves while its requests wait: nothing of them is left, and what they wrote stays.

Goal: whoever connects, asks for much and leaves costs nothing any more. Method: a real broker in
memory, whose waiting room is counted. Seen to fail: the waits lived on until their time was over.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.control.control_world import play
from tests.log.log_kit import make_batch

from holdfast.node.broker.broker import Broker
from holdfast.runtime.dial import dial
from holdfast.testing.simulated_cluster import BROKER_PORT, SimulatedCluster
from holdfast.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from holdfast.wire.schema import Request

FOREVER_MS = 60_000
FOLLOWER = 1


def a_produce(_topic_id: bytes) -> Request:
    data = PartitionProduceData(index=0, records=make_batch())
    topic = TopicProduceData(name="t", partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=FOREVER_MS, topic_data=[topic])


def a_fetch(topic_id: bytes) -> Request:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=FOREVER_MS,
        min_bytes=1 << 20,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])],
    )


def a_deletion(_topic_id: bytes) -> Request:
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    topic = DeleteRecordsTopic(name="t", partitions=[partition])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=FOREVER_MS)


def waits(broker: Broker) -> int:
    """All that waits: for something to change, and for the high watermark."""
    return broker.waiting.parked + sum(map(len, broker.waiting._deadlines.values()))


@pytest.mark.parametrize("make", [a_produce, a_fetch, a_deletion])
def test_nothing_waits_for_who_has_left(make: Callable[[bytes], Request]) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, FOLLOWER]])
        await client.until(lambda: client.produce("t", 0, [b"first"], acks=-1, node=0))
        broker = cluster.nodes[0].broker
        assert broker is not None
        cluster.crash(FOLLOWER)  # so nothing more is committed for now, or deleted everywhere
        await cluster.until(lambda: waits(broker) == 0, "the follower's fetch is gone, too")
        runtime = cluster.world.machine("visitor").boot()
        connection = await dial(runtime, "broker-0", BROKER_PORT, "visitor")
        answer = connection.send(make(cluster.image.topics["t"].topic_id), timeout_ms=FOREVER_MS)
        await cluster.until(lambda: waits(broker) > 0, "it waits")
        log = cluster.logs("t", 0)[0]
        assert log is not None
        end = log.end
        connection.close()
        assert answer.exception() is not None
        await cluster.until(lambda: waits(broker) == 0, "nothing waits any more", seconds=1)
        assert log.end == end, "what was appended stays"

    play(story, brokers=2, broker_session_timeout_ms="60000", replica_lag_time_max_ms="60000")
