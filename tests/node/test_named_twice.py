"""Goal: a request that names something twice costs, and gets, what it would if it named it once.

Method: a cluster in memory, asked over the wire. Seen to fail: each of a few bytes a time became as
many answers as stand behind the name, made while everybody waited; and a fetch that named one
partition 100,000 times, and waited, was 100,000 looks for each batch that came into it.

Rules: connections.md#what-is-named-twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.control.control_world import play
from tests.log.log_kit import make_batch

from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.batch import Codec
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from holdfast.wire.structs import ResourceType
from holdfast.wire.well_known import LATEST

TWICE = range(2)
Ask = Callable[[Any], Awaitable[Any]]


def played(story: Callable[[Ask, bytes], Awaitable[None]]) -> None:
    """Play with a topic t of one partition that has a record, at the broker that leads it."""

    async def whole(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t")
        leader = await client.leader("t", 0)
        await client.until(lambda: client.produce("t", 0, [b"a record"], acks=-1, node=leader))
        topic_id = cluster.image.topics["t"].topic_id
        await story(lambda request: client.ask(request, node=leader), topic_id)

    play(whole)


@pytest.mark.parametrize("topics", [[2], [1, 1]])
def test_a_fetch_looks_at_a_partition_once_and_from_the_offset_last_named(
    topics: list[int],
) -> None:
    async def story(ask: Ask, topic_id: bytes) -> None:
        offsets = iter([5, 0])  # the first is out of range
        answer = await ask(
            FetchRequest(
                max_wait_ms=0,
                max_bytes=1000,
                topics=[
                    FetchTopic(
                        topic_id=topic_id,
                        partitions=[
                            FetchPartition(fetch_offset=next(offsets), partition_max_bytes=1000)
                            for _ in range(count)
                        ],
                    )
                    for count in topics
                ],
            )
        )
        found = [data for topic in answer.responses for data in topic.partitions]
        assert len(found) == 1
        (partition,) = found
        assert partition.error_code == ErrorCode.NONE
        assert partition.records

    played(story)


def test_metadata_shows_a_topic_once() -> None:
    async def story(ask: Ask, topic_id: bytes) -> None:
        names = [MetadataRequestTopic(name="t") for _ in TWICE]
        names += [MetadataRequestTopic(topic_id=topic_id, name=None) for _ in TWICE]
        answer = await ask(MetadataRequest(topics=names))
        assert [topic.name for topic in answer.topics] == ["t", "t"], "by its name and by its id"

    played(story)


def test_a_resource_is_described_once() -> None:
    async def story(ask: Ask, _: bytes) -> None:
        resource = DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name="t")
        answer = await ask(DescribeConfigsRequest(resources=[resource, resource]))
        assert [each.resource_name for each in answer.results] == ["t"]

    played(story)


def test_an_offset_that_is_asked_for_twice_is_refused_once() -> None:
    async def story(ask: Ask, _: bytes) -> None:
        partition = ListOffsetsPartition(timestamp=LATEST)
        for count, code in ((1, ErrorCode.NONE), (2, ErrorCode.INVALID_REQUEST)):
            topic = ListOffsetsTopic(name="t", partitions=[partition] * count)
            answer = await ask(ListOffsetsRequest(replica_id=-1, topics=[topic]))
            assert [each.error_code for each in answer.topics[0].partitions] == [code]

    played(story)


def test_each_append_to_one_partition_is_answered_with_its_own_offset() -> None:
    """Seen to fail: the second batch of a request was answered with the first one's offset.

    A producer that keeps offsets beside its data would then find another's record there.
    """

    async def story(ask: Ask, topic_id: bytes) -> None:
        batches = [make_batch(count) for count in (2, 3, 1)]
        answer = await ask(
            ProduceRequest(
                acks=-1,
                timeout_ms=10_000,
                topic_data=[
                    TopicProduceData(
                        topic_id=topic_id,
                        partition_data=[
                            PartitionProduceData(index=0, records=each) for each in batches
                        ],
                    )
                ],
            )
        )
        (topic,) = answer.responses
        answers = [(each.error_code, each.base_offset) for each in topic.partition_responses]
        assert answers == [(ErrorCode.NONE, offset) for offset in (1, 3, 6)]

    played(story)


def test_what_is_behind_a_batch_that_has_to_be_opened_waits_for_it() -> None:
    """Seen to fail: the second batch needed no look, and was appended before the first one."""

    async def whole(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        gzip = {"compression.type": "gzip"}
        await client.create_topic("t", assignments=[[0]] * 2, configs=gzip)
        leader = await client.leader("t", 0)
        asked = [(0, Codec.NONE), (1, Codec.GZIP), (0, Codec.GZIP), (1, Codec.GZIP)]
        parts = [
            PartitionProduceData(index=index, records=make_batch(2, codec=codec))
            for index, codec in asked
        ]
        topic_id = cluster.image.topics["t"].topic_id
        topic = TopicProduceData(topic_id=topic_id, partition_data=parts)
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
        answer = await client.ask(request, node=leader)
        answers = [
            (each.error_code, each.base_offset) for each in answer.responses[0].partition_responses
        ]
        assert answers == [(ErrorCode.NONE, offset) for offset in (0, 0, 2, 2)]

    play(whole, brokers=1, min_insync_replicas="1")
