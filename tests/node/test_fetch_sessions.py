"""Goal: a session says once what it wants, hears of each change once, and of nothing else.

Method: a cluster in memory, asked over the wire as a client or a follower asks. What a broker looks
at is counted, because that is what grows without bound when it is wrong.

Rules: fetch.md#fetch-sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.control.control_world import play

from holdfast.node.api.fetch_readers import ConsumerReader
from holdfast.node.broker.broker import Broker
from holdfast.runtime.dial import Connection, dial
from holdfast.testing.simulated_client import ClusterClient
from holdfast.testing.simulated_cluster import BROKER_PORT, SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

FINAL = -1
PARTITIONS = 4
BYTES = 1 << 20


class Reader:
    """One connection that fetches in a session from the broker that leads everything."""

    def __init__(
        self, cluster: SimulatedCluster, client: ClusterClient, connection: Connection
    ) -> None:
        self.cluster = cluster
        self.client = client
        self.connection = connection
        self.topic_id = cluster.image.topics["t"].topic_id
        self.session_id = 0
        self.epoch = 0

    @property
    def broker(self) -> Broker:
        broker = self.cluster.nodes[0].broker
        assert broker is not None
        return broker

    async def produce(self, index: int) -> None:
        """Write a record; return once it is committed and the leader's loop has turned."""
        await self.client.until(
            lambda: self.client.produce("t", index, [b"a record"], acks=-1, node=0)
        )

    def send(self, offsets: dict[int, int], **values: Any) -> asyncio.Future[Any]:
        """Ask with the session's next epoch; `forget`: partitions that are wanted no longer."""
        forgotten = values.pop("forget", ())
        version = values.pop("version", 17)
        last_epoch = values.pop("last_epoch", -1)
        wanted = [
            FetchPartition(
                partition=index,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                partition_max_bytes=BYTES,
            )
            for index, offset in offsets.items()
        ]
        usual: dict[str, Any] = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": BYTES,
            "session_id": self.session_id,
            "session_epoch": self.epoch,
        }
        request = FetchRequest(**usual | values)
        if wanted:
            topic = FetchTopic(topic="t", topic_id=self.topic_id, partitions=wanted)
            request.topics = [topic]
        if forgotten:
            gone = ForgottenTopic(topic="t", topic_id=self.topic_id, partitions=list(forgotten))
            request.forgotten_topics_data = [gone]
        self.epoch += 1
        return self.connection.send(request, version=version, timeout_ms=60_000)

    async def ask(self, offsets: dict[int, int], **values: Any) -> dict[int, int]:
        """Ask, and return what the answer holds: bytes of records by partition."""
        answer: FetchResponse = await self.send(offsets, **values)
        assert answer.error_code == ErrorCode.NONE
        self.session_id = answer.session_id
        return {
            data.partition_index: len(data.records or b"")
            for topic in answer.responses
            for data in topic.partitions
        }


def played(
    story: Callable[[Reader], Coroutine[Any, Any, None]],
    partitions: int = PARTITIONS,
    **config: Any,
) -> None:
    async def whole(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", assignments=[[0]] * partitions)
        await client.leader("t", 0)
        runtime = cluster.world.machine("reader").boot()
        connection = await dial(runtime, "broker-0", BROKER_PORT, "reader")
        await story(Reader(cluster, client, connection))

    play(whole, brokers=1, min_insync_replicas="1", **config)


def all_from(offset: int, partitions: int = PARTITIONS) -> dict[int, int]:
    return dict.fromkeys(range(partitions), offset)


def test_a_session_is_told_of_what_has_changed_alone() -> None:
    async def story(reader: Reader) -> None:
        assert await reader.ask(all_from(0)) == all_from(0), "the first answer is a full one"
        assert reader.session_id > 0
        assert await reader.ask({}) == {}
        await reader.produce(2)
        answer = await reader.ask({})
        assert set(answer) == {2}
        assert answer[2] > 0
        assert await reader.ask({}) == answer, "its offset is the same, and so is what it gets"
        assert await reader.ask({2: 1}) == {}, "what it knows it is not told again"
        assert await reader.ask({0: 0, 2: 0}) == answer, "unless it wants to read it again"

    played(story)


def test_a_session_that_waits_is_woken_by_any_of_its_partitions() -> None:
    async def story(reader: Reader) -> None:
        await reader.ask(all_from(0))
        waiting = reader.send({}, max_wait_ms=60_000)
        await reader.cluster.until(lambda: reader.broker.waiting.parked == 1, "it waits")
        await reader.produce(3)
        answer: FetchResponse = await waiting
        (topic,) = answer.responses
        assert [data.partition_index for data in topic.partitions] == [3]
        assert topic.partitions[0].records

    played(story)


def test_what_is_forgotten_is_neither_read_nor_waited_for() -> None:
    async def story(reader: Reader) -> None:
        await reader.ask(all_from(0))
        assert await reader.ask({}, forget=[1, 2]) == {}
        await reader.produce(1)
        await reader.produce(3)
        assert set(await reader.ask({})) == {3}
        assert set(await reader.ask({1: 0})) == {1, 3}, "until it is asked for again"

    played(story)


def test_a_waiting_request_is_answered_before_the_next_one_of_its_session() -> None:
    async def story(reader: Reader) -> None:
        await reader.ask(all_from(0))
        first = reader.send({}, max_wait_ms=60_000)
        second = reader.send({}, max_wait_ms=0)
        answers = [await first, await second]
        assert [each.error_code for each in answers] == [ErrorCode.NONE] * 2
        assert not any(each.responses for each in answers)

    played(story)


@pytest.mark.parametrize(
    ("session", "epoch", "version", "code"),
    [
        (1, 0, 17, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, 17, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, -1, 17, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1 << 30, 17, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 0, 12, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_who_asks_wrongly_is_told_to_begin_anew(
    session: int, epoch: int, version: int, code: ErrorCode
) -> None:
    """`session` and `epoch` are by how much what is sent differs from what would be right."""

    async def story(reader: Reader) -> None:
        await reader.ask(all_from(0))
        await reader.ask({})
        answer = await reader.send(
            {},
            session_id=reader.session_id + session,
            session_epoch=reader.epoch + epoch,
            version=version,
        )
        assert (answer.error_code, answer.session_id, answer.responses) == (code, 0, [])
        reader.epoch = 0
        assert await reader.ask(all_from(0)) == all_from(0)

    played(story)


def test_a_follower_s_session_is_nobody_else_s() -> None:
    """What is left out of it acknowledges: it must not be gone on with by another one."""

    async def story(reader: Reader) -> None:
        await reader.ask(all_from(0))
        answer = await reader.send({}, replica_state=ReplicaState(replica_id=7))
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    played(story)


def test_a_session_ends_by_its_final_epoch_and_by_a_new_beginning() -> None:
    async def story(reader: Reader) -> None:
        sessions = reader.broker.fetch_sessions
        for epoch in (FINAL, 0):
            reader.session_id = reader.epoch = 0
            await reader.ask(all_from(0))
            old = reader.session_id
            assert len(sessions) == 1
            answer = await reader.ask(all_from(0), session_epoch=epoch)
            assert answer == all_from(0)
            assert reader.session_id != old
            assert len(sessions) == (epoch == 0)

    played(story)


def test_a_session_without_partitions_is_none() -> None:
    async def story(reader: Reader) -> None:
        await reader.ask({0: 0})
        assert await reader.ask({}, forget=[0], max_wait_ms=60_000) == {}
        assert reader.session_id == 0
        assert len(reader.broker.fetch_sessions) == 0
        assert not reader.broker.waiting._watchers

    played(story)


def test_where_no_slot_is_free_every_request_is_a_full_one() -> None:
    async def story(reader: Reader) -> None:
        for _ in range(2):
            reader.epoch = 0
            assert await reader.ask(all_from(0)) == all_from(0)
            assert reader.session_id == 0
        assert not reader.broker.waiting._watchers

    played(story, max_incremental_fetch_session_cache_slots="0")


def test_a_session_hears_of_a_topic_that_is_gone_and_of_a_log_that_begins_later() -> None:
    async def story(reader: Reader) -> None:
        await reader.produce(0)
        await reader.ask({0: 1, 1: 0})
        await reader.client.until(lambda: reader.client.delete_records("t", 0, 1))
        answer: FetchResponse = await reader.send({})
        (data,) = answer.responses[0].partitions
        assert (data.partition_index, data.log_start_offset) == (0, 1)
        waiting = reader.send({}, max_wait_ms=60_000)
        await reader.client.ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000), node=0
        )
        refused: FetchResponse = await waiting
        assert {data.error_code for data in refused.responses[0].partitions} == {
            ErrorCode.NOT_LEADER_OR_FOLLOWER
        }
        again: FetchResponse = await reader.send({})
        assert [data.error_code for data in again.responses[0].partitions] == [
            ErrorCode.UNKNOWN_TOPIC_ID
        ] * 2

    played(story)


def test_who_had_to_cut_its_log_is_told_the_high_watermark_again() -> None:
    """Seen to fail: a follower that had cut its log never heard of the last record's commit.

    Of an answer that says where logs part nothing else counts, and the session took it for told.
    """

    async def story(reader: Reader) -> None:
        await reader.produce(0)
        await reader.ask({0: 1})
        parted: FetchResponse = await reader.send({0: 5}, last_epoch=0)
        (data,) = parted.responses[0].partitions
        assert data.diverging_epoch.end_offset == 1
        cut: FetchResponse = await reader.send({0: 1}, last_epoch=0)
        (data,) = cut.responses[0].partitions
        assert (data.high_watermark, data.diverging_epoch.end_offset) == (1, -1)
        assert await reader.ask({}) == {}

    played(story)


def test_a_partition_that_was_touched_is_looked_at_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen to fail: a request looked at all of its partitions each time that one was touched."""
    looks: list[str] = []
    look = ConsumerReader.look

    def counted(self: ConsumerReader, partition: Any, wanted: Any) -> Any:
        looks.append(repr(partition))
        return look(self, partition, wanted)

    monkeypatch.setattr(ConsumerReader, "look", counted)

    async def story(reader: Reader) -> None:
        many = 200
        await reader.ask(all_from(0, many))
        await reader.ask({})
        looks.clear()
        await reader.produce(7)
        await reader.ask({}, max_wait_ms=60_000)
        assert set(looks) == {"t-7"}
        assert len(looks) <= 2
        # Nor does a request without a session look at more, while it waits.
        waiting = reader.send(
            all_from(0, many) | {7: 1},
            session_id=0,
            session_epoch=FINAL,
            max_wait_ms=60_000,
            min_bytes=BYTES,
        )
        await reader.cluster.until(lambda: reader.broker.waiting.parked == 1, "it waits")
        looks.clear()
        await reader.produce(8)
        assert set(looks) == {"t-8"}
        waiting.cancel()

    played(story, partitions=200)


def test_an_answer_is_one_batch_where_the_node_holds_much() -> None:
    """Seen to fail: thousands of fetches that a batch woke were answered with megabytes each."""

    async def story(reader: Reader) -> None:
        for index in (0, 0, 1):
            await reader.produce(index)
        whole = await reader.ask(all_from(0))
        answers = reader.broker.budgets.of("PLAINTEXT").answers
        answers.note(_Debtor(), 1 << 28)
        assert answers.room("anybody") == 0
        reader.epoch = 0
        short = await reader.ask(all_from(0), session_id=0)
        assert short == {0: whole[0] // 2, 1: 0, 2: 0, 3: 0}

    played(story)


class _Debtor:
    peer = host = "somebody"

    def abort(self) -> None:
        raise AssertionError("nobody owes too much")
