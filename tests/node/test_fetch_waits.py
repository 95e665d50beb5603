"""What a Fetch that waits does when its log is damaged or its disk is lost, and whom it names.

Goal: a reader with a large min_bytes is told of damage as others are, and costs nobody their turn;
a client is sent to addresses of the listener that it came by. Method: a real leader over a real log
on a disk in memory, then damaged.
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.log.log_kit import TOPIC_ID, append, memory_disk, open_directories, virtual
from tests.node.replica_kit import alive, decided, leading, replica

from holdfast.config.topic import TopicSettings
from holdfast.core.metadata.image import Broker, Endpoint, MetadataImage
from holdfast.core.replica.replication import NO_SESSION
from holdfast.node.api import fetch as fetch_api
from holdfast.node.api.fetch import Fetch
from holdfast.node.api.fetch_readers import (
    Asked,
    ConsumerReader,
    FollowerReader,
    Refused,
    Seen,
    SeenByFollower,
)
from holdfast.node.api.fetch_session import FetchSession
from holdfast.node.api.leader import endpoints
from holdfast.node.broker.replica import Partition
from holdfast.node.door.api_table import READ_TOPIC
from holdfast.node.door.budget import Budget
from holdfast.node.door.request_context import ANONYMOUS, Client
from holdfast.runtime.ports import Runtime, never
from holdfast.testing.ground.disk import DiskFault
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import fetch as wire
from holdfast.wire.structs import LeaderNode

LARGE = 1 << 20


def a_leader(runtime: Runtime, replicas: tuple[int, ...] = (0,)) -> Partition:
    log = open_directories(runtime).create("t", 0, TOPIC_ID, TopicSettings())
    partition = replica(runtime, log)
    for _ in range(3):
        append(log)
    partition.lead(decided(replicas=replicas), alive(1))
    assert partition.high_watermark == 3
    return partition


def fetch(partition: Partition) -> Fetch:
    wanted = wire.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=LARGE)
    request = wire.FetchRequest(max_wait_ms=1000, min_bytes=LARGE, max_bytes=LARGE)
    broker: Any = SimpleNamespace(
        settings=SimpleNamespace(fetch_max_bytes=LARGE, replica_selector_class=""),
        runtime=SimpleNamespace(provoke=never),
        budgets=SimpleNamespace(of=lambda _: Budget()),
    )
    client = Client(ANONYMOUS, "127.0.0.1", "PLAINTEXT")
    context: Any = SimpleNamespace(version=11, client=client)
    session = FetchSession(broker, -1, by_id=True)
    session.ask_for("t", TOPIC_ID, wanted)
    for asked in session.stirred:
        asked.found = partition
    return Fetch(broker, context, request, ConsumerReader(broker, context, rack=""), session)


def begin(
    reader: FollowerReader, partition: Partition, wanted: wire.FetchPartition
) -> Seen | Refused:
    seen = reader.look(partition, wanted)
    reader.begin({Asked("t", TOPIC_ID, wanted, partition): seen}, NO_SESSION)
    return seen


@pytest.mark.parametrize(
    ("lost", "code"),
    [(False, ErrorCode.CORRUPT_MESSAGE), (True, ErrorCode.KAFKA_STORAGE_ERROR)],
)
def test_a_reader_that_waits_for_much_is_told_at_once(lost: bool, code: ErrorCode) -> None:
    """Counting what there is raised, each time that the partition was woken."""

    async def body(runtime: Runtime) -> None:
        partition = a_leader(runtime)
        directory = leading(partition).log.directory
        waits = fetch(partition)
        assert waits.begin() is None, "there is not enough yet"
        if lost:
            memory_disk(runtime).inject(DiskFault(operations={"read"}, code=errno.EIO))
        else:
            memory_disk(runtime).corrupt(f"{directory}/{0:020}.log", 16, b"\xff")
        response = waits.begin()
        assert response is not None
        assert response.responses[0].partitions[0].error_code == code

    virtual(body)


@pytest.mark.parametrize("bound", ["the request's", "the broker's", "ours"])
def test_all_that_an_answer_can_hold_is_enough(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: there are more bytes than an answer may have, and fewer than the reader waits for.

    Seen to fail: who asked for at least 16 MiB, of which an answer has 8, waited each time.
    """

    async def body(runtime: Runtime) -> None:
        partition = a_leader(runtime)
        there = leading(partition).log.bytes_between(0, 3)
        waits = fetch(partition)
        assert waits.begin() is None, "an answer could hold more"
        if bound == "the request's":
            waits._request.max_bytes = there - 1
        elif bound == "the broker's":
            waits._broker.settings.fetch_max_bytes = there - 1
        else:
            monkeypatch.setattr(fetch_api, "READ_BYTES_MAX", there - 1)
        response = waits.begin()
        assert response is not None, "nothing that comes could make the answer larger"
        assert response.responses[0].partitions[0].records

    virtual(body)


def test_a_follower_s_fetch_acknowledges_once() -> None:
    """What it says of its log was true when it came; the answer, later, says nothing more of it.

    Seen to fail: a fetch that had waited counted as one of that moment, so that its follower was
    taken for caught up with what came meanwhile.
    """

    async def body(runtime: Runtime) -> None:
        partition = a_leader(runtime, replicas=(0, 1))
        leader = leading(partition)
        wanted = wire.FetchPartition(partition=0, fetch_offset=3, log_start_offset=0)
        broker: Any = SimpleNamespace(
            settings=SimpleNamespace(replica_selector_class=""),
            runtime=runtime,
            image=SimpleNamespace(brokers={}),
        )
        context: Any = SimpleNamespace(version=17, allows=lambda *_: True)
        reader = FollowerReader(broker, context, node=1, broker_epoch=-1)
        begin(reader, partition, wanted)
        came_ms = leader.state.followers[1].fetched_ms
        await asyncio.sleep(1)
        append(leader.log)
        leader.state.appended(leader.log.end, runtime.clock.monotonic_ms())
        seen = reader.look(partition, wanted)
        assert isinstance(seen, SeenByFollower)
        seen.answered(0)
        follower = leader.state.followers[1]
        assert (follower.fetched_ms, follower.leader_end_at_fetch) == (came_ms, 3)
        assert follower.told_high_watermark == 3

    virtual(body)


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_follower_beyond_the_log_s_end_acknowledges_nothing(epoch: int) -> None:
    """What it holds there is not this leader's, and its ISR must not count with it.

    Seen to fail: one that names no epoch was taken for caught up, so that the high watermark
    counted a replica that lacks what was acknowledged.
    """

    async def body(runtime: Runtime) -> None:
        partition = a_leader(runtime, replicas=(0, 1))
        wanted = wire.FetchPartition(
            partition=0, fetch_offset=4, last_fetched_epoch=epoch, log_start_offset=0
        )
        broker: Any = SimpleNamespace(
            settings=SimpleNamespace(replica_selector_class=""),
            runtime=runtime,
            image=SimpleNamespace(brokers={}),
        )
        context: Any = SimpleNamespace(version=17, need=READ_TOPIC, allows=lambda *_: True)
        reader = FollowerReader(broker, context, node=1, broker_epoch=-1)
        before = replace(leading(partition).state.followers[1])
        seen = begin(reader, partition, wanted)
        assert leading(partition).state.followers[1] == before
        if epoch == -1:
            assert seen == Refused(ErrorCode.OFFSET_OUT_OF_RANGE, 0)
        else:
            assert isinstance(seen, SeenByFollower)
            assert seen.diverging == wire.EpochEndOffset(epoch=0, end_offset=3)

    virtual(body)


def test_a_client_is_sent_to_the_listener_it_came_by() -> None:
    """It was given the address that brokers use among themselves, which it may not reach."""
    known = MetadataImage()
    known.brokers[1] = Broker(
        broker_id=1,
        epoch=1,
        incarnation_id=bytes(16),
        endpoints=(Endpoint("INSIDE", "10.0.0.1", 9092), Endpoint("OUTSIDE", "example", 9192)),
    )
    broker: Any = SimpleNamespace(image=known, client_listener="INSIDE")
    outside = LeaderNode(node_id=1, host="example", port=9192, rack=None)
    assert endpoints(broker, [1, 2], "OUTSIDE") == [outside]
    assert endpoints(broker, [1], "ELSEWHERE") == []
