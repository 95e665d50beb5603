"""What the log's tests share: directories on a real or a memory disk, and batches to append."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest

from holdfast.config.node import NodeSettings
from holdfast.config.topic import TopicSettings
from holdfast.log.checkpoints import MetaProperties, write_meta_properties
from holdfast.log.directories import LogDirectories
from holdfast.log.index import OffsetIndex, TimeIndex
from holdfast.log.log import Log
from holdfast.log.search import FoundRecord
from holdfast.runtime.ports import Disk, Runtime
from holdfast.runtime.sliced_work import Effort, Steps
from holdfast.testing.ground.disk import MemoryDisk, MemoryFile
from holdfast.testing.ground.loop import VirtualLoop
from holdfast.testing.ground.loop import run as run_virtual
from holdfast.testing.ground.network import Fabric
from holdfast.testing.ground.runtime import SeededRandom, VirtualClock
from holdfast.testing.ground.worker import MemoryWorker
from holdfast.wire.batch import (
    HEADER_SIZE,
    Codec,
    Record,
    assign_max_timestamp,
    batches,
    build_batch,
    read_header,
)
from holdfast.wire.batch_header import HEADER, LENGTH_END
from holdfast.wire.errors import WireError

ResultT = TypeVar("ResultT")

TOPIC_ID = bytes(range(16))
CLUSTER_ID = "abcdefghijklmnopqrstuv"
LOGS = "/logs"
NOW_MS = 1_767_225_600_000  # when virtual time begins


def virtual(test: Callable[[Runtime], Coroutine[Any, Any, ResultT]], *, seed: int = 1) -> ResultT:
    """Run a test in virtual time over a memory disk; timers of minutes cost nothing."""
    loop = VirtualLoop()
    clock = VirtualClock(loop, skew_ms=0, booted_ms=1)
    runtime = Runtime(
        clock=clock,
        random=SeededRandom(seed),
        network=Fabric(seed).host("here"),
        disk=MemoryDisk(seed, now_ms=clock.wall_ms),
        worker=MemoryWorker(seed),
    )
    return run_virtual(lambda: test(runtime), loop=loop)


def memory_disk(runtime: Runtime) -> MemoryDisk:
    assert isinstance(runtime.disk, MemoryDisk)
    return runtime.disk


def fail_to_close(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    """Have close(2) fail below a prefix, as on NFS and FUSE: what was written is not."""

    def close(file: MemoryFile) -> None:
        file._open = False
        if file._path.startswith(prefix):
            raise OSError(errno.EIO, "close", file._path)

    monkeypatch.setattr(MemoryFile, "close", close)


def after_crash(runtime: Runtime, *, power: bool = False, torn: bool = False) -> Runtime:
    """Return the next process's ports after SIGKILL, or after a power cut."""
    disk = memory_disk(runtime)
    return replace(runtime, disk=disk.power_cut(torn=torn) if power else disk.crash())


def offset_entries(index: OffsetIndex) -> list[tuple[int, int]]:
    """Return all (offset, position) pairs of an index."""
    index.load()
    pairs = zip(index._offsets, index._positions, strict=True)
    return [(index._base + relative, position) for relative, position in pairs]


def time_entries(index: TimeIndex) -> list[tuple[int, int]]:
    """Return all (timestamp, offset) pairs of an index."""
    index.load()
    pairs = zip(index._timestamps, index._offsets, strict=True)
    return [(timestamp, index._base + relative) for timestamp, relative in pairs]


def small_settings(**changes: Any) -> TopicSettings:
    """Return settings under which a few batches fill a segment."""
    values = {"segment_bytes": 2000, "index_interval_bytes": 200, **changes}
    return TopicSettings(**values)


def format_directory(
    disk: Disk, path: str, *, node_id: int = 1, number: int = 1, cluster_id: str = CLUSTER_ID
) -> str:
    disk.make_directories(path)
    properties = MetaProperties(
        cluster_id=cluster_id, node_id=node_id, directory_id=number.to_bytes(16, "big")
    )
    write_meta_properties(disk, path, properties)
    disk.sync_directory(path.rpartition("/")[0] or "/")
    return path


def open_directories(
    runtime: Runtime,
    paths: Sequence[str] = (LOGS,),
    settings: TopicSettings | None = None,
    *,
    file_limit: int = 8192,
    **changes: Any,
) -> LogDirectories:
    """Format what is not formatted yet, and load. `changes` are of the node's settings."""
    for number, path in enumerate(paths, 1):
        if not runtime.disk.exists(f"{path}/meta.properties"):
            format_directory(runtime.disk, path, number=number)
    chosen = settings or small_settings()
    own = NodeSettings(
        **{"node_id": 1, "log_dirs": tuple(paths), "metadata_log_dir": "", **changes}
    )
    directories = LogDirectories(runtime, own, lambda _: chosen, file_limit=file_limit)
    directories.load()
    return directories


def new_log(runtime: Runtime, settings: TopicSettings | None = None) -> tuple[LogDirectories, Log]:
    """Return fresh directories with one empty replica, `t-0`."""
    directories = open_directories(runtime, settings=settings)
    return directories, directories.create("t", 0, TOPIC_ID, settings or small_settings())


def reopened(runtime: Runtime, settings: TopicSettings | None = None) -> tuple[LogDirectories, Log]:
    """Load what an earlier process left."""
    directories = open_directories(runtime, settings=settings)
    log = directories.get("t", 0)
    assert log is not None, "the replica is gone"
    return directories, log


def make_batch(count: int = 1, *, size: int = 20, timestamp: int = NOW_MS, **fields: Any) -> bytes:
    """Return a client's batch of `count` records of about `size` bytes each."""
    records = [
        Record(value=bytes([65 + index % 26]) * size, timestamp=timestamp + index)
        for index in range(count)
    ]
    return bytes(build_batch(records, **{"codec": Codec.NONE, **fields}))


def with_body(batch: bytes, body: bytes, **fields: int) -> bytes:
    """Return the batch with another body, and other fields in its header; its CRC is right."""
    header = read_header(batch)._replace(
        batch_length=HEADER_SIZE - LENGTH_END + len(body), **fields
    )
    changed = bytearray(HEADER.pack(*header) + body)
    assign_max_timestamp(changed, header.max_timestamp)
    return bytes(changed)


def steps_of(steps: Steps[ResultT]) -> tuple[ResultT, list[object]]:
    """Go through all slices and jobs at once; return the outcome, and what was yielded.

    The generator's own effort is what bounds a slice, so that says how it was cut.
    """
    turns: list[object] = []
    advance = steps.__next__
    while True:
        try:
            wanted = advance()
        except StopIteration as end:
            return end.value, turns
        turns.append(wanted)
        advance = steps.__next__
        if callable(wanted):
            try:
                outcome = wanted()
            except WireError as error:
                advance = partial(steps.throw, error)
            else:
                advance = partial(steps.send, outcome)


def found_at(log: Log, timestamp: int) -> FoundRecord | None:
    return steps_of(log.find_timestamp(timestamp, Effort()))[0]


def newest_of(log: Log) -> FoundRecord | None:
    return steps_of(log.find_max_timestamp(Effort()))[0]


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


def crash(directories: LogDirectories) -> None:
    """Let go of everything as a dying process does: nothing is written any more."""
    for timer in directories._timers.values():
        timer.cancel()
    directories.cleaner._is_started = False
    if directories.cleaner._timer is not None:
        directories.cleaner._timer.cancel()
    for directory in directories.directories:
        directory.close()


def many_headers(count: int) -> bytes:
    """Return a batch's body of one record that has nothing but so many empty headers."""
    record = b"\0\0\0\1\1" + _varint(count) + b"\0\1" * count
    return _varint(len(record)) + record


def _varint(number: int) -> bytes:
    out, rest = bytearray(), number << 1  # zigzag, of what is not negative
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*out, rest))
