"""Goal: records are forced to disk when they are enough, or old enough, and nothing waits for it.

Method: one log over the memory disk in virtual time, its recovery point looked at, and what is
there after a power cut.

Rules: log.md#forced-to-disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.log.log_kit import (
    LOGS,
    TOPIC_ID,
    after_crash,
    append,
    crash,
    everything,
    make_batch,
    new_log,
    open_directories,
    reopened,
    small_settings,
    virtual,
)

from holdfast.log.log import Log
from holdfast.runtime.ports import Runtime
from holdfast.testing.ground.worker import MemoryWorker
from holdfast.wire.batch import assign

LONG_S = 10.0  # within which every job is done
DAY_S = 80_000.0


def followed(log: Log, count: int = 1) -> None:
    batch = bytearray(make_batch(count))
    assign(batch, log.end, 0)
    assert not log.append_as_follower(memoryview(batch))


def led(log: Log, count: int = 1) -> None:
    append(log, count)


APPENDS = pytest.mark.parametrize("write", [led, followed])


@APPENDS
def test_so_many_records_are_forced_to_disk(write: Callable[..., None]) -> None:
    async def body(runtime: Runtime) -> None:
        settings = small_settings(flush_messages=4)
        directories, log = new_log(runtime, settings)
        for _ in range(3):
            write(log)
        await asyncio.sleep(LONG_S)
        assert log.recovery_point == 0
        write(log)
        assert log.recovery_point == 0, "the append has not waited"
        await asyncio.sleep(LONG_S)
        assert log.recovery_point == 4
        write(log, 9)
        await asyncio.sleep(LONG_S)
        assert log.recovery_point == 13, "a batch counts for its records"
        write(log)
        data = everything(log)[: -len(make_batch())]
        crash(directories)
        _, log = reopened(after_crash(runtime, power=True), settings)
        assert everything(log)[: len(data)] == data

    virtual(body)


@APPENDS
def test_records_of_an_age_are_forced_to_disk(write: Callable[..., None]) -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, small_settings(flush_ms=60_000))
        write(log)
        await asyncio.sleep(40)
        write(log)
        assert log.recovery_point == 0
        await asyncio.sleep(20 + LONG_S)
        assert log.recovery_point == 2, "the first one counts, and takes the others along"
        await asyncio.sleep(40)
        write(log)
        await asyncio.sleep(40)
        assert log.recovery_point == 2
        await asyncio.sleep(20 + LONG_S)
        assert log.recovery_point == 3

    virtual(body)


def test_without_a_bound_nothing_is_forced_to_disk() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime)
        append(log, 5)
        await asyncio.sleep(DAY_S)
        assert log.recovery_point == 0

    virtual(body)


def test_one_job_at_a_time_however_many_appends_there_are() -> None:
    """What comes while one runs goes with the next one."""

    async def body(runtime: Runtime) -> None:
        jobs = 0
        _, log = new_log(runtime, small_settings(segment_bytes=1 << 20, flush_messages=1))
        await asyncio.sleep(LONG_S)
        submit = log.home.submit

        def counted(job: Callable[[], Any]) -> asyncio.Future[Any]:
            nonlocal jobs
            jobs += 1
            return submit(job)

        log.home.submit = counted  # type: ignore[method-assign]
        for _ in range(10):
            append(log)
        await asyncio.sleep(0)
        assert (jobs, log._flusher.planned) == (1, 10), "those of one turn go together"
        for _ in range(10):
            append(log)
            await asyncio.sleep(0)
        await asyncio.sleep(LONG_S)
        assert (log.recovery_point, jobs) == (20, 2)

    virtual(body)


def test_settings_count_from_when_they_are_heard_of() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime)
        append(log, 3)
        log.configure(small_settings(flush_messages=4))
        await asyncio.sleep(LONG_S)
        assert log.recovery_point == 0
        log.configure(small_settings(flush_messages=3))
        await asyncio.sleep(LONG_S)
        assert log.recovery_point == 3
        append(log)
        log.configure(small_settings(flush_ms=10**9))
        log.configure(small_settings(flush_ms=1000))
        await asyncio.sleep(1 + LONG_S)
        assert log.recovery_point == 4, "a shorter time counts at once"
        append(log)
        log.configure(small_settings(flush_ms=1000))
        log.configure(small_settings())
        await asyncio.sleep(DAY_S)
        assert log.recovery_point == 4, "none is none"

    virtual(body)


@pytest.mark.parametrize("bound", [{"flush_messages": 1}, {"flush_ms": 100}], ids=str)
def test_what_a_full_worker_refuses_is_flushed_later(bound: dict[str, int]) -> None:
    async def body(runtime: Runtime) -> None:
        worker = runtime.worker
        assert isinstance(worker, MemoryWorker)
        _, log = new_log(runtime, small_settings(**bound))
        worker._queue_max = 0
        append(log)
        await asyncio.sleep(LONG_S)
        assert log.recovery_point == 0
        worker._queue_max = 100
        await asyncio.sleep(LONG_S)
        assert log.recovery_point == log.end

    virtual(body)


def test_nothing_is_left_of_who_is_gone() -> None:
    async def body(runtime: Runtime) -> None:
        settings = small_settings(flush_ms=10**9)
        directories = open_directories(runtime, settings=settings)
        due = directories.directories[0].due_flushes
        for index in range(2):
            append(directories.create("t", index, TOPIC_ID, settings))
        assert len(due) == 2
        directories.delete("t", 0)
        assert len(due) == 1
        await directories.close()
        assert not due

    virtual(body)


def test_a_directory_that_fails_flushes_nothing_more() -> None:
    async def body(runtime: Runtime) -> None:
        settings = small_settings(flush_ms=1000)
        directories = open_directories(runtime, settings=settings)
        log = directories.create("t", 0, TOPIC_ID, settings)
        append(log)
        log.home.fail(OSError("broken on purpose"))
        assert not log.home.due_flushes
        log.configure(small_settings(flush_messages=1))  # and nobody minds
        await asyncio.sleep(LONG_S)
        assert log.recovery_point == 0

    virtual(body)


def test_a_cut_takes_back_what_was_on_its_way_to_the_disk() -> None:
    """Seen to fail with what a job claims when it begins: nothing was counted until it ended."""

    async def body(runtime: Runtime) -> None:
        settings = small_settings(flush_messages=6)
        directories, log = new_log(runtime, settings)
        append(log, 5)
        append(log)
        await asyncio.sleep(0)
        assert log._flusher._running is not None
        log.truncate_to(5)
        for _ in range(2):
            append(log, 3, epoch=1)
        data = everything(log)
        await asyncio.sleep(LONG_S)
        assert log.recovery_point == log.end == 11
        crash(directories)
        _, log = reopened(after_crash(runtime, power=True), settings)
        assert everything(log) == data

    virtual(body)


def test_the_longest_time_there_is() -> None:
    """No timer takes 300 million years."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, small_settings(flush_ms=2**63 - 2))
        append(log)
        await asyncio.sleep(DAY_S)
        assert log.recovery_point == 0
        assert runtime.disk.exists(f"{LOGS}/t-0")

    virtual(body)
