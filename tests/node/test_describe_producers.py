"""Goal: any replica tells which producers it remembers, and no answer is without a bound.

Method: a cluster in memory, asked over the wire; what is answered is what Apache Kafka 4.3.1
answered, but for what is named twice.

Rules: producers.md#who-is-remembered.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.control.control_world import play
from tests.log.log_kit import NOW_MS, make_batch

from holdfast.node.api import describe_producers
from holdfast.node.broker.broker import Broker
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    ProducerState,
)

E = ErrorCode


def asked(*topics: tuple[str, list[int]]) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[
            DescribeProducersTopicRequest(name=name, partition_indexes=indexes)
            for name, indexes in topics
        ]
    )


def told(answer: Any) -> list[tuple[str, int, int, list[int]]]:
    """Return topic, partition, error and the ids of producers."""
    return [
        (
            topic.name,
            each.partition_index,
            each.error_code,
            [producer.producer_id for producer in each.active_producers],
        )
        for topic in answer.topics
        for each in topic.partitions
    ]


async def written(cluster: SimulatedCluster, *producers: int, partitions: int = 1) -> list[Broker]:
    """Have each of these write two batches to t-0, on both of its replicas."""
    client = cluster.client()
    await client.create_topic("t", assignments=[[0, 1]] * partitions)
    await client.refresh("t")
    for producer in producers:
        for first in (0, 2):
            batch = make_batch(2, producer_id=producer, producer_epoch=7, base_sequence=first)
            await client.until(
                lambda batch=batch: client.produce_batch("t", 0, bytes(batch), acks=-1, node=0)  # type: ignore[misc]
            )
    found = [cluster.nodes[node].broker for node in (0, 1)]
    assert all(found)
    return [each for each in found if each is not None]


def test_every_replica_tells_what_it_remembers() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await written(cluster, 50, 40, partitions=2)
        client = cluster.client()
        await client.refresh("t")
        for node in (0, 1):
            answer = await client.ask(asked(("t", [0, 1])), node=node)
            assert told(answer) == [("t", 0, E.NONE, [50, 40]), ("t", 1, E.NONE, [])]
            first, _ = answer.topics[0].partitions[0].active_producers
            assert first == ProducerState(
                producer_id=50,
                producer_epoch=7,
                last_sequence=3,
                last_timestamp=NOW_MS + 1,
                coordinator_epoch=-1,
                current_txn_start_offset=-1,
            )
            assert answer.topics[0].partitions[0].error_message is None
        answer = await client.ask(asked(("t", [0])), node=2)
        assert told(answer) == [("t", 0, E.NOT_LEADER_OR_FOLLOWER, [])]

    play(story, brokers=3)


def test_what_is_not_there_is_told_of_each_partition() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        broker, _ = await written(cluster, 50)
        client = cluster.client()
        await client.refresh("t")
        request = asked(("t", [9, -1]), ("absent", [0, 1]), ("a b", [0]), ("", [0]), ("t", []))
        answer = await client.ask(request, node=0)
        unknown, illegal = E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_TOPIC_EXCEPTION
        assert told(answer) == [
            ("t", 9, unknown, []),
            ("t", -1, unknown, []),
            ("absent", 0, unknown, []),
            ("absent", 1, unknown, []),
            ("a b", 0, illegal, []),
            ("", 0, illegal, []),
        ]
        assert [each.name for each in answer.topics] == ["t", "absent", "a b", "", "t"]
        words = [each.error_message for topic in answer.topics for each in topic.partitions]
        assert [text is None for text in words] == [True, True, False, False, False, False]
        next(iter(broker.partitions)).fail()
        answer = await client.ask(asked(("t", [0])), node=0)
        assert told(answer) == [("t", 0, E.KAFKA_STORAGE_ERROR, [])]

    play(story, brokers=2)


def test_no_words_repeat_a_topics_name() -> None:
    """Or one long name and 100,000 partitions were a few bytes each, answered with hundreds."""

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", assignments=[[0]])
        for name in ("n" * 249, "n" * 248 + "!"):
            answer = await client.ask(asked((name, [0])), node=0)
            (refused,) = answer.topics[0].partitions
            assert len(refused.error_message) < 50

    play(story, brokers=1)


def test_what_is_named_twice_is_answered_once() -> None:
    """Rules: connections.md#what-is-named-twice."""

    async def story(cluster: SimulatedCluster) -> None:
        await written(cluster, 50)
        request = asked(("t", [0, 0]), ("t", [0]), ("absent", [0, 0]))
        client = cluster.client()
        await client.refresh("t")
        answer = await client.ask(request, node=0)
        assert told(answer) == [
            ("t", 0, E.NONE, [50]),
            ("absent", 0, E.UNKNOWN_TOPIC_OR_PARTITION, []),
        ]

    play(story, brokers=2)


def test_an_answer_has_so_many_producers_and_is_made_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(describe_producers, "PRODUCERS_MAX", 3)
    monkeypatch.setattr(describe_producers, "_PRODUCER_EFFORT", 1)

    async def story(cluster: SimulatedCluster) -> None:
        broker, _ = await written(cluster, 1, 2, partitions=3)
        client = cluster.client()
        await client.refresh("t")
        for index in (1, 2):
            for producer in range(3 - index):
                batch = bytes(make_batch(producer_id=producer, producer_epoch=0, base_sequence=0))
                await client.produce_batch("t", index, batch, acks=-1, node=0)
        pieces: list[int] = []
        work = broker.sliced_work
        step = work._step
        work._step = lambda *how: (pieces.append(work.pieces), step(*how))[1]  # type: ignore[method-assign, func-returns-value]
        answer = await client.ask(asked(("t", [0, 1, 2])), node=0)
        assert told(answer) == [
            ("t", 0, E.NONE, [1, 2]),
            ("t", 1, E.INVALID_REQUEST, []),
            ("t", 2, E.NONE, [0]),
        ]
        assert "ask for fewer" in answer.topics[0].partitions[1].error_message
        assert len(pieces) >= 3, "others had their turn behind each producer"
        assert work.pieces == 0

    play(story, brokers=2)
