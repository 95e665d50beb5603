"""What ListOffsets answers while a new leader does not know yet how far its log is committed.

Goal: nobody is given an end that lies before what was acknowledged to somebody else. Method: a
leader over a real log on a disk in memory, elected with a high watermark behind its log's end.

Rules: fetch.md#latest-after-an-election.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.log.log_kit import (
    TOPIC_ID,
    append,
    make_batch,
    open_directories,
    virtual,
    with_body,
)
from tests.node.replica_kit import alive, decided, leading, replica

from holdfast.config.topic import TopicSettings
from holdfast.log.search import OPENING_EFFORT
from holdfast.log.segment import Segment
from holdfast.node.api import list_offsets
from holdfast.node.broker.replica import Partition
from holdfast.node.door.api_table import DESCRIBE_TOPIC
from holdfast.node.door.request_context import Deferred
from holdfast.runtime.ports import Runtime
from holdfast.runtime.sliced_work import SlicedWork
from holdfast.testing.ground.worker import MemoryWorker
from holdfast.wire.batch import HEADER_SIZE
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import list_offsets as wire
from holdfast.wire.well_known import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)

FOLLOWER = 1
NEWEST = 11
WRITTEN = 3  # records that an earlier leader wrote, which may all have been acknowledged
LONG_AGO = 0  # a time before all of them


def just_elected(runtime: Runtime) -> Partition:
    log = open_directories(runtime).create("t", 0, TOPIC_ID, TopicSettings())
    for _ in range(WRITTEN):
        append(log, timestamp=1_000)
    partition = replica(runtime, log)
    partition.lead(decided(replicas=(0, FOLLOWER), isr=(0, FOLLOWER)), alive(FOLLOWER))
    assert partition.high_watermark < WRITTEN
    return partition


def handled(
    partition: Partition,
    timestamp: int,
    version: int = NEWEST,
    replica_id: int = -1,
    sliced: SlicedWork | None = None,
    deferred: Deferred | None = None,
) -> wire.ListOffsetsResponse | Deferred:
    broker: Any = SimpleNamespace(
        partitions=SimpleNamespace(
            leading=lambda _topic, _index, epoch: partition.as_leader(epoch),
            find=lambda _topic, _index: partition,
        ),
        sliced_work=sliced or SlicedWork(asyncio.get_running_loop(), MemoryWorker(1)),
    )
    context: Any = SimpleNamespace(
        sender=0,
        version=version,
        need=DESCRIBE_TOPIC,
        allows=lambda *_: True,
        defer=lambda **_: deferred,
    )
    wanted = wire.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = wire.ListOffsetsTopic(name="t", partitions=[wanted])
    request = wire.ListOffsetsRequest(replica_id=replica_id, topics=[topic])
    return list_offsets.handle(broker, context, request)


def ask(
    partition: Partition, timestamp: int, version: int = NEWEST, replica_id: int = -1
) -> wire.ListOffsetsPartitionResponse:
    response = handled(partition, timestamp, version, replica_id)
    assert isinstance(response, wire.ListOffsetsResponse), "answered at once"
    return response.topics[0].partitions[0]


def played(story: Callable[[Partition], None]) -> None:
    async def body(runtime: Runtime) -> None:
        story(just_elected(runtime))

    virtual(body)


@pytest.mark.parametrize("timestamp", [LATEST, MAX_TIMESTAMP, LONG_AGO])
def test_the_end_is_unknown_until_the_epoch_s_start_is_committed(timestamp: int) -> None:
    """Seen to fail: "latest" was the high watermark of before the election.

    A consumer that begins there reads again what it was given already, or a tool that stops there
    leaves out what was acknowledged.
    """

    def story(partition: Partition) -> None:
        answer = ask(partition, timestamp)
        assert (answer.error_code, answer.offset) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        leader = leading(partition)
        leader.fetched_by(FOLLOWER, WRITTEN, 0, -1)
        answer = ask(partition, timestamp)
        expected = WRITTEN if timestamp == LATEST else 0
        assert (answer.error_code, answer.offset) == (ErrorCode.NONE, expected)

    played(story)


def test_an_old_client_hears_of_it_in_its_own_words() -> None:
    """Version 5 brought the error; before it there was one that such a client retries."""

    def story(partition: Partition) -> None:
        assert ask(partition, LATEST, version=4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert ask(partition, LATEST, version=5).error_code == ErrorCode.OFFSET_NOT_AVAILABLE

    played(story)


def test_a_follower_and_who_asks_for_the_beginning_need_not_wait() -> None:
    """A follower wants the log's own end, and the beginning is known at any time."""

    def story(partition: Partition) -> None:
        assert ask(partition, LATEST, replica_id=FOLLOWER).offset == WRITTEN
        assert ask(partition, EARLIEST).offset == 0

    played(story)


def test_who_debugs_is_told_the_end_of_the_replica_that_is_here() -> None:
    """Seen to fail: replica id -2 was a consumer, which a follower refuses."""

    async def body(runtime: Runtime) -> None:
        partition = just_elected(runtime)
        assert ask(partition, LATEST, replica_id=list_offsets.DEBUGGING).offset == WRITTEN
        partition.follow(FOLLOWER, 1)
        partition.is_compared = True
        refused = ask(partition, LATEST)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = ask(partition, LATEST, replica_id=list_offsets.DEBUGGING)
        assert (answer.error_code, answer.offset) == (ErrorCode.NONE, WRITTEN)

    virtual(body)


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(EARLIEST_LOCAL, 0), (LATEST_TIERED, -1), (EARLIEST_PENDING_UPLOAD, -1)],
)
def test_nothing_is_in_a_tier_and_nothing_waits_for_one(timestamp: int, offset: int) -> None:
    """Rules: fetch.md#special-timestamps. Seen to fail: -6 was the log's start."""

    def story(partition: Partition) -> None:
        answer = ask(partition, timestamp)
        assert answer.error_code == ErrorCode.NONE
        assert answer.offset == offset
        assert answer.leader_epoch == (-1 if offset < 0 else partition.log.epoch_at(0))  # type: ignore[union-attr]

    played(story)


def lying(runtime: Runtime) -> Partition:
    """A leader of batches that claim a time that none of their records has."""
    log = open_directories(runtime).create("t", 0, TOPIC_ID, TopicSettings())
    for _ in range(500):
        batch = make_batch(timestamp=1_000)
        log.append_as_leader(
            memoryview(bytearray(with_body(batch, batch[HEADER_SIZE:], max_timestamp=9_000))), 0
        )
    partition = replica(runtime, log)
    partition.lead(decided(), {})
    assert partition.high_watermark == log.end
    return partition


@pytest.mark.parametrize("end", ["answered", "lost", "deposed"])
def test_a_long_look_up_is_a_promise(end: str) -> None:
    """Seen to fail: with the look-up done whole in the handler."""

    async def body(runtime: Runtime) -> None:
        partition = lying(runtime)
        sliced = SlicedWork(asyncio.get_running_loop(), runtime.worker)
        answers: list[Deferred] = []
        deferred = Deferred(lambda response: [response], answers.append)  # type: ignore[list-item]
        assert handled(partition, 5_000, sliced=sliced, deferred=deferred) is deferred
        assert not deferred.is_answered
        await asyncio.sleep(0.003)
        assert sliced.pieces == 1
        if end == "lost":
            deferred.lost()
        elif end == "deposed":
            partition.follow(1, 1)
        for _ in range(1000):
            if not sliced.pieces:
                break
            await asyncio.sleep(0.001)
        assert not sliced.pieces
        assert deferred.is_answered == (end != "lost")
        if end != "lost":
            response: Any = deferred.buffers[0]
            answer = response.topics[0].partitions[0]
            wanted = ErrorCode.NOT_LEADER_OR_FOLLOWER if end == "deposed" else ErrorCode.NONE
            assert (answer.error_code, answer.offset) == (wanted, -1)

    virtual(body)


def test_many_long_look_ups_at_once_do_little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a client that sends a hundred together holds the loop for no hundred slices.

    Seen to fail: with a whole slice for each of them.
    """

    async def body(runtime: Runtime) -> None:
        partition = lying(runtime)
        sliced = SlicedWork(asyncio.get_running_loop(), runtime.worker)
        opened = 0
        read = Segment.read

        def counted(segment: Segment, position: int, size: int) -> bytes:
            nonlocal opened
            opened += 1
            return read(segment, position, size)

        monkeypatch.setattr(Segment, "read", counted)
        for _ in range(100):
            deferred = Deferred(lambda _: [], lambda _: None)
            assert handled(partition, 5_000, sliced=sliced, deferred=deferred) is deferred
        assert sliced.pieces == 100
        assert opened < 15 / OPENING_EFFORT

    virtual(body)


def test_many_that_nobody_has_are_answered_in_turns() -> None:
    """Seen to fail: 120,000 names were looked up in one go, some tenths of a second."""

    async def body(_runtime: Runtime) -> None:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker: Any = SimpleNamespace(
            partitions=SimpleNamespace(leading=lambda *_: unknown),
            sliced_work=SlicedWork(asyncio.get_running_loop(), MemoryWorker(1)),
        )
        context: Any = SimpleNamespace(
            version=NEWEST, need=DESCRIBE_TOPIC, allows=lambda *_: True, sender=0
        )
        count = 4 * round(1 / list_offsets.ASKED_EFFORT)
        wanted = [
            wire.ListOffsetsPartition(partition_index=index, timestamp=LATEST)
            for index in range(count)
        ]
        topic = wire.ListOffsetsTopic(name="t", partitions=wanted)
        request = wire.ListOffsetsRequest(replica_id=-1, topics=[topic])
        response = wire.ListOffsetsResponse()
        turns = list(list_offsets._fill(broker, context, request, response))
        assert len(turns) >= 3
        assert [each.partition_index for each in response.topics[0].partitions] == [*range(count)]

    virtual(body)
