"""What the attackers of `bench/attacks.py` have in common: their sockets, a topic, two frames."""

from __future__ import annotations

import itertools
import socket
import time
from contextlib import suppress
from typing import Any, NamedTuple

from holdfast.clients.blocking_driver import Driver
from holdfast.wire.administration import create_topic
from holdfast.wire.frame import encode_request
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

PRODUCE_VERSION = 9
FETCH_VERSION = 11
PATIENCE_S = 30.0
TOPIC = "attacked"
NAMED = 100_000


class Target(NamedTuple):
    """The broker that the neighbour's records go to."""

    host: str
    port: int
    bootstrap: str
    node: int


def connect(target: Target) -> socket.socket:
    connection = socket.create_connection((target.host, target.port), PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def take(connection: socket.socket) -> None:
    """Read one answer and forget it. OSError: the broker closed."""
    head = connection.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        raise ConnectionResetError
    rest = int.from_bytes(head, "big")
    while rest:
        part = len(connection.recv(min(rest, 1 << 20)))
        if not part:
            raise ConnectionResetError
        rest -= part


def repeat(target: Target, frames: list[bytes], in_flight: int = 1) -> None:
    """Send these for ever, so many unanswered at a time, on a connection made anew when closed."""
    while True:
        with suppress(OSError), connect(target) as connection:
            for number, frame in enumerate(itertools.cycle(frames)):
                connection.sendall(frame)
                if number >= in_flight:
                    take(connection)
        time.sleep(0.01)


def wait_until_led(driver: Driver, topic: str) -> None:
    """Wait until a new topic is there and has leaders."""
    while True:
        found = driver.metadata([topic]).topics[0].partitions
        if found and all(each.leader_id >= 0 for each in found):
            return
        time.sleep(0.1)


def make_topic(target: Target, partitions: int = 1, **configs: str) -> None:
    asked = create_topic(
        TOPIC,
        assignment={index: [target.node] for index in range(partitions)},
        configs={name.replace("_", "."): value for name, value in configs.items()},
    )
    with Driver(target.bootstrap, timeout_s=PATIENCE_S) as driver:
        driver.perform(asked)
        wait_until_led(driver, TOPIC)
    time.sleep(1.0)  # until the broker has taken up all of them


def produce(batch: bytes, partitions: int = 1, acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    topic = TopicProduceData(name=TOPIC, partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[topic])


def frame_of(message: Any, version: int) -> bytes:
    return encode_request(message, version, 1, "attacker")


def parked(
    topic: str, times: int, bytes_max: int = 1 << 20, min_bytes: int = 1 << 30, offset: int = 0
) -> bytes:
    """Return a fetch that names a partition so often, and waits for so many bytes."""
    named = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    request = FetchRequest(
        max_wait_ms=30_000,
        min_bytes=min_bytes,
        topics=[FetchTopic(topic=topic, partitions=[named] * times)],
    )
    return frame_of(request, FETCH_VERSION)
