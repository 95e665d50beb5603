"""What a Fetch that waits does when its log is damaged or its disk is lost, and whom it names.

Goal: a reader with a large min_bytes is told of damage as others are, and costs nobody their turn;
a client is sent to addresses of the listener that it came by. Method: a real leader over a real log
on a disk in memory, then damaged.
"""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

import pytest
from tests.log.log_kit import TOPIC_ID, append, memory_disk, open_directories, virtual

from holdfast.config.topic import TopicSettings
from holdfast.core import image
from holdfast.core.image import Broker, Endpoint, MetadataImage
from holdfast.node.api.fetch import Asked, FetchWait
from holdfast.node.api.leader import endpoints
from holdfast.node.partition import Partition
from holdfast.node.waiting import WaitingRoom
from holdfast.runtime.ports import Runtime, never
from holdfast.testing.disk import DiskFault
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import fetch as wire

LARGE = 1 << 20


def leading(runtime: Runtime) -> Partition:
    settings = TopicSettings()
    log = open_directories(runtime).create("t", 0, TOPIC_ID, settings)
    partition = Partition(
        node=0,
        topic="t",
        topic_id=TOPIC_ID,
        index=0,
        log=log,
        settings=settings,
        lag_ms_max=1000,
        clock=runtime.clock,
        waiting=WaitingRoom(asyncio.get_running_loop(), runtime.clock),
        propose=lambda _partition, _proposal: None,
    )
    decided = image.Partition(
        topic="t", topic_id=TOPIC_ID, index=0, replicas=(0,), isr=(0,), leader=0, leader_epoch=0
    )
    for _ in range(3):
        append(log)
    partition.lead(decided, {})
    assert partition.high_watermark == 3
    return partition


def waiting(partition: Partition) -> FetchWait:
    wanted = wire.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=LARGE)
    request = wire.FetchRequest(max_wait_ms=1000, min_bytes=LARGE, max_bytes=LARGE)
    broker: Any = SimpleNamespace(
        settings=SimpleNamespace(fetch_max_bytes=LARGE), runtime=SimpleNamespace(provoke=never)
    )
    context: Any = SimpleNamespace(version=11, listener="PLAINTEXT")
    asked = Asked("t", TOPIC_ID, wanted, partition, ErrorCode.NONE)
    return FetchWait(broker, context, request, [asked], None)


@pytest.mark.parametrize(
    ("lost", "code"),
    [(False, ErrorCode.CORRUPT_MESSAGE), (True, ErrorCode.KAFKA_STORAGE_ERROR)],
)
def test_a_reader_that_waits_for_much_is_told_at_once(lost: bool, code: ErrorCode) -> None:
    """Counting what there is raised, each time that the partition was woken."""

    async def body(runtime: Runtime) -> None:
        partition = leading(runtime)
        assert partition.log is not None
        wait = waiting(partition)
        assert wait.answer(final=False) is None, "there is not enough yet"
        if lost:
            memory_disk(runtime).inject(DiskFault(operations={"read"}, code=errno.EIO))
        else:
            memory_disk(runtime).corrupt(f"{partition.log.directory}/{0:020}.log", 16, b"\xff")
        response = wait.answer(final=False)
        assert response is not None
        assert response.responses[0].partitions[0].error_code == code

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
    assert list(endpoints(broker, [1, 2], "OUTSIDE")) == [(1, "example", 9192, None)]
    assert list(endpoints(broker, [1], "ELSEWHERE")) == []
