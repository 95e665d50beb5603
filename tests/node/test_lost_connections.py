"""A client leaves while its requests wait: nothing of them is left, and what they wrote stays.

Goal: whoever connects, asks for much and leaves costs nothing any more. Method: a real broker in
memory, whose waiting room is counted. Seen to fail: the waits lived on until their time was over.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
from tests.control.control_world import play
from tests.log.log_kit import make_batch

from holdfast.node.broker.broker import Broker
from holdfast.node.broker.replica import Partition
from holdfast.node.door.request_context import RequestContext
from holdfast.runtime.dial import dial
from holdfast.testing.simulated_client import ClusterClient
from holdfast.testing.simulated_cluster import (
    BROKER_PORT,
    CONTROLLER,
    CONTROLLER_PORT,
    SimulatedCluster,
)
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
from holdfast.wire.uuids import METADATA_TOPIC_ID

FOREVER_MS = 60_000
FOLLOWER = 1


def a_produce(topic_id: bytes) -> Request:
    data = PartitionProduceData(index=0, records=make_batch())
    topic = TopicProduceData(name="t", topic_id=topic_id, partition_data=[data])
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


async def a_replicated_topic(
    cluster: SimulatedCluster, client: ClusterClient | None = None
) -> Broker:
    """Return the leader of a topic's one partition, which has a record that its follower has."""
    client = client or cluster.client()
    await client.create_topic("t", assignments=[[0, FOLLOWER]])
    await client.until(lambda: client.produce("t", 0, [b"first"], acks=-1, node=0))
    broker = cluster.nodes[0].broker
    assert broker is not None
    return broker


def waits(broker: Broker) -> int:
    """All that waits: for something to change, and for the high watermark."""
    return broker.waiting.parked + sum(map(len, broker.waiting._deadlines.values()))


def watchers(broker: Broker) -> int:
    """How many are told of changes, of each partition."""
    return sum(map(len, broker.waiting._watchers.values()))


def remembered(visitor: str) -> list[RequestContext]:
    """The requests of a visitor that are still somewhere in memory."""
    return [
        each
        for each in gc.get_objects()
        if type(each) is RequestContext and each.header.client_id == visitor
    ]


@pytest.fixture
def _uncollected() -> Iterator[None]:
    """What refers to itself stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize("make", [a_produce, a_fetch, a_deletion])
def test_nothing_waits_for_who_has_left(make: Callable[[bytes], Request]) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        broker = await a_replicated_topic(cluster)
        cluster.crash(FOLLOWER)  # so nothing more is committed for now, or deleted everywhere
        await cluster.until(lambda: waits(broker) == 0, "the follower's fetch is gone, too")
        watched = watchers(broker)
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
        assert watchers(broker) == watched, "nor is anything told to it"
        assert log.end == end, "what was appended stays"
        assert not remembered("visitor"), "what is left refers to itself"

    play(story, brokers=2, broker_session_timeout_ms="60000", replica_lag_time_max_ms="60000")


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize("make", [a_produce, a_fetch, a_deletion])
def test_who_was_answered_is_not_remembered(make: Callable[[bytes], Request]) -> None:
    """Seen to fail: a fetch that had waited kept its frame and its connection for a collector,

    and what a collector has set aside for good: gigabytes, by clients that came and left.
    """

    async def story(cluster: SimulatedCluster) -> None:
        await a_replicated_topic(cluster)
        cluster.crash(FOLLOWER)
        runtime = cluster.world.machine("visitor").boot()
        connection = await dial(runtime, "broker-0", BROKER_PORT, "visitor")
        request = make(cluster.image.topics["t"].topic_id)
        for name in ("max_wait_ms", "timeout_ms"):
            if hasattr(request, name):
                setattr(request, name, 200)
        await connection.send(request, timeout_ms=FOREVER_MS)
        assert not remembered("visitor")

    play(story, brokers=2, broker_session_timeout_ms="60000", replica_lag_time_max_ms="60000")


@pytest.mark.usefixtures("_uncollected")
def test_no_fetch_of_the_metadata_log_waits_for_who_has_left() -> None:
    """Each that waits is asked whenever something is committed, and anybody may connect."""

    async def story(cluster: SimulatedCluster) -> None:
        controller = cluster.nodes[CONTROLLER].controller
        assert controller is not None
        cluster.crash(0)
        await cluster.until(lambda: not controller._observers, "the broker's fetch is gone, too")
        runtime = cluster.world.machine("visitor").boot()
        connection = await dial(runtime, "controller", CONTROLLER_PORT, "visitor")
        wanted = FetchPartition(
            partition=0, fetch_offset=controller.log.end, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_wait_ms=FOREVER_MS,
            min_bytes=1,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])],
        )
        answer = connection.send(request, timeout_ms=FOREVER_MS)
        await cluster.until(lambda: bool(controller._observers), "it waits")
        connection.close()
        assert answer.exception() is not None
        await cluster.until(lambda: not controller._observers, "nothing waits", seconds=1)
        assert not remembered("visitor"), "what is left refers to itself"

    play(story, brokers=1, broker_session_timeout_ms="60000")


def test_a_deadline_is_over_with_its_request() -> None:
    """Answered in time, a produce leaves nothing behind until its time-out is over."""

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, FOLLOWER]])
        for _ in range(5):
            await client.until(lambda: client.produce("t", 0, [b"x"], acks=-1, node=0))
        broker = cluster.nodes[0].broker
        assert broker is not None
        assert sum(map(len, broker.waiting._deadlines.values())) == 0

    play(story, brokers=2)


def test_a_stalled_partition_does_not_collect_who_has_given_up() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        broker = await a_replicated_topic(cluster, client)
        partition = broker.partitions.find("t", 0)
        assert isinstance(partition, Partition)
        cluster.crash(FOLLOWER)
        for sequence in range(3):
            request = a_produce(b"")
            assert isinstance(request, ProduceRequest)
            request.timeout_ms = 100 + sequence
            await client.ask(request, node=0, version=9)
        assert partition.high_watermark == 1, "nothing is committed"
        await cluster.until(lambda: not partition.acknowledgements, "it is forgotten", seconds=10)

    play(story, brokers=2, broker_session_timeout_ms="60000", replica_lag_time_max_ms="4000")
