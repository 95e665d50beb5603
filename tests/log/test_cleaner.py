"""Goal: logs are compacted by themselves, when Kafka's would be, and stay whole whatever comes.

Method: log directories in virtual time over the memory disk, as a node has them. Time passes until
something is so, with a bound; what is left is held against what was written.
Seen to fail: with each of the bugs that `scripts/mutations_compaction.py` lists for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.log.compaction_kit import (
    DAY_MS,
    append_all,
    headers_of,
    keyed,
    latest_of,
    records_of,
    roll,
)
from tests.log.log_kit import (
    LOGS,
    NOW_MS,
    TOPIC_ID,
    after_crash,
    crash,
    everything,
    memory_disk,
    newest_of,
    open_directories,
    small_settings,
    virtual,
)

from holdfast.config.topic import TopicSettings
from holdfast.log.checkpoints import CLEANED
from holdfast.log.compaction import cleaner as cleaner_module
from holdfast.log.compaction.compaction_steps import Compaction, Throttle
from holdfast.log.compaction.half_done_swaps import leftovers
from holdfast.log.directories import LogDirectories
from holdfast.log.log import Log
from holdfast.runtime import own_time
from holdfast.runtime.ports import Runtime, T, Worker, WorkerFullError
from holdfast.runtime.sliced_work import Steps
from holdfast.testing.ground.disk import DiskFault
from holdfast.testing.ground.loop import VirtualLoop
from holdfast.wire.batch import Record
from holdfast.wire.walker import record_compaction
from holdfast.wire.walker.record_compaction import COMPACTOR, PYTHON
from holdfast.wire.well_known import METADATA_TOPIC

COMPACTED = small_settings(
    segment_bytes=500,
    index_interval_bytes=100,
    cleanup_policy=("compact",),
    file_delete_delay_ms=50,
    delete_retention_ms=DAY_MS,
)
BOUND_S = 600
HOUR_MS = 3_600_000


def opened(runtime: Runtime, settings: TopicSettings = COMPACTED, **changes: Any) -> LogDirectories:
    directories = open_directories(runtime, settings=settings, **changes)
    directories.start()
    return directories


def made(directories: LogDirectories, topic: str = "t", settings: TopicSettings = COMPACTED) -> Log:
    return directories.create(topic, 0, TOPIC_ID, settings)


def write(log: Log, count: int, keys: str = "abc", *, start: int = 0) -> list[Record]:
    """Append batches of a record, and commit them."""
    for number in range(start, start + count):
        append_all(log, [keyed((keys[number % len(keys)], str(number) * 20))])
    log.high_watermark = log.end
    return records_of(log)


async def until(holds: Callable[[], bool], what: str) -> None:
    for _ in range(BOUND_S * 10):
        if holds():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(what)


def is_clean(log: Log) -> bool:
    """Whether of all that is sealed each key is there once."""
    bound = log._segments.active.base
    keys = [record.key for record in records_of(log) if record.offset < bound]
    return bound > 0 and len(keys) == len(set(keys))


@pytest.mark.parametrize("compactor", [PYTHON, COMPACTOR], ids=lambda one: str(one.name))
def test_a_log_is_compacted_by_itself(
    compactor: record_compaction.Compactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "holdfast.log.compaction.compaction_round.Round.__init__.__defaults__",
        (compactor,),
        raising=False,
    )

    async def body(runtime: Runtime) -> None:
        directories = opened(runtime)
        log = made(directories)
        before = latest_of(write(log, 60))
        await until(lambda: is_clean(log), "it is compacted")
        assert latest_of(records_of(log)) == before
        assert len(records_of(log)) < 20
        assert directories.cleaner.rounds
        await until(lambda: log.cleaned_to == log._segments.active.base, "all that is sealed")
        path = f"{LOGS}/{CLEANED}"
        await until(lambda: runtime.disk.exists(path), "it has a checkpoint")
        assert runtime.disk.read(path) == f"0\n1\nt 0 {log.cleaned_to}\n".encode()
        await directories.close()

    virtual(body)


def test_nothing_is_looked_at_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that is clean costs nothing, whatever is appended to its active segment."""
    looked_at: list[Log] = []
    look_at = cleaner_module.Cleaner._look_at

    def watched(cleaner: cleaner_module.Cleaner, log: Log) -> None:
        looked_at.append(log)
        look_at(cleaner, log)

    monkeypatch.setattr(cleaner_module.Cleaner, "_look_at", watched)

    async def body(runtime: Runtime) -> None:
        directories = opened(runtime)
        log = made(directories)
        write(log, 60)
        await until(lambda: is_clean(log), "it is compacted")
        await asyncio.sleep(60)
        assert directories.cleaner._timer is None, "nothing to wait for"
        looked_at.clear()
        write(log, 1)
        await asyncio.sleep(600)
        assert not looked_at
        roll(log)
        await asyncio.sleep(600)
        assert looked_at
        await directories.close()

    virtual(body)


def test_what_is_not_committed_or_not_synced_waits() -> None:
    async def body(runtime: Runtime) -> None:
        directories = opened(runtime)
        log = made(directories)
        write(log, 60)
        log.high_watermark = 0
        await asyncio.sleep(120)
        assert not directories.cleaner.rounds
        assert log.recovery_point == log._segments.active.base
        log.high_watermark = log.end
        await until(lambda: is_clean(log), "it is compacted once it is committed")
        await directories.close()

    virtual(body)


def test_a_record_that_is_young_is_left_alone_until_its_time() -> None:
    async def body(runtime: Runtime) -> None:
        settings = COMPACTED.replace(min_compaction_lag_ms=3 * HOUR_MS)
        directories = opened(runtime, settings)
        log = made(directories, settings=settings)
        write(log, 60)
        await asyncio.sleep(3600)
        assert not directories.cleaner.rounds
        await asyncio.sleep(2 * HOUR_MS / 1000 - 60)
        assert not directories.cleaner.rounds
        await until(lambda: is_clean(log), "its time has come")
        await directories.close()

    virtual(body)


def test_a_log_that_is_hardly_dirty_is_compacted_when_it_has_waited_for_long_enough() -> None:
    async def body(runtime: Runtime) -> None:
        settings = COMPACTED.replace(
            min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=3 * HOUR_MS
        )
        directories = opened(runtime, settings)
        log = made(directories, settings=settings)
        write(log, 60)
        await asyncio.sleep(3 * HOUR_MS / 1000 - 60)
        assert not directories.cleaner.rounds
        await until(lambda: is_clean(log), "it is overdue")
        await directories.close()

    virtual(body)


def test_a_setting_that_changes_counts_at_once() -> None:
    async def body(runtime: Runtime) -> None:
        settings = COMPACTED.replace(cleanup_policy=("delete",), retention_ms=-1)
        directories = opened(runtime, settings)
        log = made(directories, settings=settings)
        write(log, 60)
        await asyncio.sleep(120)
        assert not directories.cleaner.rounds
        log.configure(COMPACTED)
        await until(lambda: is_clean(log), "it is compacted now")
        await directories.close()

    virtual(body)


@pytest.mark.parametrize(
    "changes", [{"log_cleaner_enable": False}, {"log_cleaner_threads": 0}], ids=str
)
def test_without_a_cleaner_nothing_is_compacted(changes: dict[str, Any]) -> None:
    async def body(runtime: Runtime) -> None:
        directories = opened(runtime, **changes)
        log = made(directories)
        before = write(log, 60)
        await asyncio.sleep(600)
        assert records_of(log) == before
        if "log_cleaner_threads" in changes:
            directories.configure(directories._settings.replace(log_cleaner_threads=1))
            await until(lambda: is_clean(log), "it has a thread now")
        await directories.close()

    virtual(body)


def test_a_log_whose_topic_is_not_known_yet_is_left_alone() -> None:
    """At a start the file's settings stand for all topics, whatever theirs are."""

    async def body(runtime: Runtime) -> None:
        settings = COMPACTED.replace(cleanup_policy=("delete",), retention_ms=-1)
        directories = opened(runtime, settings)
        log = made(directories, settings=settings)
        before = write(log, 60)
        await directories.close()
        runtime = after_crash(runtime)
        directories = opened(runtime, COMPACTED)
        found = directories.get("t", 0)
        assert found is not None
        found.high_watermark = found.end
        roll(found)
        await asyncio.sleep(600)
        assert records_of(found) == before
        found.configure(settings)
        await asyncio.sleep(600)
        assert records_of(found) == before
        await directories.close()

    virtual(body)


def test_the_metadata_log_is_never_compacted() -> None:
    async def body(runtime: Runtime) -> None:
        directories = opened(runtime)
        log = directories.create(METADATA_TOPIC, 0, TOPIC_ID, COMPACTED)
        before = write(log, 60)
        await asyncio.sleep(600)
        assert records_of(log) == before
        await directories.close()

    virtual(body)


@pytest.mark.parametrize("threads", [1, 3])
def test_so_many_rounds_at_a_time_and_the_dirtiest_first(threads: int) -> None:
    async def body(runtime: Runtime) -> None:
        directories = opened(runtime, log_cleaner_threads=threads)
        logs = [made(directories, f"t{number}") for number in range(6)]
        for number, log in enumerate(logs):
            write(log, 40)
            log.cleaned_to = log._segments.bases[3 - number // 2]
        most, order = 0, []
        for _ in range(200_000):
            under_way = list(directories.cleaner._running)
            most = max(most, len(under_way))
            order += [log for log in under_way if log not in order]
            if directories.cleaner.rounds >= 6:
                break
            await asyncio.sleep(0.0005)
        assert most == threads
        assert set(order) == set(logs)
        assert {order[0], order[1]} == {logs[4], logs[5]} or threads > 1
        await directories.close()

    virtual(body)


@pytest.mark.slow
def test_all_rounds_together_are_throttled() -> None:
    async def body(runtime: Runtime) -> None:
        directories = opened(
            runtime, log_cleaner_threads=2, log_cleaner_io_max_bytes_per_second=100.0
        )
        logs = [made(directories, name) for name in "ab"]
        size = 0
        for log in logs:
            write(log, 60)
            size += log.size
        began = runtime.clock.monotonic_ms()
        await until(lambda: all(map(is_clean, logs)), "they are compacted")
        took_s = (runtime.clock.monotonic_ms() - began) / 1000
        assert took_s > 1.5 * size / 100, "read twice, but for what little is written"
        await directories.close()

    virtual(body)


@pytest.mark.parametrize(
    ("took_s", "processor_s", "rest_s"),
    [(0.25, 0.25, 0.5), (0.0625, 0.0, 0.125), (60.0, 0.0, 2 * own_time.WAIT_S)],
    ids=["works", "waits for a disk", "stands still"],
)
def test_others_have_the_loop_for_twice_as_long_as_a_slice_kept_it_from_them(
    monkeypatch: pytest.MonkeyPatch, took_s: float, processor_s: float, rest_s: float
) -> None:
    """Goal: a round leaves two thirds to requests; a minute of SIGSTOP is no work of its.

    Method: a round in many slices on the loop. Each takes so long in virtual time, and so much of
    the processor.
    """
    few = PYTHON._replace(records_a_slice=8)
    monkeypatch.setattr(
        "holdfast.log.compaction.compaction_round.Round.__init__.__defaults__", (few,)
    )
    spent = [0.0]
    rests: list[float] = []
    monkeypatch.setattr(own_time, "thread_time", lambda: spent[0])
    steps = Compaction.steps

    def slow(compaction: Compaction) -> Steps[int | None]:
        loop, taken, answer = VirtualLoop.running(), steps(compaction), None
        while True:
            try:
                wanted = taken.send(answer)
            except StopIteration as end:
                return cast("int | None", end.value)
            loop.now += took_s
            spent[0] += processor_s
            ended = loop.now
            answer = yield wanted
            if not callable(wanted):
                rests.append(loop.now - ended)

    monkeypatch.setattr(Compaction, "steps", slow)

    async def body(runtime: Runtime) -> None:
        directories = opened(runtime)
        log = made(directories)
        write(log, 60)
        await until(lambda: is_clean(log), "it is compacted")
        await directories.close()

    virtual(body)
    assert rests
    assert rests == pytest.approx([rest_s] * len(rests), abs=0.005)


def test_a_throttle_counts_from_what_was_done_before() -> None:
    throttle = Throttle(1000, 0, 50_000)
    assert throttle.rest_ms(50_500, 0) == 501
    assert throttle.rest_ms(50_500, 600) == 0


def test_a_damaged_log_is_set_apart_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(runtime: Runtime) -> None:
        directories = opened(runtime)
        bad, good = (made(directories, name) for name in ("bad", "good"))
        for log in (bad, good):
            write(log, 60)
        memory_disk(runtime).corrupt(f"{LOGS}/bad-0/{0:020d}.log", 16, b"\x01")  # its magic
        with caplog.at_level(logging.ERROR):
            await until(lambda: is_clean(good), "the other one is compacted")
            await until(lambda: bool(directories.cleaner.apart), "it is told")
        assert directories.cleaner.apart.startswith("bad-0: ")
        assert "bad-0 is not compacted any more" in caplog.text
        assert directories.directories[0].online
        write(good, 60)
        await until(lambda: is_clean(good), "once more")
        directories.delete("bad", 0)
        assert not directories.cleaner.apart
        await directories.close()

    virtual(body)


def test_a_disk_that_fails_in_a_round_takes_its_directory_along() -> None:
    async def body(runtime: Runtime) -> None:
        directories = opened(runtime)
        log = made(directories)
        write(log, 60)
        fault = DiskFault(operations={"append"}, prefix=f"{log.directory}/{0:020d}.log.cleaned")
        memory_disk(runtime).inject(fault)
        await until(lambda: log.offline, "its directory is offline")
        await until(lambda: not directories.cleaner._running, "its round is over")
        await directories.close()

    virtual(body)


class FullWorker:
    """A worker that has no room for one of a round's jobs."""

    def __init__(self, worker: Worker, refused: int) -> None:
        self._worker = worker
        self.left = refused

    def submit(self, job: Callable[[], T], *, lane: str = "") -> asyncio.Future[T]:
        self.left -= lane.startswith("compaction")
        if lane.startswith("compaction") and not self.left:
            future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            future.set_exception(WorkerFullError("full"))
            return future
        return self._worker.submit(job, lane=lane)


@pytest.mark.parametrize("refused", range(1, 16))
def test_a_round_that_is_given_up_is_put_right_at_once_and_tried_again(refused: int) -> None:
    """What is half done must not wait for a cut, which would not know of it any more."""

    async def body(runtime: Runtime) -> None:
        worker = FullWorker(runtime.worker, refused)
        directories = opened(replace(runtime, worker=worker))
        log = made(directories)
        before = latest_of(write(log, 60))
        while worker.left > 0:
            await asyncio.sleep(0.001)
        await until(lambda: not directories.cleaner._running, "it is given up")
        assert not log.compaction.is_under_way
        assert not leftovers(runtime.disk.list(log.directory)).swaps
        await log.flush()
        crash(directories)
        runtime = after_crash(runtime, power=True)
        assert not leftovers(runtime.disk.list(log.directory)).swaps
        directories = opened(runtime)
        found = directories.get("t", 0)
        assert found is not None
        assert latest_of(records_of(found)) == before
        found.configure(COMPACTED)
        found.high_watermark = found.end
        await until(lambda: is_clean(found), "it is tried again")
        await directories.close()

    virtual(body)


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.parametrize("end", ["close", "delete", "cut", "stops being compacted", "kill"])
@pytest.mark.parametrize("steps", range(0, 40, 3))
def test_a_round_that_is_disturbed_leaves_a_whole_log(end: str, steps: int) -> None:
    async def body(runtime: Runtime) -> None:
        directories = opened(runtime, log_cleaner_io_max_bytes_per_second=3_000.0)
        log = made(directories)
        expected = latest_of(write(log, 60))
        await until(lambda: bool(directories.cleaner._running), "a round is under way")
        for _ in range(steps):
            await asyncio.sleep(0.05)
        if end == "close":
            await directories.close()
        elif end == "delete":
            directories.delete("t", 0)
            log = made(directories)
            expected = latest_of(write(log, 3))
            await until(lambda: not directories.cleaner._running, "its round is over")
            await directories.close()
        elif end == "cut":
            log.truncate_to(log._segments.active.base - 1)
            expected = latest_of(records_of(log))
            await until(lambda: is_clean(log), "it is compacted all the same")
            await directories.close()
        elif end == "kill":
            crash(directories)
        else:
            log.configure(COMPACTED.replace(cleanup_policy=("delete",), retention_ms=-1))
            assert not log.compaction.is_under_way
            await until(lambda: not directories.cleaner._running, "its round is over")
            await directories.close()
        runtime = after_crash(runtime, power=end == "kill")
        directories = opened(runtime)
        found = directories.get("t", 0)
        assert found is not None
        if end == "kill":
            expected = {key: each for key, each in expected.items() if each.offset < found.end}
            assert found.end >= 50
            for key, record in latest_of(records_of(found)).items():
                assert expected.get(key, record) == record
        else:
            assert latest_of(records_of(found)) == expected
        found.configure(COMPACTED)
        found.high_watermark = found.end
        await until(lambda: is_clean(found) or found.end < 10, "the next one compacts it")
        assert not [name for name in runtime.disk.list(f"{LOGS}/t-0") if "clean" in name]
        await directories.close()

    virtual(body)


def test_retention_waits_for_the_round_and_comes_behind_it() -> None:
    async def body(runtime: Runtime) -> None:
        settings = COMPACTED.replace(
            cleanup_policy=("compact", "delete"), retention_bytes=600, retention_ms=-1
        )
        directories = opened(
            runtime,
            settings,
            log_cleaner_io_max_bytes_per_second=1_000.0,
            log_retention_check_interval_ms=300,
            log_initial_task_delay_ms=10,
        )
        log = made(directories, settings=settings)
        write(log, 60, "abcdefghijklmnopqrstuvwxyz")
        log.high_watermark = 0
        await asyncio.sleep(1)
        log.high_watermark = log.end
        directories.cleaner._wake_in(0)
        await until(lambda: log.compaction.is_under_way, "a round is under way")
        first = log.first_segment
        while log.compaction.is_under_way:
            assert log.first_segment == first
            await asyncio.sleep(0.1)
        assert directories.cleaner.rounds
        await until(lambda: log.size < 1200, "what is old goes behind it")
        await directories.close()

    virtual(body)


def test_an_emptied_batch_is_not_the_youngest() -> None:
    """It stays as its producer's last one; the largest is another record's then."""

    async def body(runtime: Runtime) -> None:
        directories = opened(runtime)
        log = made(directories)
        for number in range(12):
            append_all(log, [keyed(("k", str(number) * 20), timestamp=NOW_MS + number)])
        young = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
        append_all(log, [keyed(("k", "young"), timestamp=NOW_MS + 500, **young)])
        append_all(log, [keyed(("k", "last"), timestamp=NOW_MS + 9)])
        roll(log)
        append_all(log, [keyed(("z", "end"), timestamp=NOW_MS + 1)])
        log.high_watermark = log.end
        await until(lambda: is_clean(log), "it is compacted")
        found = newest_of(log)
        assert found is not None
        assert (found.offset, found.timestamp) == (13, NOW_MS + 9)
        emptied = [each for each in headers_of(everything(log)) if not each.record_count]
        assert (12, NOW_MS + 500) in [(each.base_offset, each.max_timestamp) for each in emptied]
        await directories.close()

    virtual(body)
