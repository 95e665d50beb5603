"""Goal: what a log says of its start (`kept_start`) survives a power cut, whatever else happens.

Method: in memory, where each job takes a millisecond: a start is raised; a few moments later
another one of the directory's checkpoints is written, a log is cut or deleted; and the power goes
at each moment after that. The next process must not find a start before the one that was told.

Seen to fail: with a start told although a cut came between the writing and the sync of its name,
with one that waits for ever for a checkpoint that somebody else had begun, or had superseded, and
with a start taken for kept that a namesake had.
Rules: log.md#deleting-records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.log.log_kit import (
    TOPIC_ID,
    after_crash,
    append,
    memory_disk,
    new_log,
    open_directories,
    reopened,
    small_settings,
    virtual,
)

from holdfast.log import start_keeper
from holdfast.log.directories import LogDirectories
from holdfast.log.log import Log
from holdfast.runtime.ports import Runtime
from holdfast.testing.ground.disk import DiskFault
from holdfast.testing.ground.worker import MemoryWorker

JOB_MS = 1
MOMENTS = 12  # more than there are jobs: names, two checkpoints, two syncs, one in the way
START = 5
NAMESAKES_ID = bytes(reversed(TOPIC_ID))

Meanwhile = Callable[[LogDirectories, Log], None]


def nothing(_directories: LogDirectories, _log: Log) -> None:
    """Nothing happens."""


def another_is_cut(_directories: LogDirectories, log: Log) -> None:
    log.home.write_now()


def is_cut_and_grows(_directories: LogDirectories, log: Log) -> None:
    """It begins anew before its start, and reaches beyond it once more."""
    log.reset_to(START - 3)
    append(log, 20)
    log.high_watermark = log.end
    log.advance_start(START + 2, for_good=True)


def is_deleted(directories: LogDirectories, _log: Log) -> None:
    directories.delete("t", 0)
    append(directories.create("t", 0, NAMESAKES_ID, small_settings()), 20)


def moves_by_itself(_directories: LogDirectories, log: Log) -> None:
    """As when a follower hears of its leader's start: the same checkpoint is under way."""
    log.advance_start(log.start + 1)


def slow(runtime: Runtime) -> Runtime:
    return replace(runtime, worker=MemoryWorker(delay_us=(JOB_MS * 1000, JOB_MS * 1000)))


async def begun(runtime: Runtime) -> tuple[LogDirectories, Log]:
    """Return a log of 20 records of which the first are about to go."""
    directories, log = new_log(runtime)
    append(log, 20)
    log.high_watermark = log.end
    log.advance_start(START, for_good=True)
    return directories, log


@pytest.mark.parametrize(
    "meanwhile", [nothing, another_is_cut, is_cut_and_grows, is_deleted, moves_by_itself]
)
@pytest.mark.turns
@pytest.mark.parametrize("after", range(MOMENTS // 2))
def test_what_is_told_survives_a_power_cut(meanwhile: Meanwhile, after: int) -> None:
    for moment in range(MOMENTS):

        async def body(runtime: Runtime, moment: int = moment) -> None:
            runtime = slow(runtime)
            directories, _ = await begun(runtime)
            await asyncio.sleep((after + 0.5) * JOB_MS / 1000)
            log = directories.get("t", 0)
            assert log is not None
            meanwhile(directories, log)
            await asyncio.sleep(moment * JOB_MS / 1000)
            log = directories.get("t", 0)
            assert log is not None
            told = log.kept_start
            found = open_directories(after_crash(runtime, power=True)).get("t", 0)
            assert (found.start if found is not None else 0) >= told
            if found is not None and found.topic_id == NAMESAKES_ID:
                assert found.start == 0

        virtual(body)


@pytest.mark.parametrize("meanwhile", [nothing, another_is_cut, is_cut_and_grows, moves_by_itself])
@pytest.mark.turns
@pytest.mark.parametrize("after", range(MOMENTS // 2))
def test_it_is_told_in_the_end(meanwhile: Meanwhile, after: int) -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = await begun(slow(runtime))
        told: list[int] = []
        log.start_moved = lambda: told.append(log.kept_start)
        await asyncio.sleep((after + 0.5) * JOB_MS / 1000)
        meanwhile(directories, log)
        await asyncio.sleep(1)
        assert log.kept_start >= START
        assert told[-1] == log.kept_start
        assert not log.is_new
        await directories.close()

    virtual(body)


@pytest.mark.turns
@pytest.mark.parametrize("superseded_after", range(MOMENTS // 2))
def test_a_checkpoint_under_way_that_says_it_already_will_do(superseded_after: int) -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(slow(runtime))
        append(log, 20)
        log.high_watermark = log.end
        await log.flush()
        log.advance_start(START)  # written in the background by itself
        log.advance_start(START, for_good=True)
        await asyncio.sleep((superseded_after + 0.5) * JOB_MS / 1000)
        log.home.write_now()
        await asyncio.sleep(1)
        assert log.kept_start == START
        await directories.close()

    virtual(body)


@pytest.mark.turns
@pytest.mark.parametrize("after", range(MOMENTS // 2))
def test_after_the_end_nothing_is_begun(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_keeper, "SLICE", 1)

    def refuse(*_given: object, **_named: object) -> None:
        raise AssertionError("the directory is let go of")

    async def body(runtime: Runtime) -> None:
        runtime = slow(runtime)
        directories, _ = await begun(runtime)
        for partition in range(1, 10):
            log = directories.create("t", partition, TOPIC_ID, small_settings())
            append(log, 20)
            log.high_watermark = log.end
            log.advance_start(START, for_good=True)
        await asyncio.sleep((after + 0.5) * JOB_MS / 1000)
        await directories.close()
        monkeypatch.setattr(runtime.worker, "submit", refuse)
        await asyncio.sleep(1)
        _, found = reopened(after_crash(runtime, power=True))
        assert found.start == START, "the last checkpoint has it"

    virtual(body)


def test_a_log_that_is_deleted_meanwhile_is_no_fault_of_the_disk() -> None:
    """Its job comes when nothing has its name any more."""

    async def body(runtime: Runtime) -> None:
        directories, log = await begun(slow(runtime))
        await asyncio.sleep(JOB_MS / 2000)  # the job is on its way
        directories.delete("t", 0)
        await asyncio.sleep(1)
        assert log.home.online
        assert log.kept_start < START

    virtual(body)


def test_who_waits_for_log_starts_hears_of_a_rename_that_fails() -> None:
    """Seen to fail: with nobody told, neither who asked first nor who asked meanwhile."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime)
        append(log)
        # The job puts its file beside the other one; the loop puts it in the other one's place.
        memory_disk(runtime).inject(DiskFault(operations={"rename"}, after=1))
        heard: list[bool] = []
        log.home.write_starts(heard.append)
        log.home.write_starts(heard.append)
        await asyncio.sleep(1)
        assert log.offline
        assert heard == [False, False]

    virtual(body)
