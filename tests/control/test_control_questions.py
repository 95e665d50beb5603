"""Goal: what clients ask about the cluster is answered from the image, by every broker alike, and
what is for the controller gets there whoever is asked.

Method: one simulated cluster per story, asked over the wire.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import pytest
from tests.control.control_world import controller, creation, described, play

from holdfast.core.metadata.image import MetadataImage
from holdfast.node.api.fetch_metadata_log import _Reader
from holdfast.node.api.forward import decode_principal, encode_principal
from holdfast.node.api.quorum_requests import EPOCH_LEAP_MAX
from holdfast.node.coordinator.coordinator_settings import consumer_group_settings
from holdfast.node.door.request_context import AllowAll, Operation, RequestContext, ResourceType
from holdfast.node.metadata.metadata_log import decode_batches
from holdfast.runtime.dial import dial
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import CONTROLLER, CONTROLLER_PORT, SimulatedCluster
from holdfast.wire.codec import encode
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.frame import decode_response
from holdfast.wire.messages import begin_quorum_epoch as begin
from holdfast.wire.messages import end_quorum_epoch as end
from holdfast.wire.messages import vote
from holdfast.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.messages.describe_cluster import DescribeClusterRequest
from holdfast.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from holdfast.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from holdfast.wire.messages.envelope import EnvelopeRequest
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.records import encode_record
from holdfast.wire.records.metadata import TopicRecord
from holdfast.wire.schema import Request
from holdfast.wire.uuids import METADATA_TOPIC_ID
from holdfast.wire.well_known import METADATA_TOPIC

E = ErrorCode


def test_every_broker_forwards_and_every_broker_learns() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("first")
        for node in cluster.brokers:
            answer = await client.ask(creation(f"by{node}", partitions=2, factor=2), node=node)
            assert answer.topics[0].error_code == E.NONE
            assert answer.topics[0].num_partitions == 2
            again = await client.ask(creation(f"by{node}"), node=node)
            assert again.topics[0].error_code == E.TOPIC_ALREADY_EXISTS
        for node in cluster.brokers:
            broker = cluster.nodes[node].broker
            assert broker is not None
            await cluster.until(
                lambda broker=broker: len(broker.image.topics) == 4,  # type: ignore[misc]
                "everybody knows",
            )
        topic_id = cluster.image.topics["by0"].topic_id
        answer = await client.ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=1000)
        )
        assert (answer.responses[0].name, answer.responses[0].error_code) == ("by0", E.NONE)
        await cluster.until(lambda: "by0" not in cluster.image.topics, "gone")

    play(story)


def test_a_topic_comes_into_being_when_it_is_asked_for() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        topic = await described(client, "wanted")
        assert topic.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        topic = await described(client, "not a name", create=True)
        assert topic.error_code == E.INVALID_TOPIC_EXCEPTION
        topic = await described(client, "wanted", create=True)
        assert topic.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        await cluster.until(lambda: "wanted" in cluster.image.topics, "created")
        found = cluster.image.topics["wanted"]
        assert [len(each.replicas) for each in found.partitions] == [3] * 4
        topic = await described(client, "wanted", create=True)
        assert topic.error_code == E.NONE

    play(story, num_partitions="4")


def test_creation_on_first_use_can_be_turned_off() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        topic = await described(cluster.client(), "wanted", create=True)
        assert topic.error_code == E.UNKNOWN_TOPIC_OR_PARTITION

    play(story, auto_create_topics_enable="false")


def test_metadata_by_id_and_the_leader_that_is_down() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", replication_factor=1)
        topic_id = cluster.image.topics["t"].topic_id
        asked = [
            MetadataRequestTopic(topic_id=topic_id, name=None),
            MetadataRequestTopic(topic_id=bytes(15) + b"\x09", name=None),
            MetadataRequestTopic(name=None),
        ]
        response = await client.ask(MetadataRequest(topics=asked))
        assert [each.error_code for each in response.topics] == [
            E.NONE,
            E.UNKNOWN_TOPIC_ID,
            E.UNKNOWN_TOPIC_ID,
        ]
        assert response.topics[0].name == "t"
        assert response.controller_id in cluster.brokers, "never the controller's own id"
        assert [broker.node_id for broker in response.brokers] == cluster.brokers
        everything = await client.ask(MetadataRequest(topics=None))
        assert [each.name for each in everything.topics] == ["t"]
        nothing = await client.ask(MetadataRequest(topics=[]))
        assert nothing.topics == []
        leader = await client.leader("t", 0)
        cluster.crash(leader)
        await cluster.until(lambda: not cluster.image.is_active(leader), "fenced")
        topic = await described(client, "t")
        partition = topic.partitions[0]
        assert (partition.error_code, partition.leader_id) == (E.LEADER_NOT_AVAILABLE, -1)
        assert partition.offline_replicas == [leader]
        assert partition.isr_nodes == [], "who was in it is eligible instead"
        paged = await client.ask(
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]),
        )
        assert paged.topics[0].partitions[0].eligible_leader_replicas == [leader]
        assert paged.topics[0].partitions[0].last_known_elr == [leader]

    play(story)


def test_configurations_are_described_with_their_sources() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", configs={"retention.ms": "5"})
        change = AlterableConfig(name="log.segment.bytes", config_operation=0, value="2000000")
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
        await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        await cluster.until(lambda: bool(cluster.image.cluster_configs()), "known")
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=2, resource_name="t"),
                DescribeConfigsResource(
                    resource_type=2, resource_name="t", configuration_keys=["retention.ms"]
                ),
                DescribeConfigsResource(resource_type=4, resource_name="1"),
                DescribeConfigsResource(resource_type=4, resource_name=""),
                DescribeConfigsResource(resource_type=4, resource_name="2"),
                DescribeConfigsResource(resource_type=2, resource_name="nobody"),
                DescribeConfigsResource(resource_type=16, resource_name="x"),
                DescribeConfigsResource(resource_type=32, resource_name="g"),
                DescribeConfigsResource(resource_type=32, resource_name=""),
            ],
            include_synonyms=True,
            include_documentation=True,
        )
        await client.refresh("t")
        response = await client.ask(request, node=1)
        topic, one, broker, cluster_wide, other, nobody, kind, group, nameless = response.results
        values = {entry.name: entry for entry in topic.configs}
        assert len(values) > 30, "every key, not only those that were set"
        assert (values["retention.ms"].value, values["retention.ms"].config_source) == ("5", 1)
        assert values["segment.bytes"].value == "2000000"
        assert values["segment.bytes"].config_source == 3
        assert values["min.insync.replicas"].config_source == 3, "the cluster's since its beginning"
        assert [each.source for each in values["segment.bytes"].synonyms] == [3, 5]
        assert values["retention.ms"].documentation
        assert [entry.name for entry in one.configs] == ["retention.ms"]
        assert {entry.name for entry in broker.configs} > {"log.segment.bytes", "log.dirs"}
        assert [entry.name for entry in cluster_wide.configs] == [
            "log.segment.bytes",
            "min.insync.replicas",
        ]
        assert other.error_code == E.INVALID_REQUEST
        assert "expected 1" in other.error_message
        assert nobody.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        assert kind.error_code == E.INVALID_REQUEST
        assert {entry.config_source for entry in group.configs} == {5}
        assert "consumer.session.timeout.ms" in {entry.name for entry in group.configs}
        assert nameless.error_code == E.INVALID_REQUEST

    play(story)


def test_a_groups_own_settings_are_described_by_each_broker() -> None:
    """Method: set by way of one broker, asked of the others; then the broker's own interval."""
    own, interval = "consumer.session.timeout.ms", "consumer.assignment.interval.ms"

    def knows_interval(image: MetadataImage) -> bool:
        return f"group.{interval}" in image.cluster_configs()

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t")
        await client.refresh("t")
        for kind, name, key, value in (
            (32, "g", own, "50000"),
            (4, "", f"group.{interval}", "2000"),
        ):
            change = AlterableConfig(name=key, config_operation=0, value=value)
            resource = AlterConfigsResource(
                resource_type=kind, resource_name=name, configs=[change]
            )
            request = IncrementalAlterConfigsRequest(resources=[resource])
            answer = await client.ask(request, node=0)
            assert answer.responses[0].error_code == E.NONE
        asked = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=32, resource_name="g", configuration_keys=[own, interval]
                )
            ],
            include_synonyms=True,
        )
        for node in (1, 2):
            broker = cluster.nodes[node].broker
            assert broker is not None
            await cluster.until(partial(knows_interval, broker.image), "known")
            (result,) = (await client.ask(asked, node=node)).results
            entries = {entry.name: entry for entry in result.configs}
            assert (entries[own].value, entries[own].config_source) == ("50000", 8)
            assert [each.source for each in entries[own].synonyms] == [8, 5]
            assert (entries[interval].value, entries[interval].config_source) == ("2000", 3)
            settings = consumer_group_settings(broker.settings)
            assert settings.assignment_interval_ms == 2000, "seen at the next look"

    play(story)


def test_topics_are_described_in_pages() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        for name in ("b", "a", "c"):
            await client.create_topic(name, partitions=3)
        broker = cluster.nodes[0].broker
        assert broker is not None
        await cluster.until(lambda: len(broker.image.topics) == 3, "known")
        seen: list[tuple[str, int]] = []
        cursor: Cursor | None = None
        pages = 0
        while True:
            request = DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
            response = await client.ask(request, node=0)
            found = [
                (topic.name, partition.partition_index)
                for topic in response.topics
                for partition in topic.partitions
            ]
            assert len(found) <= 2
            seen += found
            pages += 1
            cursor = response.next_cursor
            if cursor is None:
                break
        assert seen == [(name, index) for name in "abc" for index in range(3)]
        assert pages == 5
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name="zz"), TopicRequest(name="no name"), TopicRequest(name="b")]
        )
        response = await client.ask(request, node=0)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("b", E.NONE),
            ("no name", E.INVALID_TOPIC_EXCEPTION),
            ("zz", E.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        partition = response.topics[0].partitions[0]
        assert partition.eligible_leader_replicas == []
        assert sorted(partition.isr_nodes) == [0, 1, 2]

    play(story)


def test_the_cluster_describes_itself() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        response = await client.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=True)
        )
        assert [broker.broker_id for broker in response.brokers] == [0, 1, 2]
        assert response.controller_id in cluster.brokers
        assert response.cluster_authorized_operations > 0
        wrong = await client.ask(DescribeClusterRequest(endpoint_type=2))
        assert wrong.error_code == E.MISMATCHED_ENDPOINT_TYPE
        cluster.crash(2)
        await cluster.until(lambda: not cluster.image.is_active(2), "fenced")
        response = await client.ask(DescribeClusterRequest())
        assert [broker.broker_id for broker in response.brokers] == [0, 1]
        response = await client.ask(DescribeClusterRequest(include_fenced_brokers=True))
        assert [(each.broker_id, each.is_fenced) for each in response.brokers] == [
            (0, False),
            (1, False),
            (2, True),
        ]
        connection = await dial(client.runtime, "controller", CONTROLLER_PORT, "admin")
        own = await connection.send(DescribeClusterRequest(endpoint_type=2))
        assert [(each.broker_id, each.port) for each in own.brokers] == [
            (CONTROLLER, CONTROLLER_PORT)
        ]

    play(story)


def test_the_metadata_log_is_served_as_far_as_it_is_committed() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t")
        connection = await dial(client.runtime, "controller", CONTROLLER_PORT, "observer")

        async def fetch(
            offset: int, *, topic_id: bytes = METADATA_TOPIC_ID, wait_ms: int = 0, epoch: int = -1
        ) -> tuple[ErrorCode, int, int]:
            wanted = FetchPartition(
                partition=0,
                fetch_offset=offset,
                partition_max_bytes=1 << 20,
                current_leader_epoch=epoch,
            )
            request = FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])],
            )
            response = await connection.send(request)
            data = response.responses[0].partitions[0]
            return ErrorCode(data.error_code), data.high_watermark, len(data.records or b"")

        log = controller(cluster).log
        assert log is not None
        code, high_watermark, size = await fetch(0)
        assert (code, high_watermark) == (E.NONE, log.committed)
        assert size > 500
        assert await fetch(log.end) == (E.NONE, log.end, 0)
        assert (await fetch(log.end + 1))[0] is E.OFFSET_OUT_OF_RANGE
        assert (await fetch(0, epoch=0))[0] is E.FENCED_LEADER_EPOCH
        assert (await fetch(0, epoch=9))[0] is E.UNKNOWN_LEADER_EPOCH
        assert (await fetch(0, topic_id=bytes(15) + b"\x07"))[0] is E.UNKNOWN_TOPIC_ID
        loop = asyncio.get_running_loop()
        end, began = log.end, loop.time()
        assert await fetch(end, wait_ms=400) == (E.NONE, end, 0)
        assert 0.4 <= loop.time() - began < 0.5, "it waits, and no longer"
        waiting = asyncio.ensure_future(fetch(end, wait_ms=30_000))
        await client.create_topic("u")
        code, _, size = await waiting
        assert code is E.NONE
        assert size > 0

    play(story)


def test_what_is_not_committed_is_not_served() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        log = controller(cluster).log
        assert log is not None
        asking = asyncio.ensure_future(cluster.client().ask(creation("t")))
        while log.end == log.committed:
            await asyncio.sleep(0.000_01)
        topic = FetchTopic(topic_id=METADATA_TOPIC_ID)
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic.partitions = [wanted]
        reader = _Reader(controller(cluster), FetchRequest(topics=[topic]), topic)
        response = reader.answer(E.NONE)
        data = response.responses[0].partitions[0]
        last = [batch.last_offset for batch in decode_batches(data.records or b"")][-1]
        assert last == log.committed - 1 < log.end - 1
        assert data.high_watermark == log.committed
        await asking

    play(story)


ALICE = b"\0\0\x05User\x06alice\0\0"
CREATE_TOPICS = b"\0\x13\0\x07\0\0\0\x01\0\0\0"  # a header: key 19, version 7
NONSENSE: tuple[tuple[bytes, bytes, ErrorCode], ...] = (
    (b"", ALICE, E.INVALID_REQUEST),
    (CREATE_TOPICS, b"", E.INVALID_REQUEST),
    (CREATE_TOPICS + b"\xff", ALICE, E.INVALID_REQUEST),
    (b"\0\x13\0\x63\0\0\0\x01\0\0\0", ALICE, E.UNSUPPORTED_VERSION),
    (b"\0\x3f\0\0\0\0\0\x01\0\0\0", ALICE, E.UNSUPPORTED_VERSION),  # a heartbeat
)


@pytest.mark.parametrize("ahead", [EPOCH_LEAP_MAX + 1, 2**31 - 1])
def test_nobody_makes_a_quorum_leap_to_its_last_epoch(ahead: int) -> None:
    """Behind the last epoch there is no election: one request would end the quorum for good."""
    world = World(1)

    async def main() -> None:
        cluster = SimulatedCluster(world, brokers=1, controllers=3)
        await cluster.start()
        await cluster.until(lambda: cluster.active_controller() is not None, "one decides")
        active = cluster.active_controller()
        voter, other = (each for each in cluster.controllers if each != active)
        quorum = cluster.quorum_of(voter)
        assert quorum is not None
        before, epoch = quorum.epoch, min(quorum.epoch + ahead, 2**31 - 1)
        asked = vote.RequestPartitionData(
            partition_index=0, replica_epoch=epoch, replica_id=other, last_offset_epoch=epoch
        )
        told: dict[str, Any] = {"partition_index": 0, "leader_id": other, "leader_epoch": epoch}
        begun, ended = begin.RequestPartitionData(**told), end.RequestPartitionData(**told)
        name = {"topic_name": METADATA_TOPIC}
        requests: list[Request] = [
            vote.VoteRequest(topics=[vote.RequestTopicData(**name, partitions=[asked])]),
            begin.BeginQuorumEpochRequest(
                topics=[begin.RequestTopicData(**name, partitions=[begun])]
            ),
            end.EndQuorumEpochRequest(topics=[end.RequestTopicData(**name, partitions=[ended])]),
        ]
        machine = f"controller-{voter}" if voter != CONTROLLER else "controller"
        runtime = world.machine("visitor").boot()
        connection = await dial(runtime, machine, CONTROLLER_PORT, "visitor")
        for request in requests:
            answer: Any = await connection.send(request, version=0, timeout_ms=5_000)
            assert answer.topics[0].partitions[0].error_code == E.INVALID_REQUEST
            assert quorum.epoch == before
        connection.close()

    world.run(main)


def test_envelopes_that_hold_nonsense() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        connection = await dial(client.runtime, "controller", CONTROLLER_PORT, "broker")
        for data, principal, code in NONSENSE:
            envelope = EnvelopeRequest(
                request_data=data, request_principal=principal, client_host_address=bytes(4)
            )
            answer = await connection.send(envelope)
            assert ErrorCode(answer.error_code) is code
        await client.create_topic("t")

    play(story)


def test_a_principal_travels() -> None:
    for principal in ("User:ANONYMOUS", "User:CN=a,O=b", "User:with:colon"):
        assert decode_principal(encode_principal(principal)) == principal
    for damage in (b"", b"\0", b"\0\x01\x05User", encode_record(TopicRecord(name="t"))):
        with pytest.raises(WireError):
            decode_principal(damage)


class _Guard(AllowAll):
    """Lets alice make topics that begin with her name, and nobody else anything."""

    seen: list[tuple[str, str, str]]

    def __init__(self) -> None:
        self.seen = []

    def allows(
        self, context: RequestContext, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        if operation is Operation.CLUSTER_ACTION:
            return True
        self.seen.append((context.client.principal, context.client.host, name))
        return kind is ResourceType.TOPIC and name.startswith("alice")


def test_the_controller_asks_its_authorizer_about_the_client_not_about_the_broker() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        guard = _Guard()
        node = cluster.nodes[CONTROLLER]
        server = node._controller_server
        assert server is not None
        for group in server._groups:
            group.handle.authorizer = guard  # type: ignore[attr-defined]
        client = cluster.client()
        connection = await dial(client.runtime, "controller", CONTROLLER_PORT, "broker")
        inner = b"\0\x13\0\x07\0\0\0\x2a\0\x01x\0" + encode(creation("alice-1", "bob-1"), 7)
        envelope = EnvelopeRequest(
            request_data=inner,
            request_principal=encode_principal("User:alice"),
            client_host_address=b"\x0a\0\0\x09",
        )
        answer = await connection.send(envelope)
        assert answer.error_code == E.NONE
        data = bytes(answer.response_data)
        assert data[:4] == b"\0\0\0\x2a", "the correlation id of the client's own request"
        response = _decoded(data)
        assert [each.error_code for each in response.topics] == [
            E.NONE,
            E.TOPIC_AUTHORIZATION_FAILED,
        ]
        assert ("User:alice", "10.0.0.9", "bob-1") in guard.seen

    play(story)


def _decoded(data: bytes) -> CreateTopicsResponse:
    _, response = decode_response(CreateTopicsRequest.KEY, 7, data)
    assert isinstance(response, CreateTopicsResponse)
    return response


def test_the_log_says_little_of_topics_that_are_not_created(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Seen to fail: each request that was refused left a line a topic, with all of its name."""
    caplog.set_level(logging.INFO, "holdfast.auto_creation")

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        broker = cluster.nodes[0].broker
        assert broker is not None
        forwarding = broker.forwarding
        for attempt in range(3):
            names = [f"{attempt}-{number}-" + "n" * 200 for number in range(20)]
            topics = [MetadataRequestTopic(name=name) for name in names]
            asked = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
            await client.ask(asked)
            await cluster.until(lambda: not forwarding.topics_under_way, "it was answered")

    play(story, brokers=1, default_replication_factor="9")
    (line,) = [each for each in caplog.records if each.name == "holdfast.auto_creation"]
    assert "INVALID_REPLICATION_FACTOR" in line.getMessage()
    assert "and 15 more" in line.getMessage()
    assert len(line.getMessage()) < 1200
