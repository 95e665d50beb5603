"""Goal: what is refused, or out of the ordinary, is answered as Apache Kafka 4.3.1 answers it.

Method: a simulated cluster, asked what `make compare` asks both. Each was seen to fail before.
"""

from __future__ import annotations

import pytest
from tests.control.control_world import controller, play
from tests.log.log_kit import make_batch

from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.api_versions import ApiVersionsRequest
from holdfast.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from holdfast.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.messages.init_producer_id import InitProducerIdRequest
from holdfast.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.structs import ConfigOperation, ResourceType

E = ErrorCode


@pytest.mark.parametrize(
    "request_",
    [
        InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=5),
        InitProducerIdRequest(transactional_id=None, producer_id=5, producer_epoch=-1),
        InitProducerIdRequest(transactional_id=""),
    ],
)
def test_a_producer_that_says_half_of_what_it_is(request_: InitProducerIdRequest) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t")
        answer = await client.ask(request_, node=0)
        assert answer.error_code == E.INVALID_REQUEST
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)

    play(story)


def described(
    *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    found: list[DescribeTopicPartitionsResponse] = []

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", partitions=3)
        await cluster.until(
            lambda: (broker := cluster.nodes[0].broker) is not None and "t" in broker.image.topics,
            "it is known",
        )
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        found.append(await client.ask(request, node=0))

    play(story)
    return found[0]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_of_topics_has_one_partition_at_least(limit: int) -> None:
    answer = described("t", limit=limit)
    assert [each.partition_index for each in answer.topics[0].partitions] == [0]
    assert answer.next_cursor is not None
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("t", 1)


@pytest.mark.parametrize(
    "cursor",
    [Cursor(topic_name="other", partition_index=0), Cursor(topic_name="t", partition_index=-1)],
)
def test_a_page_of_topics_can_not_begin_elsewhere(cursor: Cursor) -> None:
    answer = described("t", cursor=cursor)
    assert [(each.name, each.error_code) for each in answer.topics] == [("t", E.INVALID_REQUEST)]
    assert answer.topics[0].partitions == []


def test_what_may_be_done_is_told_of_a_topic_that_is_not_there() -> None:
    answer = described("t", "absent")
    absent, there = answer.topics
    assert absent.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert absent.topic_authorized_operations == there.topic_authorized_operations > 0


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_id_is_refused_before_there_were_ids_to_ask_by(version: int) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t")
        topic_id = cluster.image.topics["t"].topic_id
        asked = MetadataRequestTopic(topic_id=topic_id, name="t")
        answer = await client.ask(MetadataRequest(topics=[asked]), node=0, version=version)
        assert [(each.name, each.error_code) for each in answer.topics] == [
            ("t", E.INVALID_REQUEST)
        ]
        assert (answer.brokers, answer.controller_id, answer.cluster_id) == ([], -1, None)

    play(story)


@pytest.mark.parametrize(
    ("version", "follower", "names_leader", "has_address"),
    [(15, False, False, False), (16, False, True, True), (17, True, True, False)],
)
def test_who_fetches_from_a_broker_that_does_not_lead_is_told_who_does(
    version: int, *, follower: bool, names_leader: bool, has_address: bool
) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t")
        leader = await client.leader("t", 0)
        topic_id = cluster.image.topics["t"].topic_id
        elsewhere = next(node for node in cluster.brokers if node != leader)
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
        request = FetchRequest(
            topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])],
            max_wait_ms=0,
            replica_state=ReplicaState(replica_id=elsewhere if follower else -1),
        )
        broker = cluster.nodes[elsewhere].broker
        assert broker is not None
        held = broker.partitions.find("t", 0)
        held.is_compared = False  # type: ignore[union-attr]  # it has not heard from a leader yet
        answer = await client.ask(request, node=elsewhere, version=version)
        (data,) = answer.responses[0].partitions
        assert data.error_code == E.NOT_LEADER_OR_FOLLOWER
        assert data.aborted_transactions is None
        assert data.current_leader.leader_id == (leader if names_leader else -1)
        assert [each.node_id for each in answer.node_endpoints] == [leader] * has_address

    play(story)


def test_what_is_not_there_to_be_fetched_has_an_empty_list_of_transactions() -> None:
    """Where a replica that is there has none at all."""

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t")
        topic_id = cluster.image.topics["t"].topic_id
        wanted = [FetchPartition(partition=9, partition_max_bytes=1)]
        topics = [FetchTopic(topic_id=each, partitions=wanted) for each in (topic_id, b"x" * 16)]
        request = FetchRequest(topics=topics, max_wait_ms=0)
        answer = await client.ask(request, node=0, version=17)
        found = [each.partitions[0] for each in answer.responses]
        assert [each.error_code for each in found] == [
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.UNKNOWN_TOPIC_ID,
        ]
        assert [each.aborted_transactions for each in found] == [[], []]

    play(story)


def test_where_the_log_starts_is_told_beside_an_error_of_the_batch() -> None:
    """Of a header that is wrong, of a sequence, and of records that had to be looked at."""

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t")
        leader = await client.leader("t", 0)

        async def put(batch: bytes) -> tuple[int, int]:
            data = PartitionProduceData(index=0, records=bytes(batch))
            topic = TopicProduceData(name="t", partition_data=[data])
            request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
            answer = await client.ask(request, node=leader, version=9)
            found = answer.responses[0].partition_responses[0]
            return found.error_code, found.log_start_offset

        producer = {"producer_id": 7, "producer_epoch": 0}
        assert await put(make_batch(base_sequence=0, **producer)) == (E.NONE, 0)
        assert await put(make_batch(base_offset=5)) == (E.INVALID_RECORD, 0)
        late = make_batch(base_sequence=9, **producer)
        assert await put(late) == (E.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)
        # Not of what is no batch, which is refused before the log is looked at.
        assert await put(make_batch()[:-1]) == (E.INVALID_RECORD, -1)
        assert await put(make_batch()[:20]) == (E.INVALID_RECORD, -1)

    play(story)


def test_fetch_is_served_in_the_newest_version() -> None:
    """kafka-replica-verification asks for no versions, and sends its newest."""

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t")
        leader = await client.leader("t", 0)
        await client.until(lambda: client.produce("t", 0, [b"a record"], acks=-1, node=leader))
        topic_id = cluster.image.topics["t"].topic_id
        wanted = FetchPartition(partition=0, partition_max_bytes=1 << 20, high_watermark=0)
        topic = FetchTopic(topic_id=topic_id, partitions=[wanted])
        newest = FetchRequest.MAX_VERSION
        request = FetchRequest(topics=[topic], max_wait_ms=0, max_bytes=1 << 20)
        answer = await client.ask(request, node=leader, version=newest)
        assert answer.responses[0].partitions[0].records
        told = await client.ask(
            ApiVersionsRequest(client_software_name="test", client_software_version="1"),
            node=leader,
        )
        assert next(each.max_version for each in told.api_keys if each.api_key == 1) == newest

    play(story)


def test_no_log_directory_is_cordoned() -> None:
    """Version 5 brought the question, which Apache Kafka's tools ask in their newest version."""

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t")
        answer = await client.ask(DescribeLogDirsRequest(topics=None), node=0, version=5)
        assert [each.is_cordoned for each in answer.results] == [False]

    play(story)


def test_a_brokers_key_that_nobody_knows_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t")
        said: list[str] = []
        monkeypatch.setattr(
            controller(cluster).unknown_keys,
            "warning",
            lambda text, *values: said.append(text % values),
        )
        for key in ("no.such.key", "log.retention.ms"):
            config = AlterableConfig(config_operation=ConfigOperation.SET, name=key, value="1")
            resource = AlterConfigsResource(
                resource_type=ResourceType.BROKER, resource_name="", configs=[config]
            )
            request = IncrementalAlterConfigsRequest(resources=[resource])
            answer = await client.ask(request, node=0)
            assert answer.responses[0].error_code == E.NONE
        assert len(said) == 1
        assert "no.such.key" in said[0]

    play(story)
