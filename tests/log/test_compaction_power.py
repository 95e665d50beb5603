"""Goal: wherever a process dies in a round, or the power goes, each key's latest value is there.

Method: a round over the memory disk that dies before each single operation of the disk, by SIGKILL
or by a power cut that leaves a random part of what was not synced, in its order or in any; then
recovery, which dies before each of its operations as well; then the log is opened and read, and a
second round must end as one that nobody disturbed. Rounds are also ended by a cut of the log
between any two of their steps.
Seen to fail: with each of the bugs that `scripts/mutations_compaction.py` lists for it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.log.compaction_kit import (
    DAY_MS,
    Done,
    Turn,
    advanced,
    append_all,
    compact,
    end_of,
    headers_of,
    keyed,
    latest_of,
    make_round,
    records_of,
    roll,
    whole_batches,
)
from tests.log.log_kit import (
    LOGS,
    NOW_MS,
    append,
    crash,
    everything,
    new_log,
    reopened,
    small_settings,
    virtual,
)

from holdfast.log.compaction import compaction_round
from holdfast.log.compaction.compaction_steps import Compaction
from holdfast.log.compaction.half_done_swaps import finish_swaps, leftovers
from holdfast.log.directories import LogDirectories
from holdfast.log.files import FileCache
from holdfast.log.log import Log
from holdfast.runtime.ports import Runtime
from holdfast.testing.ground.disk import MemoryDisk, _apply
from holdfast.wire.batch import Codec, Record

SETTINGS = small_settings(
    segment_bytes=600, index_interval_bytes=100, cleanup_policy=("compact",), file_delete_delay_ms=9
)
HERE = f"{LOGS}/t-0"
LATER_MS = NOW_MS + 2 * DAY_MS
MAP: dict[str, Any] = {"now_ms": LATER_MS, "settings": {"segment_bytes": 900}}
DEATHS = ["process", "power", "torn", "scattered"]


class DiesError(Exception):
    """The process ends here."""


async def written(runtime: Runtime) -> tuple[MemoryDisk, int]:
    """Return the disk of a log with a clean part, whose tombstones may go, and a dirty one.

    And up to where it is clean.
    """
    directories, log = new_log(runtime, SETTINGS)
    draw = random.Random(7)
    sequence = 0

    def more(count: int) -> None:
        nonlocal sequence
        for _ in range(count):
            pairs = [
                (draw.choice("abcdefgh"), draw.choice([None, "1", "2" * 40, "3" * 80]))
                for _ in range(draw.randint(1, 3))
            ]
            fields = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
            sequence += len(pairs)
            append_all(log, [keyed(*pairs, codec=draw.choice(list(Codec)), **fields)])

    more(11)
    roll(log)
    await log.flush()
    checkpoint = compact(log).checkpoint
    assert checkpoint is not None
    more(11)
    roll(log)
    append_all(log, [keyed(("z", "1"))])
    await log.flush()
    crash(directories)
    disk = runtime.disk
    assert isinstance(disk, MemoryDisk)
    return disk.crash(), checkpoint


def copy_of(runtime: Runtime, disk: MemoryDisk, seed: int = 0) -> Runtime:
    """Return ports with a disk of the same content."""
    root, draw = deepcopy(disk._platter.root), random.Random(seed)
    platter = replace(disk._platter, root=root, draw=draw, locks={})
    return replace(runtime, disk=MemoryDisk(now_ms=runtime.clock.wall_ms, platter=platter))


async def opened(runtime: Runtime) -> tuple[LogDirectories, Log]:
    directories, log = reopened(runtime, SETTINGS)
    await log.flush()
    return directories, log


def dying_after(operations: int, disk: MemoryDisk) -> list[int]:
    """Have the process die before its disk does one thing more than so many."""
    left = [operations]

    def count(path: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise DiesError(path)

    disk.watch = count
    return left


def buried(runtime: Runtime, death: str) -> Runtime:
    disk = runtime.disk
    assert isinstance(disk, MemoryDisk)
    disk.watch = None
    if death == "scattered":
        scatter(disk)
    after = disk.crash() if death == "process" else disk.power_cut(torn=death == "torn")
    return replace(runtime, disk=after)


def scatter(disk: MemoryDisk) -> None:
    """Have some of the changes of names survive, whichever: no order is promised without a sync."""
    directory = disk._directory(HERE)
    for change in directory.pending:
        if disk._platter.draw.random() < 0.5:
            _apply(directory.durable, change)
    directory.pending.clear()


def recovered(runtime: Runtime) -> None:
    finish_swaps(runtime.disk, FileCache(runtime.disk, 8), HERE)


class Expected:
    """What may be found after a death."""

    def __init__(self, log: Log) -> None:
        self.end = log.end
        self.records = {record.offset: record for record in records_of(log)}
        self.latest = latest_of(list(self.records.values()))

    def check(self, log: Log) -> None:
        assert log.end == self.end
        found = records_of(log)
        assert latest_of(found) == self.latest
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets)), "an offset is there twice, or goes back"
        for record in found:
            assert self.records[record.offset] == record
        expected = log.start
        for header, _ in whole_batches(everything(log)):
            assert header.base_offset >= expected
            expected = header.next_offset
        assert log._segments.bases == sorted(set(log._segments.bases))
        for segment, following in zip(log._segments.all, log._segments.bases[1:], strict=False):
            assert [h for _, h in segment.headers(0)][-1].next_offset == following, "a hole"


def second_round(log: Log, checkpoint: int) -> list[Record]:
    done = compact(log, first_dirty=checkpoint, **MAP)
    assert done.checkpoint == log._segments.active.base
    return records_of(log)


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.parametrize("death", DEATHS)
def test_who_dies_in_a_round_loses_nothing(death: str) -> None:
    async def body(runtime: Runtime) -> None:
        before, checkpoint = await written(runtime)
        _, log = await opened(copy_of(runtime, before))
        expected = Expected(log)
        undisturbed = second_round(log, checkpoint)
        assert len(undisturbed) < len(expected.records) - 5
        assert len(log._segments.all) > 3
        states = set()
        for operations in range(1_000):
            here = copy_of(runtime, before, seed=operations)
            directories, log = await opened(here)
            done, is_done = died(here, log, operations, checkpoint)
            crash(directories)
            here = buried(here, death)
            left = leftovers(here.disk.list(HERE))
            states.add((bool(left.swaps), bool(left.half_swaps), bool(left.cleaned)))
            directories, log = await opened(here)
            expected.check(log)
            assert second_round(log, checkpoint) == undisturbed
            expected.check(log)
            crash(directories)
            if is_done:
                assert done is not None
                break
        assert operations > 100
        assert (True, False, False) in states
        assert death == "power" or (False, False, True) in states
        assert death != "scattered" or (False, True, True) in states, "half a set"

    virtual(body)


def died(runtime: Runtime, log: Log, operations: int, checkpoint: int) -> tuple[Done | None, bool]:
    """Take a round whose process may die. Returns it, and whether it was done."""
    disk = runtime.disk
    assert isinstance(disk, MemoryDisk)
    dying_after(operations, disk)
    try:
        done = compact(log, first_dirty=checkpoint, **MAP)
    except DiesError:
        return None, False
    finally:
        disk.watch = None
    return done, True


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.parametrize("death", ["torn", "scattered"])
def test_who_dies_in_recovery_loses_nothing(death: str) -> None:
    """From each state in which a round can leave a directory that is not whole."""

    async def body(runtime: Runtime) -> None:
        before, checkpoint = await written(runtime)
        directories, log = await opened(copy_of(runtime, before))
        expected = Expected(log)
        undisturbed = second_round(log, checkpoint)
        crash(directories)
        tried = 0
        states: set[tuple[str, ...]] = set()
        for operations in range(1_000):
            here = copy_of(runtime, before, seed=operations)
            directories, log = await opened(here)
            _, is_done = died(here, log, operations, checkpoint)
            crash(directories)
            if is_done:
                break
            here = buried(here, "process" if operations % 2 else death)
            left = leftovers(here.disk.list(HERE))
            names = tuple(here.disk.list(HERE))
            if names in states or not (left.swaps or left.half_swaps):
                continue
            states.add(names)
            for count in range(1_000):
                disk = here.disk
                assert isinstance(disk, MemoryDisk)
                there = copy_of(here, disk, seed=operations + count)
                assert isinstance(there.disk, MemoryDisk)
                dying_after(count, there.disk)
                try:
                    recovered(there)
                except DiesError:
                    there = buried(there, death)
                    recovered(there)
                else:
                    count = 1_000  # noqa: PLW2901 - it is done
                there = buried(there, death)
                directories, log = await opened(there)
                expected.check(log)
                assert second_round(log, checkpoint) == undisturbed
                crash(directories)
                tried += 1
                if count == 1_000:
                    break
        assert tried > 100

    virtual(body)


# --- a round that is ended ---


def turns_of(compaction: Compaction, count: int) -> tuple[Any, Turn, bool]:
    """Take so many turns of a round; return its steps, the last one, and whether it is over."""
    steps: Any = compaction.steps()
    wanted = None
    for _ in range(count + 1):
        try:
            wanted = advanced(steps, wanted)
        except StopIteration:
            return steps, None, True
    return steps, wanted, False


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.parametrize("is_cut", [True, False], ids=["cut", "reset"])
@pytest.mark.parametrize("death", DEATHS)
def test_what_is_cut_in_the_middle_of_a_round_never_comes_back(
    death: str, is_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unclean election cuts what was committed; new records stand where old ones stood."""
    monkeypatch.setattr(compaction_round, "BATCH_EFFORT", 1)  # a turn for each batch

    async def body(runtime: Runtime) -> None:
        before, checkpoint = await written(runtime)
        count, is_over = 0, False
        while not is_over:
            here = copy_of(runtime, before, seed=count)
            directories, log = await opened(here)
            compaction, _, host = make_round(log, first_dirty=checkpoint, is_aside=False, **MAP)
            steps, wanted, is_over = turns_of(compaction, count // 2)
            if callable(wanted) and count % 2:  # its job is done, which the steps do not know yet
                wanted = partial(same, wanted())
            cut = 5 + count // 2 % 17
            if is_cut:
                log.truncate_to(cut)
            else:
                log.reset_to(cut)
            assert not log.compaction.is_under_way
            assert is_settled(here), "what is not durable may come back"
            for number in range(3):
                append(log, 1 + number, epoch=7, size=150)
            after = everything(log)
            if not is_over:
                assert end_of(steps, wanted) is None, "it is no round of this log"
            assert everything(log) == after
            assert not leftovers(here.disk.list(HERE)).cleaned
            await log.flush()
            crash(directories)
            here = buried(here, death)
            directories, log = await opened(here)
            assert everything(log) == after
            assert log.latest_epoch == 7
            crash(directories)
            count += 1
        assert host.taken, "the last one was done"
        assert count > 60

    virtual(body)


def same(outcome: Any) -> Any:
    return outcome


def is_settled(runtime: Runtime) -> bool:
    """Whether nothing of a round would be found after a power cut, but what recovery removes."""
    disk = runtime.disk
    assert isinstance(disk, MemoryDisk)
    names = copy_of(runtime, disk).disk.power_cut().list(HERE)  # type: ignore[attr-defined]
    return not leftovers(names).swaps


@pytest.mark.parametrize("has_run", [False, True])
def test_a_round_of_a_log_that_was_deleted_touches_nothing_of_the_next_one(has_run: bool) -> None:
    """The directory's name is another replica's when the round's next job has its turn.

    Or when the round is told what the job has come to, which ran in the directory that it was.
    """

    async def body(runtime: Runtime) -> None:
        before, checkpoint = await written(runtime)
        count, is_over = 0, False
        while not is_over:
            here = copy_of(runtime, before)
            directories, log = await opened(here)
            compaction, _, _ = make_round(log, first_dirty=checkpoint, **MAP)
            steps, wanted, is_over = turns_of(compaction, count)
            if has_run and callable(wanted) and not is_over:
                outcome = wanted()
                wanted = lambda outcome=outcome: outcome  # noqa: E731 - it runs no more
            directories.delete("t", 0)
            fresh = directories.create("t", 0, bytes(16), SETTINGS)
            append_all(fresh, [keyed(("a", "new"))])
            here.disk.write_atomic(f"{HERE}/{0:020d}.log.cleaned", b"a round of its own")
            names = here.disk.list(HERE)
            if not is_over:
                assert end_of(steps, wanted) is None
            assert here.disk.list(HERE) == names
            assert [record.value for record in records_of(fresh)] == [b"new"]
            crash(directories)
            count += 1
        assert count > 5

    virtual(body)


def test_a_log_that_lost_a_segment_keeps_what_it_has() -> None:
    """Retention takes the first one while a round runs, which says so and goes on with nothing."""

    async def body(runtime: Runtime) -> None:
        before, checkpoint = await written(runtime)
        directories, log = await opened(copy_of(runtime, before))
        compaction, _, _ = make_round(log, first_dirty=checkpoint, **MAP)
        steps, wanted, _ = turns_of(compaction, 1)
        log.high_watermark = log.end
        left = log.size - log._segments.all[0].size
        log.settings = SETTINGS.replace(
            cleanup_policy=("compact", "delete"), retention_ms=-1, retention_bytes=left
        )
        assert log.retention(LATER_MS, log.end) == 1
        data = everything(log)
        names = log.home.runtime.disk.list(HERE)
        assert end_of(steps, wanted) is None
        assert everything(log) == data
        gone = set(names) - set(log.home.runtime.disk.list(HERE))
        assert all(name.endswith(".cleaned") for name in gone)
        crash(directories)

    virtual(body)


def test_reads_go_on_while_the_new_segment_has_no_name_yet() -> None:
    async def body(runtime: Runtime) -> None:
        before, checkpoint = await written(runtime)
        directories, log = await opened(copy_of(runtime, before))
        latest = latest_of(records_of(log))
        compaction, _, _ = make_round(log, first_dirty=checkpoint, **MAP)
        seen: list[Sequence[str]] = []
        wanted: Turn = None
        steps = compaction.steps()
        try:
            while True:
                wanted = advanced(steps, wanted)
                for segment in log._segments.all[:-1]:  # as after a flush
                    segment.offsets.release()
                    segment.times.release()
                assert latest_of(records_of(log)) == latest
                for header in headers_of(everything(log)):
                    found = log.read(header.base_offset, 1, log.end)
                    assert headers_of(found.records) == [header]
                seen.append([each for each in log.home.runtime.disk.list(HERE) if "swap" in each])
        except StopIteration as end:
            checkpoint = end.value
        assert checkpoint == log._segments.active.base
        assert any(seen)
        crash(directories)

    virtual(body)
