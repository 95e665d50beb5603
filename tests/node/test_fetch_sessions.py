"""Goal: a session says once what it wants, hears of each change once, and of nothing else.

Method: a cluster in memory, asked over the wire as a client or a follower asks. What a broker looks
at is counted, because that is what grows without bound when it is wrong.

Rules: fetch.md#fetch-sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from math import inf
from typing import Any

import pytest
from tests.control.control_world import play
from tests.log.log_kit import TOPIC_ID, append, open_directories, virtual
from tests.node.replica_kit import alive, decided, leading, replica

from holdfast.config.topic import TopicSettings
from holdfast.core.metadata.topic_names import NAME_LENGTH_MAX
from holdfast.core.replica import session_cache
from holdfast.core.replica.replication import LastFetch
from holdfast.node.api import fetch, fetch_session
from holdfast.node.api.fetch_readers import ConsumerReader
from holdfast.node.broker.broker import Broker
from holdfast.node.broker.replica import Partition
from holdfast.runtime.dial import Connection, dial
from holdfast.runtime.ports import Runtime
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
    replicas: Sequence[int] = (0,),
    **config: Any,
) -> None:
    async def whole(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", assignments=[list(replicas)] * partitions)
        await client.leader("t", 0)
        runtime = cluster.world.machine("reader").boot()
        connection = await dial(runtime, "broker-0", BROKER_PORT, "reader")
        await story(Reader(cluster, client, connection))

    play(whole, brokers=len(replicas), min_insync_replicas="1", **config)


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
        both = [reader.send({}, max_wait_ms=wait_ms) for wait_ms in (60_000, 0)]
        done, _ = await asyncio.wait(both, timeout=1)
        assert len(done) == 2, "the first waits no longer than until the second comes"
        answers = [each.result() for each in both]
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


def test_a_session_keeps_no_name_that_no_topic_has() -> None:
    """Sessions outlive connections, and are bounded by their partitions: a name may have 4 MB."""

    async def story(reader: Reader) -> None:
        sessions = reader.broker.fetch_sessions
        before = len(sessions)
        one = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)]
        fits, long = (
            [FetchTopic(topic="n" * (NAME_LENGTH_MAX + n), partitions=one)] for n in (0, 1)
        )
        full: dict[str, Any] = {"version": 12, "session_epoch": 0}
        kept: FetchResponse = await reader.send({}, topics=fits, **full)
        assert kept.session_id
        answer: FetchResponse = await reader.send({}, topics=long, **full)
        assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, 0)
        answer = await reader.send(
            {}, version=12, session_id=kept.session_id, session_epoch=1, topics=long
        )
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert len(sessions) == before

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
        assert cut.responses, "it is told"
        (data,) = cut.responses[0].partitions
        assert (data.high_watermark, data.diverging_epoch.end_offset) == (1, -1)
        assert await reader.ask({}) == {}

    played(story)


def watching(broker: Broker) -> set[object]:
    """Whoever is told of changes."""
    return {each for watchers in broker.waiting._watchers.values() for each in watchers}


def test_a_session_that_has_to_go_answers_what_waits_and_watches_nothing() -> None:
    """A follower's takes its slot in the middle of a request."""

    async def story(reader: Reader) -> None:
        await reader.ask(all_from(0))
        old = reader.broker.fetch_sessions._sessions[reader.session_id]
        waiting = reader.send({}, max_wait_ms=60_000)
        await reader.cluster.until(lambda: reader.broker.waiting.parked == 1, "it waits")
        assert old in watching(reader.broker)
        follower = ReplicaState(replica_id=7)
        taking = reader.send(all_from(0), session_id=0, session_epoch=0, replica_state=follower)
        done, _ = await asyncio.wait([waiting, taking], timeout=1)
        assert len(done) == 2, "both are answered"
        assert waiting.result().error_code == ErrorCode.NONE
        assert reader.broker.fetch_sessions._sessions.keys() == {taking.result().session_id}
        assert old not in watching(reader.broker)
        assert reader.broker.waiting.parked == 0

    played(story, max_incremental_fetch_session_cache_slots="1")


def test_a_session_that_grows_too_large_is_put_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_cache, "PARTITIONS_MAX", 3)

    async def story(reader: Reader) -> None:
        assert await reader.ask(all_from(0, 3)) == all_from(0, 3)
        assert await reader.ask({2: 0}) == {}, "it is as large as it may be"
        grown: FetchResponse = await reader.send({3: 0})
        assert grown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert len(reader.broker.fetch_sessions) == 0
        assert not watching(reader.broker)

    played(story)


def test_a_fetch_that_waits_says_how_large_it_may_become() -> None:
    """So that its connection is not read while it could come to owe too much."""

    async def story(reader: Reader) -> None:
        room = reader.broker.waiting

        def promised(reserved: int, partitions: int) -> bool:
            waits = [each.wait._deferred for each in room._parked]  # type: ignore[attr-defined]
            return (reserved, partitions) in [(each.reserved, each.partitions) for each in waits]

        await reader.ask(all_from(0))
        await reader.ask({}, forget=[0, 1, 2])
        waiting = [reader.send({}, max_wait_ms=60_000, max_bytes=8 * BYTES)]
        await reader.cluster.until(lambda: room.parked == 1, "it waits")
        assert promised(BYTES, 0), "one partition's bytes; what it waits for its session keeps"
        alone: dict[str, Any] = {"session_id": 0, "session_epoch": FINAL, "max_wait_ms": 60_000}
        waiting.append(reader.send(all_from(0), max_bytes=8 * BYTES, **alone))
        waiting.append(reader.send(all_from(0, 3), max_bytes=2 * BYTES, **alone))
        await reader.cluster.until(lambda: room.parked == 3, "all wait")
        assert promised(PARTITIONS * BYTES, PARTITIONS)
        assert promised(2 * BYTES, 3), "as much as it asks for"
        for each in waiting:
            each.cancel()

    played(story)


def test_who_has_much_to_read_of_one_partition_gets_the_others_too() -> None:
    async def story(reader: Reader) -> None:
        for index in (1, 3):
            await reader.produce(index)
        first = await reader.ask(all_from(0), max_bytes=1)
        assert [index for index, size in first.items() if size] == [1], "one batch"
        assert list(await reader.ask({}, max_bytes=1)) == [3]
        assert list(await reader.ask({}, max_bytes=1)) == [1], "it has read nothing of it yet"

    played(story)


def test_who_has_come_back_says_so_of_all_that_its_session_keeps() -> None:
    """A leader must not propose an ISR with a broker epoch that is over (KIP-903)."""

    async def story(reader: Reader) -> None:
        follower, partition = 1, reader.broker.partitions.find("t", 0)
        reader.cluster.crash(follower)
        assert isinstance(partition, Partition)
        assert partition.leading is not None
        state = partition.leading.state.followers[follower]
        before = state.broker_epoch
        for epoch in (before, before, before, before + 1):
            who = ReplicaState(replica_id=follower, replica_epoch=epoch)
            asked = {} if reader.session_id else {0: 0}
            await reader.ask(asked, replica_state=who)
            assert state.broker_epoch == epoch

    played(story, partitions=1, replicas=[0, 1], broker_session_timeout_ms="60000")


def test_no_fetch_waits_for_longer_than_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetch.WAIT_MS_MAX <= 60_000
    monkeypatch.setattr(fetch, "WAIT_MS_MAX", 1000)

    async def story(reader: Reader) -> None:
        waiting = reader.send(all_from(0), session_epoch=FINAL, max_wait_ms=2**31 - 1)
        await asyncio.wait([waiting], timeout=2)
        assert waiting.done()

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


def test_a_session_that_was_left_costs_appends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: a thousand of them, opened and left, doubled for good what an append costs."""
    monkeypatch.setattr(fetch_session, "UNHEARD_MAX", 0)
    monkeypatch.setattr(fetch_session, "UNHEARD_ROUNDS_MAX", 1)

    async def story(reader: Reader) -> None:
        watchers = reader.broker.waiting._watchers
        await reader.ask(all_from(0))
        many = len(watchers) + 1
        assert many > 1
        for _ in range(many):
            await reader.produce(0)
        assert not watchers
        await reader.produce(3)
        answer = await reader.ask({})
        assert set(answer) == {0, 3}, "what happened meanwhile is told to who comes again"
        assert await reader.ask({0: many, 3: 1}) == {}
        waiting = reader.send({}, max_wait_ms=60_000)
        await reader.cluster.until(lambda: reader.broker.waiting.parked == 1, "it waits")
        await reader.produce(2)
        told: FetchResponse = await waiting
        assert [data.partition_index for data in told.responses[0].partitions] == [2]

    played(story)


def test_what_is_named_and_forgotten_in_one_request_is_forgotten() -> None:
    """As in Apache Kafka; without a session there is nothing to forget."""

    async def story(reader: Reader) -> None:
        await reader.ask(all_from(0))
        for index in (1, 2):
            await reader.produce(index)
        assert list(await reader.ask({1: 0}, forget=[1])) == [2]
        reader.epoch = 0
        whole = await reader.ask(all_from(0), forget=[1], session_id=0)
        assert whole[1] > 0

    played(story)


def test_a_request_hears_of_what_changed_in_the_same_turn() -> None:
    """Method: the next request is handled before the loop has come to tell who watches."""

    async def story(reader: Reader) -> None:
        await reader.ask(all_from(0))
        assert await reader.ask({}) == {}
        waiting = reader.broker.waiting
        schedule, waiting._schedule = waiting._schedule, lambda: None  # type: ignore[method-assign]
        try:
            await reader.produce(2)
            assert list(await reader.ask({})) == [2]
        finally:
            waiting._schedule = schedule  # type: ignore[method-assign]

    played(story)


def test_a_request_whose_time_is_over_hears_of_what_it_was_not_told_yet() -> None:
    """Method: its time is over before the loop has come to tell who watches.

    Seen to fail: in a crowd that was still being told, an answer was empty though data had come.
    """

    async def story(reader: Reader) -> None:
        await reader.ask(all_from(0))
        assert await reader.ask({}) == {}
        waits = reader.send({}, max_wait_ms=60_000)
        waiting = reader.broker.waiting
        await reader.cluster.until(lambda: waiting.parked == 1, "it waits")
        schedule, waiting._schedule = waiting._schedule, lambda: None  # type: ignore[method-assign]
        try:
            await reader.produce(2)
            assert not waits.done()
            next(iter(waiting._parked)).expire()
            answer: FetchResponse = await waits
        finally:
            waiting._schedule = schedule  # type: ignore[method-assign]
        told = [each.partition_index for topic in answer.responses for each in topic.partitions]
        assert told == [2]

    played(story)


def test_an_answer_is_read_in_one_go_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: 50 MiB for one consumer kept everybody else waiting for 40 ms."""

    async def story(reader: Reader) -> None:
        for index in (0, 1, 2):
            await reader.produce(index)
        whole = await reader.ask(all_from(0))
        assert [index for index, size in whole.items() if size] == [0, 1, 2]
        monkeypatch.setattr(fetch, "READ_BYTES_MAX", 2 * whole[0])
        reader.epoch = 0
        short = await reader.ask(all_from(0), session_id=0)
        assert [index for index, size in short.items() if size] == [0, 1]
        rest = await reader.ask({0: 1, 1: 1})
        assert [index for index, size in rest.items() if size] == [2]

    played(story)


def test_a_followers_late_request_is_looked_at_again_by_its_session() -> None:
    """Seen to fail: a quiet partition stayed as the late one had set it back, and left the ISR."""
    touched: list[Hashable] = []

    class Session:
        sender = "a follower"

        def touched(self, key: Hashable) -> bool:
            touched.append(key)
            return False

        def ask(self) -> None:
            raise AssertionError("nothing waits")

    async def body(runtime: Runtime) -> None:
        log = open_directories(runtime).create("t", 0, TOPIC_ID, TopicSettings())
        append(log, 3)
        partition = replica(runtime, log)
        partition.lead(decided(replicas=(0, 1), isr=(0, 1)), alive(1))
        leader, waiting = leading(partition), partition._surroundings.waiting
        session = LastFetch()
        leader.fetched_by(1, 3, 0, -1, session)
        waiting.watch(partition.key, Session())
        leader.fetched_by(1, 2, 0, -1)
        waiting._tell(inf)
        assert touched == [partition.key]
        leader.fetched_by(1, 3, 0, -1, session)
        session.is_open = False
        leader.fetched_by(1, 3, 0, -1, LastFetch())
        waiting._tell(inf)
        assert touched == [partition.key], "a session that is over is not missed"

    virtual(body)


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
