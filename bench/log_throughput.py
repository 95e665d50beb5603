"""What the log costs over the bare write and read that it cannot do without.

A and B take turns in one run, because the machine is shared: the ratio counts. CPU is this
process's own. Run: python bench/log_throughput.py [DIRECTORY]
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from holdfast.config.node import NodeSettings
from holdfast.config.topic import TopicSettings
from holdfast.log.checkpoints import MetaProperties, write_meta_properties
from holdfast.log.directories import LogDirectories
from holdfast.log.log import Log
from holdfast.runtime.real import real_runtime
from holdfast.wire.batch import Record, build_batch

ROUNDS = 5
VOLUME = 128 << 20
READ_BYTES = 1 << 20


def measured(work: Callable[[], int]) -> tuple[float, float, int]:
    """Return CPU seconds, wall seconds and how many operations there were."""
    wall, cpu = time.perf_counter(), time.process_time()
    count = work()
    return time.process_time() - cpu, time.perf_counter() - wall, count


def bare_append(path: str, batch: bytearray, count: int) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    for _ in range(count):
        os.write(descriptor, batch)
    os.close(descriptor)
    return count


def bare_read(path: str) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    offset = count = 0
    while data := os.pread(descriptor, READ_BYTES, offset):
        offset += len(data)
        count += 1
    os.close(descriptor)
    return count


def log_append(log: Log, batch: bytearray, count: int) -> int:
    view = memoryview(batch)
    for _ in range(count):
        log.append_as_leader(view, 0)
    return count


def log_read(log: Log, read_bytes: int, limit: int) -> int:
    offset = count = 0
    while offset < log.end and count < limit:
        offset = log.read(offset, read_bytes, log.end).next_offset
        count += 1
    return count


def take_turns(
    log: Log, bare: str, batch: bytearray, count: int
) -> Iterator[tuple[str, tuple[float, float, int]]]:
    yield "bare append", measured(lambda: bare_append(bare, batch, count))
    yield "append", measured(lambda: log_append(log, batch, count))
    yield "bare read", measured(lambda: bare_read(bare))
    yield "read", measured(lambda: log_read(log, READ_BYTES, count))
    yield "small read", measured(lambda: log_read(log, 1, 20_000))


async def bench(root: str) -> None:
    runtime = real_runtime()
    properties = MetaProperties(cluster_id="bench", node_id=1, directory_id=bytes(16))
    settings = TopicSettings()
    runtime.disk.make_directories(root)
    write_meta_properties(runtime.disk, root, properties)
    node = NodeSettings(node_id=1, log_dirs=(root,), metadata_log_dir="")
    directories = LogDirectories(runtime, node, lambda _: settings)
    directories.load()
    print("CPU us of one operation: append to a bare file, to the log; read of 1 MB; of one batch")
    for number, size in enumerate((130, 1_000, 16_000, 100_000, 1_000_000)):
        batch = bytearray(build_batch([Record(value=bytes(size))]))
        count = min(100_000, VOLUME // len(batch))
        best: dict[str, tuple[float, float, int]] = {}
        for turn in range(ROUNDS):
            log = directories.create(f"t{number}", turn, bytes(16), settings)
            for name, found in take_turns(log, f"{root}/bare", batch, count):
                best[name] = min(best.get(name, found), found)
            await log.flush()
            directories.delete(f"t{number}", turn)
        each = {name: cpu / ops * 1e6 for name, (cpu, _, ops) in best.items()}
        print(
            f"{len(batch):9} bytes"
            f" | append {each['bare append']:8.2f} {each['append']:8.2f}"
            f" +{each['append'] - each['bare append']:.2f}"
            f" | 1 MB {each['bare read']:7.1f} {each['read']:7.1f}"
            f" | one batch {each['small read']:.2f}"
        )
    await directories.close()


if __name__ == "__main__":
    base = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=base) as found:
        asyncio.run(bench(f"{found}/logs"))
