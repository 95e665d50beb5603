"""What the log's tests share: directories on a real or a memory disk, and batches to append."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from holdfast.config.topic import TopicSettings
from holdfast.log.checkpoints import MetaProperties, write_meta_properties
from holdfast.log.directories import LogDirectories
from holdfast.log.log import Log
from holdfast.runtime.ports import Disk, Runtime
from holdfast.runtime.real import real_runtime
from holdfast.wire.batch import Codec, Record, batches, build_batch

ResultT = TypeVar("ResultT")

TOPIC_ID = bytes(range(16))
CLUSTER_ID = "abcdefghijklmnopqrstuv"
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Intervals:
    log_retention_check_interval_ms: int = 300_000
    log_initial_task_delay_ms: int = 30_000
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    producer_id_expiration_ms: int = 86_400_000


class SteppingClock:
    """A clock that stands until a test moves it."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


def runtime_with(**ports: Any) -> Runtime:
    """Return the real runtime with some of its ports exchanged."""
    return replace(real_runtime(), **ports)


def small_settings(**changes: Any) -> TopicSettings:
    """Return settings under which a few batches fill a segment."""
    values = {"segment_bytes": 2000, "index_interval_bytes": 200, **changes}
    return TopicSettings(**values)


def format_directory(disk: Disk, path: str, *, node_id: int = 1, number: int = 1) -> str:
    disk.make_directories(path)
    properties = MetaProperties(
        cluster_id=CLUSTER_ID, node_id=node_id, directory_id=number.to_bytes(16, "big")
    )
    write_meta_properties(disk, path, properties)
    return path


def open_directories(
    runtime: Runtime, paths: Sequence[str], settings: TopicSettings | None = None, **changes: Any
) -> LogDirectories:
    """Format what is not formatted yet, and load."""
    for number, path in enumerate(paths, 1):
        if not runtime.disk.exists(f"{path}/meta.properties"):
            format_directory(runtime.disk, path, number=number)
    chosen = settings or small_settings()
    values: dict[str, Any] = {
        "node_id": 1,
        "cluster_id": None,
        "intervals": Intervals(),
        "settings_for": lambda _: chosen,
        **changes,
    }
    directories = LogDirectories(runtime, paths, **values)
    directories.load()
    return directories


def make_batch(count: int = 1, *, size: int = 20, timestamp: int = NOW_MS, **fields: Any) -> bytes:
    """Return a client's batch of `count` records of about `size` bytes each."""
    records = [
        Record(value=bytes([65 + index % 26]) * size, timestamp=timestamp + index)
        for index in range(count)
    ]
    return bytes(build_batch(records, **{"codec": Codec.NONE, **fields}))


def append(log: Log, count: int = 1, *, epoch: int = 0, **fields: Any) -> int:
    return log.append_as_leader(memoryview(bytearray(make_batch(count, **fields))), epoch)


def everything(log: Log) -> bytes:
    """Return all bytes of a log, read as a consumer would."""
    parts = []
    offset = log.start
    while offset < log.end:
        found = log.read(offset, 1 << 20, log.end)
        assert not found.error
        assert found.next_offset > offset, "a reader must get on"
        parts.append(found.records)
        offset = found.next_offset
    return b"".join(parts)


def bases(data: bytes) -> list[int]:
    """Return the base offset of each batch in what was read."""
    return [header.base_offset for _, header in batches(data)]


def run(test: Callable[[], Awaitable[ResultT]]) -> ResultT:
    async def body() -> ResultT:
        return await test()

    return asyncio.run(body())


async def restart(
    directories: LogDirectories,
    runtime: Runtime,
    path: Path | str,
    *,
    clean: bool,
    settings: TopicSettings | None = None,
) -> LogDirectories:
    """Stop and load again: properly, or as after SIGKILL."""
    if clean:
        await directories.close(broker_epoch=7)
    else:
        crash(directories)
    return open_directories(runtime, [str(path)], settings)


def crash(directories: LogDirectories) -> None:
    """Let go of everything as a dying process does: nothing is written any more."""
    for timer in directories._timers.values():
        timer.cancel()
    for directory in directories.directories:
        directory.close()
