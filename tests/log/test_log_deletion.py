"""A topic is deleted and made anew under its old name while jobs of the old replica still wait.

Goal: nothing of the old one gets into the new one, whose producers and epochs it would forge: a
batch that was never written would be answered as a duplicate, acknowledged and absent. Method: in
memory the job waits in its lane; on the real disk a job stands still in its middle.

Seen to fail: the job wrote to where the name led it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.log.log_kit import (
    LOGS,
    TOPIC_ID,
    after_crash,
    append,
    make_batch,
    new_log,
    open_directories,
    reopened,
    small_settings,
    virtual,
)

from holdfast.log.directories import LogDirectories
from holdfast.log.log import Log
from holdfast.runtime.ports import Files, Runtime
from holdfast.runtime.real import RealDisk, RealFiles, real_runtime

PRODUCER = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
BOUND_S = 30.0


def made_anew(directories: LogDirectories) -> Log:
    directories.delete("t", 0)
    return directories.create("t", 0, bytes(reversed(TOPIC_ID)), small_settings())


def knows_the_producer(log: Log) -> bool:
    return log.check_producer(memoryview(make_batch(**PRODUCER))).duplicate_offset is not None


def written(runtime: Runtime, directory: str) -> set[str]:
    """What only a flush makes."""
    return {
        name
        for name in runtime.disk.list(directory)
        if name.endswith(".snapshot") or name == "leader-epoch-checkpoint"
    }


def test_a_job_that_waited_too_long_writes_nothing_into_the_next_of_that_name() -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        append(log, epoch=5, **PRODUCER)
        append(log, epoch=5, size=small_settings().segment_bytes)  # the segment is full: it rolls
        flushed = log.flush()  # its job waits in the lane
        again = made_anew(directories)
        await asyncio.wait([flushed])
        assert flushed.exception() is not None, "the replica was deleted"
        await runtime.worker.submit(lambda: None, lane=LOGS)  # all that waited before is over
        assert written(runtime, again.directory) == set()
        append(again)
        _, recovered = reopened(after_crash(runtime))
        assert not knows_the_producer(recovered)
        assert recovered.latest_epoch == 0, "nobody led in epoch 5"

    virtual(body)


class _Stopping(RealDisk):
    """A disk whose next job stands still once it holds its directory."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on = threading.Event(), threading.Event()

    @contextmanager
    def inside(self, path: str) -> Iterator[Files]:
        with super().inside(path) as files:
            yield _StoppingFiles(files, self)


class _StoppingFiles(RealFiles):
    def __init__(self, files: Files, disk: _Stopping) -> None:
        assert isinstance(files, RealFiles)
        super().__init__(files._held, files._at)
        self._disk = disk

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self._disk.reached.set()
        assert self._disk.go_on.wait(BOUND_S)
        super().write_atomic(path, data, sync=sync)


def test_a_job_in_its_middle_goes_on_where_it_began(tmp_path: Path) -> None:
    async def body() -> None:
        disk = _Stopping()
        runtime = replace(real_runtime(), disk=disk)
        directories = open_directories(runtime, (str(tmp_path / "logs"),))
        log = directories.create("t", 0, TOPIC_ID, small_settings())
        append(log, epoch=5, **PRODUCER)
        flushed = log.flush()
        assert await asyncio.to_thread(disk.reached.wait, BOUND_S)
        again = made_anew(directories)
        disk.go_on.set()
        await asyncio.wait([flushed])
        await runtime.worker.submit(lambda: None, lane=log.home.path)
        assert written(runtime, again.directory) == set()
        (old,) = [each for each in (tmp_path / "logs").iterdir() if each.name.endswith("-delete")]
        assert written(runtime, str(old)) == {"leader-epoch-checkpoint"}, "it went on in its own"
        await directories.close()

    asyncio.run(body())
