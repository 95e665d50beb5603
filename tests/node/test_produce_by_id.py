"""Goal: what is appended by a topic's id goes to that topic, and never to a namesake.

Method: a cluster in memory, asked over the wire in the version that has ids. Refusals are those
that Apache Kafka 4.3.1 gave.

Rules: produce.md#by-id.
"""

from __future__ import annotations

from typing import Any

from tests.control.control_world import play
from tests.log.log_kit import make_batch

from holdfast.runtime.dial import ConnectionLostError, dial
from holdfast.testing.simulated_client import ClusterClient
from holdfast.testing.simulated_cluster import BROKER_PORT, SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

BY_ID, BY_NAME = 13, 12
STRANGE = b"an id of nothing"


def to(topic_id: bytes, *indexes: int, acks: int = 1, name: str = "") -> ProduceRequest:
    parts = [PartitionProduceData(index=index, records=make_batch()) for index in indexes]
    topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=parts)
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[topic])


def told(answer: Any) -> list[tuple[int, int]]:
    (topic,) = answer.responses
    return [(each.error_code, each.base_offset) for each in topic.partition_responses]


async def made(cluster: SimulatedCluster, **topic: Any) -> tuple[ClusterClient, int, bytes]:
    """Return a client, who leads t-0, and the topic's id."""
    client = cluster.client()
    await client.create_topic("t", **topic)
    leader = await client.leader("t", 0)
    await client.until(lambda: client.produce("t", 0, [b"first"], acks=1, node=leader))
    return client, leader, cluster.image.topics["t"].topic_id


def test_each_partition_is_found_by_the_id_of_its_topic() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client, leader, topic_id = await made(cluster)
        answer = await client.ask(to(topic_id, 0, 9, -1), node=leader, version=BY_ID)
        assert answer.responses[0].topic_id == topic_id
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert told(answer) == [(ErrorCode.NONE, 1), unknown, unknown]
        answer = await client.ask(to(topic_id, 0, acks=-1), node=leader, version=BY_ID)
        assert told(answer) == [(ErrorCode.NONE, 2)]

    play(story)


def test_an_id_that_stands_for_nothing_is_unknown_whatever_the_acks() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client, leader, topic_id = await made(cluster)
        for acks in (1, -1, 2):
            for unknown in (STRANGE, bytes(16)):
                answer = await client.ask(to(unknown, 0, acks=acks), node=leader, version=BY_ID)
                assert answer.responses[0].topic_id == unknown
                assert told(answer) == [(ErrorCode.UNKNOWN_TOPIC_ID, -1)]
        answer = await client.ask(to(topic_id, 0, acks=2), node=leader, version=BY_ID)
        assert told(answer) == [(ErrorCode.INVALID_REQUIRED_ACKS, -1)]

    play(story)


def test_without_an_answer_an_unknown_id_closes() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        _, leader, _ = await made(cluster)
        runtime = cluster.world.machine("visitor").boot()
        connection = await dial(runtime, f"broker-{leader}", BROKER_PORT, "visitor")
        sent = connection.send(to(STRANGE, 0, acks=0), version=BY_ID, timeout_ms=10_000)
        await cluster.until(sent.done, "it is closed")
        assert isinstance(sent.exception(), ConnectionLostError)

    play(story)


def test_nothing_goes_to_a_namesake() -> None:
    """What a producer has for a topic that was deleted is not for one that was made since."""

    async def story(cluster: SimulatedCluster) -> None:
        client, _, before = await made(cluster)
        named = [DeleteTopicState(name="t")]
        await client.ask(DeleteTopicsRequest(topics=named, timeout_ms=5000))
        client.forget()
        client, leader, after = await made(cluster)
        assert before != after
        answer = await client.ask(to(before, 0, name="t"), node=leader, version=BY_ID)
        assert told(answer) == [(ErrorCode.UNKNOWN_TOPIC_ID, -1)]
        answer = await client.ask(to(after, 0), node=leader, version=BY_ID)
        assert told(answer) == [(ErrorCode.NONE, 1)]

    play(story)


def test_who_comes_to_another_broker_is_told_the_leader() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client, leader, topic_id = await made(cluster, assignments=[[0, 1]])
        for version in (BY_NAME, BY_ID):
            request = to(topic_id, 0, name="t")
            answer = await client.ask(request, node=1 - leader, version=version)
            assert told(answer) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
            (refused,) = answer.responses[0].partition_responses
            assert refused.current_leader.leader_id == leader
            assert [each.node_id for each in answer.node_endpoints] == [leader]

    play(story, brokers=2)
