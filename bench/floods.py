"""Attackers that send many requests, one that names very much, or one that never ends; and who
reads slowly. As in `attackers`: a part that prepares, and one that runs until its process is ended.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from attacker_kit import (
    NAMED,
    PATIENCE_S,
    PRODUCE_VERSION,
    TOPIC,
    Target,
    connect,
    frame_of,
    make_topic,
    parked,
    produce,
    repeat,
    take,
)
from holdfast.clients.blocking_driver import Driver
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.messages.api_versions import ApiVersionsRequest
from holdfast.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.structs import ResourceType

_TOGETHER = 1_000
_WOKEN = 500
_SLOW = 100
_ANNOUNCED = 100 * 1024 * 1024


def _batch(size: int) -> bytes:
    return bytes(build_batch([Record(value=os.urandom(size), timestamp=1)]))


# -- many requests ---------------------------------------------------------------------------------


def _prepare_requests(_: Target) -> bytes:
    return frame_of(ApiVersionsRequest(), 0)


def _prepare_fetches(target: Target) -> bytes:
    """Fetch where there is nothing to be had, and do not wait for it."""
    make_topic(target)
    return parked(TOPIC, 1, min_bytes=0)


def _run_requests(target: Target, frame: bytes) -> None:
    """Send a thousand of the smallest requests in one write, read all answers, and again."""
    frames = frame * _TOGETHER
    while True:
        with suppress(OSError), connect(target) as connection:
            while True:
                connection.sendall(frames)
                for _number in range(_TOGETHER):
                    take(connection)


def _prepare_metadata(target: Target) -> bytes:
    make_topic(target, partitions=1_000)
    return frame_of(MetadataRequest(topics=None, allow_auto_topic_creation=False), 9)


def _run_metadata(target: Target, frame: bytes) -> None:
    repeat(target, [frame], in_flight=20)


def _run_woken(target: Target, _: None) -> None:
    """Let five hundred fetches of a megabyte on one connection wait, and wake them all."""
    batch = _batch(900_000)
    with Driver(target.bootstrap, timeout_s=PATIENCE_S) as driver:
        end = 0
        while True:
            with suppress(OSError), connect(target) as connection:
                connection.settimeout(2.0)
                connection.sendall(parked(TOPIC, 1, min_bytes=1, offset=end) * _WOKEN)
                time.sleep(0.2)
                peer = driver.peer(target.node)
                answer = peer.send(produce(batch), version=PRODUCE_VERSION)
                end = answer.responses[0].partition_responses[0].base_offset + 1
                time.sleep(0.2)


# -- one that names very much ----------------------------------------------------------------------


def _name_in_offsets(_: Target) -> bytes:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * NAMED
    topic = ListOffsetsTopic(name="neighbour", partitions=partitions)
    return frame_of(ListOffsetsRequest(topics=[topic]), 5)


def _name_in_metadata(_: Target) -> bytes:
    topics = [MetadataRequestTopic(name="neighbour")] * NAMED
    return frame_of(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)


def _name_in_configs(_: Target) -> bytes:
    resource = DescribeConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name="neighbour", configuration_keys=None
    )
    return frame_of(DescribeConfigsRequest(resources=[resource] * NAMED), 4)


def _name_in_deletion(_: Target) -> bytes:
    partitions = [DeleteRecordsPartition(partition_index=0, offset=0)] * NAMED
    topic = DeleteRecordsTopic(name="neighbour", partitions=partitions)
    return frame_of(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)


def _run_named(target: Target, frame: bytes) -> None:
    repeat(target, [frame])


# -- slow peers ------------------------------------------------------------------------------------


def _prepare_slow_reader(target: Target) -> None:
    make_topic(target)
    with Driver(target.bootstrap, timeout_s=PATIENCE_S) as driver:
        for _ in range(22):
            driver.peer(target.node).send(produce(_batch(900_000)), version=PRODUCE_VERSION)


def _run_slow_reader(target: Target, _: None) -> None:
    """Ask for 20 MB on twenty connections, and take a few bytes of each at a time."""
    frame = parked(TOPIC, 1, 20_000_000, 1)
    while True:
        connections: list[socket.socket] = []
        with suppress(OSError):
            for _number in range(20):
                connections.append(connect(target))
                connections[-1].sendall(frame)
            while True:
                for connection in connections:
                    if not connection.recv(1_000):
                        raise ConnectionResetError
                time.sleep(0.001)
        for connection in connections:
            connection.close()


def _run_slow_writer(target: Target, _: None) -> None:
    """Announce 100 MB on a hundred connections, and send each of them byte by byte."""
    head = _ANNOUNCED.to_bytes(4, "big") + bytes(4)  # Produce, the one that may be so large
    while True:
        connections: list[socket.socket] = []
        with suppress(OSError):
            for _number in range(_SLOW):
                connections.append(connect(target))
                connections[-1].sendall(head)
            while True:
                for connection in connections:
                    connection.sendall(b"x")
        for connection in connections:
            connection.close()


FLOODS: dict[str, tuple[Callable[[Target], Any] | None, Callable[..., None]]] = {
    "small-requests": (_prepare_requests, _run_requests),
    "small-fetches": (_prepare_fetches, _run_requests),
    "metadata-of-all": (_prepare_metadata, _run_metadata),
    "woken-fetches": (make_topic, _run_woken),
    "named-in-offsets": (_name_in_offsets, _run_named),
    "named-in-metadata": (_name_in_metadata, _run_named),
    "named-in-configs": (_name_in_configs, _run_named),
    "named-in-deletion": (_name_in_deletion, _run_named),
    "slow-reader": (_prepare_slow_reader, _run_slow_reader),
    "slow-writer": (None, _run_slow_writer),
}
