"""A batch whose records take long to look at is appended by turns, and in its client's order.

Goal: with `record.validation=deep` no batch holds the loop, and none overtakes another. Method: a
real broker in memory; batches of so many records that their look takes several slices, pipelined
with small ones on one connection; who leaves, and a leader that is deposed, in between.
Seen to fail: with what is behind such a request handled at once (the small batch came first), and
with all of it done in the handler (nothing was ever waited for).
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.control.control_world import play
from tests.log.log_kit import make_batch, with_body

from holdfast.node.broker.broker import Broker
from holdfast.runtime.dial import Connection, ConnectionLostError, dial
from holdfast.testing.simulated_cluster import BROKER_PORT, SimulatedCluster
from holdfast.wire.batch import HEADER_SIZE, Record, build_batch
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from holdfast.wire.walker.record_walker import RECORDS_A_SLICE

MANY = 4 * RECORDS_A_SLICE
LONG = 60_000
BY_NAME = 12  # the last version of Produce that names topics
DEEP = {"record.validation": "deep", "max.message.bytes": "10000000"}


def many(*, is_sound: bool = True) -> bytes:
    """Return a batch of more records than a few slices walk; the last one may be cut."""
    records = [Record(timestamp=1)] * MANY
    batch = bytes(build_batch(records))
    return batch if is_sound else with_body(batch, batch[HEADER_SIZE:-1])


def request(*batches: bytes, acks: int = 1) -> ProduceRequest:
    """Ask for one batch in each partition from 0 on."""
    parts = [PartitionProduceData(index=n, records=batch) for n, batch in enumerate(batches)]
    topic = TopicProduceData(name="t", partition_data=parts)
    return ProduceRequest(acks=acks, timeout_ms=LONG, topic_data=[topic])


def answers(response: Any) -> list[tuple[int, int]]:
    return [
        (each.error_code, each.base_offset) for each in response.responses[0].partition_responses
    ]


async def begun(
    cluster: SimulatedCluster, *, partitions: int = 1, replicas: tuple[int, ...] = (0,)
) -> tuple[Broker, Connection]:
    client = cluster.client()
    await client.create_topic("t", assignments=[list(replicas)] * partitions, configs=DEEP)
    broker = cluster.nodes[0].broker
    assert broker is not None
    await cluster.until(lambda: broker.partitions.held is not None, "it has started")
    runtime = cluster.world.machine("visitor").boot()
    return broker, await dial(runtime, "broker-0", BROKER_PORT, "visitor")


async def looked_at(broker: Broker) -> None:
    """Wait until a batch's records are being looked at, which takes some milliseconds."""
    for _ in range(100_000):
        if broker.sliced_work.pieces == 1:
            return
        await asyncio.sleep(0.0002)
    raise AssertionError("no batch is looked at by turns")


def end_of(cluster: SimulatedCluster, partition: int = 0) -> int:
    log = cluster.logs("t", partition)[0]
    assert log is not None
    return log.end


@pytest.mark.slow
@pytest.mark.parametrize("acks", [1, -1])
def test_nothing_overtakes_it(acks: int) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        broker, connection = await begun(cluster)
        sent = [
            connection.send(request(batch, acks=acks), timeout_ms=LONG, version=BY_NAME)
            for batch in (make_batch(), many(), make_batch(), many(is_sound=False), make_batch())
        ]
        await looked_at(broker)
        assert end_of(cluster) == 1, "what is behind it waits for it"
        told = [answers(await one)[0] for one in sent]
        assert told == [
            (ErrorCode.NONE, 0),
            (ErrorCode.NONE, 1),
            (ErrorCode.NONE, MANY + 1),
            (ErrorCode.INVALID_RECORD, -1),
            (ErrorCode.NONE, MANY + 2),
        ]
        assert broker.sliced_work.pieces == 0
        connection.close()

    play(story, brokers=1)


@pytest.mark.slow
def test_several_partitions_in_one_request() -> None:
    """What is quickly looked at is not held back; each gets its own answer."""

    async def story(cluster: SimulatedCluster) -> None:
        broker, connection = await begun(cluster, partitions=4)
        sent = connection.send(
            request(make_batch(), many(), many(is_sound=False), make_batch()),
            timeout_ms=LONG,
            version=BY_NAME,
        )
        await looked_at(broker)
        assert [end_of(cluster, n) for n in range(4)] == [1, 0, 0, 0]
        assert answers(await sent) == [
            (ErrorCode.NONE, 0), (ErrorCode.NONE, 0), (ErrorCode.INVALID_RECORD, -1),
            (ErrorCode.NONE, 0),
        ]  # fmt: skip
        assert [end_of(cluster, n) for n in range(4)] == [1, MANY, 0, 1]
        connection.close()

    play(story, brokers=1)


@pytest.mark.slow
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_what_was_received_is_appended_although_its_client_has_left(acks: int) -> None:
    """As flush and close end a program that wants no answers. Nothing is left of it afterwards.

    Seen to fail: the work ended with the connection, and what was flushed was in no log.
    """

    async def story(cluster: SimulatedCluster) -> None:
        broker, connection = await begun(cluster, replicas=(0, 1))
        cluster.crash(1)  # so that nothing is committed, for which acks=all would wait
        guests = len(broker._admissions)
        for batch in (many(), make_batch(), many()):
            sent = connection.send(request(batch, acks=acks), timeout_ms=LONG, version=BY_NAME)
        await looked_at(broker)
        assert end_of(cluster) == 0
        assert connection._transport is not None
        connection._transport.close()  # once all of it is sent
        await asyncio.wait([sent])
        assert isinstance(sent.exception(), ConnectionLostError)
        await cluster.until(lambda: end_of(cluster) == 2 * MANY + 1, "all of it is appended")
        assert broker.sliced_work.pieces == 0
        assert len(broker._admissions) < guests
        assert not sum(map(len, broker.waiting._deadlines.values())), "nobody is to be answered"

    play(story, brokers=2, broker_session_timeout_ms="60000", replica_lag_time_max_ms="60000")


@pytest.mark.slow
def test_a_leader_that_is_deposed_meanwhile_appends_nothing() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        broker, connection = await begun(cluster, replicas=(0, 1))
        partition = next(iter(broker.partitions.held.values()))
        sent = connection.send(request(many()), timeout_ms=LONG, version=BY_NAME)
        await looked_at(broker)
        partition.follow(1, partition.leader_epoch + 1)
        assert answers(await sent) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
        assert end_of(cluster) == 0
        connection.close()

    play(story, brokers=2)


@pytest.mark.slow
def test_without_an_answer() -> None:
    """acks=0: it is appended all the same, what is behind it follows, a refusal closes."""

    async def story(cluster: SimulatedCluster) -> None:
        broker, connection = await begun(cluster)
        for batch in (many(), make_batch(), many(is_sound=False)):
            sent = connection.send(request(batch, acks=0), timeout_ms=LONG, version=BY_NAME)
        await looked_at(broker)
        assert end_of(cluster) == 0
        await asyncio.wait([sent])
        assert isinstance(sent.exception(), ConnectionLostError)
        assert end_of(cluster) == MANY + 1

    play(story, brokers=1)


def test_the_record_that_is_at_fault_is_named() -> None:
    """Up to the client, in Kafka's own field."""

    async def story(cluster: SimulatedCluster) -> None:
        _, connection = await begun(cluster)
        wild = bytes(build_batch([Record(timestamp=1), Record(timestamp=2**62)]))
        response = await connection.send(request(wild), timeout_ms=LONG, version=BY_NAME)
        (answer,) = response.responses[0].partition_responses
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
        (named,) = answer.record_errors
        assert named.batch_index == 1
        assert "message.timestamp.after.max.ms" in named.batch_index_error_message
        connection.close()

    play(story, brokers=1)
