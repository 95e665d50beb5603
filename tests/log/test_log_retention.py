"""Retention by time, by size and by log start, and the removal that follows.

Rules: log.md#retention.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.log.log_kit import (
    LOGS,
    NOW_MS,
    after_crash,
    append,
    bases,
    everything,
    make_batch,
    memory_disk,
    new_log,
    reopened,
    small_settings,
    virtual,
)

from holdfast.log.errors import StorageError
from holdfast.log.log import Log
from holdfast.runtime.ports import Runtime
from holdfast.wire.errors import ErrorCode

SIZE = len(make_batch())


def grown(log: Log, count: int = 12, *, step_ms: int = 100) -> None:
    """Three batches a segment."""
    for number in range(count):
        append(log, timestamp=NOW_MS + step_ms * number, epoch=number // 5)
    log.high_watermark = log.end


def test_old_segments_go_and_the_active_one_when_it_is_rolled() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, small_settings(segment_bytes=3 * SIZE, retention_ms=1_000))
        grown(log)
        assert log.retention(NOW_MS + 1_200, log.end) == 0, "the newest of it is 1000 ms old"
        assert log.retention(NOW_MS + 1_201, log.end) == 1
        assert (log.start, log.first_segment) == (3, 3)
        assert log.epoch_at(3) == 0, "the epoch in force at the start stays known"
        assert log.retention(NOW_MS + 9_999, 8) == 1, "never past the high watermark"
        assert log.start == 6
        assert log.retention(NOW_MS + 9_999, log.end) == 2
        assert (log.start, log.end, log.size) == (12, 12, 0)
        assert log.retention(NOW_MS + 9_999, log.end) == 0
        assert append(log, epoch=3) == 12

    virtual(body)


def test_size_keeps_at_least_what_it_says() -> None:
    async def body(runtime: Runtime) -> None:
        settings = small_settings(segment_bytes=3 * SIZE, retention_ms=-1, retention_bytes=7 * SIZE)
        _, log = new_log(runtime, settings)
        grown(log)
        assert log.retention(NOW_MS, log.end) == 1
        assert bases(everything(log)) == [*range(3, 12)]
        log.settings = settings.replace(retention_bytes=-1)
        assert log.retention(NOW_MS, log.end) == 0
        log.settings = settings.replace(cleanup_policy=("compact",))
        append(log, epoch=2)
        assert log.retention(NOW_MS, log.end) == 0

    virtual(body)


def test_segments_below_the_log_start_go_whatever_the_policy() -> None:
    async def body(runtime: Runtime) -> None:
        settings = small_settings(
            segment_bytes=3 * SIZE, retention_ms=-1, cleanup_policy=("compact",)
        )
        directories, log = new_log(runtime, settings)
        grown(log)
        assert log.advance_start(7)
        assert not log.advance_start(7)
        assert log.retention(NOW_MS, log.end) == 2
        assert (log.start, log.first_segment) == (7, 6)
        assert log.advance_start(99)
        assert log.start == 12, "not past the high watermark"
        await directories.close()
        _, log = reopened(runtime, settings)
        assert (log.start, log.end) == (12, 12)

    virtual(body)


def test_batches_without_a_timestamp_go_by_the_files_age() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, small_settings(segment_bytes=3 * SIZE, retention_ms=1_000))
        for _ in range(7):
            append(log, timestamp=-1)
        now_ms = runtime.clock.wall_ms()
        assert log.retention(now_ms + 1_000, 7) == 0
        assert log.retention(now_ms + 1_001, 7) == 3

    virtual(body)


def test_a_damaged_segment_ends_a_round_whose_work_counts() -> None:
    """The log began before its first segment, and a reader there was given the newest one."""

    async def body(runtime: Runtime) -> None:
        settings = small_settings(segment_bytes=3 * SIZE, retention_ms=1_000)
        directories, log = new_log(runtime, settings)
        for _ in range(12):
            append(log, timestamp=-1)
        log.high_watermark = 12
        await directories.close()
        _, log = reopened(runtime, settings)
        memory_disk(runtime).corrupt(f"{LOGS}/t-0/{3:020d}.log", 16, b"\xff")
        now_ms = runtime.clock.wall_ms() + 1_001
        for _ in range(2):
            with pytest.raises(StorageError, match=r"stays online: .*no batch at byte 0"):
                log.retention(now_ms, log.end)
            assert (log.start, log.first_segment) == (3, 3)
        assert log.read(0, 1000, log.end).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.read(3, 1000, log.end).error is ErrorCode.CORRUPT_MESSAGE
        assert bases(log.read(6, 3 * SIZE, log.end).records) == [6, 7, 8]

    virtual(body)


def test_files_are_renamed_at_once_and_removed_later() -> None:
    async def body(runtime: Runtime) -> None:
        settings = small_settings(
            segment_bytes=3 * SIZE, retention_ms=1_000, file_delete_delay_ms=60_000
        )
        directories, log = new_log(runtime, settings)
        grown(log)
        log.retention(NOW_MS + 1_201, log.end)
        names = runtime.disk.list(f"{LOGS}/t-0")
        assert f"{0:020d}.log.deleted" in names
        assert f"{0:020d}.log" not in names
        await asyncio.sleep(59)
        assert f"{0:020d}.log.deleted" in runtime.disk.list(f"{LOGS}/t-0")
        await asyncio.sleep(2)
        assert f"{0:020d}.log.deleted" not in runtime.disk.list(f"{LOGS}/t-0")
        await directories.close()

    virtual(body)


def test_the_only_segment_goes_with_its_indexes() -> None:
    """Seen to fail: the flush that its roll began wrote them behind it, and they stayed."""

    async def body(runtime: Runtime) -> None:
        settings = small_settings(retention_ms=1_000, file_delete_delay_ms=1_000)
        directories, log = new_log(runtime, settings)
        grown(log, 3)
        assert log.retention(NOW_MS + 9_999, log.end) == 1
        await asyncio.sleep(5)
        names = runtime.disk.list(f"{LOGS}/t-0")
        assert [each for each in names if each.startswith(f"{0:020d}.")] == []
        await directories.close()

    virtual(body)


def test_the_directories_do_it_by_themselves() -> None:
    """Only up to each replica's high watermark, and never to the metadata log."""

    async def body(runtime: Runtime) -> None:
        settings = small_settings(segment_bytes=3 * SIZE, retention_ms=1_000)
        directories, log = new_log(runtime, settings)
        metadata = directories.create("__cluster_metadata", 0, bytes(16), settings)
        for each in (log, metadata):
            grown(each)
        log.high_watermark = 7
        directories.start()
        await asyncio.sleep(400)
        assert (log.start, metadata.start) == (6, 0)
        # The checkpoints are written by themselves, too.
        text = runtime.disk.read(f"{LOGS}/replication-offset-checkpoint")
        assert b"t 0 7\n" in text
        assert b"t 0 9\n" in runtime.disk.read(f"{LOGS}/recovery-point-offset-checkpoint")
        await directories.close()

    virtual(body)


def test_nothing_goes_before_its_topic_is_known() -> None:
    """A start without a controller has the file's settings, and the topic may keep more."""

    async def body(runtime: Runtime) -> None:
        short = small_settings(segment_bytes=3 * SIZE, retention_ms=1_000)
        directories, log = new_log(runtime, short.replace(retention_ms=-1))
        grown(log)
        await directories.close()
        directories, log = reopened(after_crash(runtime), short)
        log.high_watermark = log.end
        directories.start()
        await asyncio.sleep(1_000)
        assert log.start == 0
        log.configure(short.replace(retention_ms=-1))
        await asyncio.sleep(1_000)
        assert log.start == 0
        log.configure(short)
        await asyncio.sleep(1_000)
        assert log.start == log.end
        await directories.close()

    virtual(body)
