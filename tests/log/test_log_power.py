"""Power cuts at random moments: what was flushed is there, and the log is never damaged.

Method: a seeded run of appends, truncations, flushes, retention and clean stops over the memory
disk, with SIGKILLs and torn power cuts in between; a list of batches says what may be found.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from tests.log.log_kit import (
    LOGS,
    after_crash,
    append,
    bases,
    crash,
    everything,
    make_batch,
    memory_disk,
    new_log,
    open_directories,
    reopened,
    small_settings,
    virtual,
)

from holdfast.log.checkpoints import RECOVERY_POINT
from holdfast.log.directories import LogDirectories
from holdfast.log.log import Log
from holdfast.runtime.ports import Runtime
from holdfast.testing.ground.disk import MemoryDisk
from holdfast.wire.batch import batches, crc_matches

SETTINGS = small_settings(segment_bytes=700, index_interval_bytes=150, file_delete_delay_ms=50)


class Life:
    """One replica through many processes; knows what each may find."""

    def __init__(self, runtime: Runtime, seed: int) -> None:
        self.runtime = runtime
        self.draw = random.Random(seed)
        self.epoch = 0
        self.directories: LogDirectories
        self.log: Log
        # Every batch ever written at an offset: (epoch, offset) -> bytes.
        self.written: dict[tuple[int, int], bytes] = {}
        self.durable = 0  # below it the log must be what `self.safe` holds
        self.safe = b""
        self.sequence = 0

    def begin(self) -> None:
        self.directories, self.log = new_log(self.runtime, SETTINGS)
        self.lead()

    def lead(self) -> None:
        """After every start there is a new leader epoch, as the controller would have it."""
        self.epoch += 1
        self.log.start_epoch(self.epoch)

    def write(self) -> None:
        for _ in range(self.draw.randint(1, 8)):
            count = self.draw.randint(1, 3)
            base = append(self.log, count, epoch=self.epoch, size=self.draw.randint(1, 60))
            data = self.log.read(base, 1, self.log.end).records
            assert (self.epoch, base) not in self.written, "an epoch and an offset name one batch"
            self.written[self.epoch, base] = data

    async def flush(self) -> None:
        end, content = self.log.end, everything(self.log)
        await self.log.flush()
        assert self.log.recovery_point >= min(end, self.log.end)
        self.durable, self.safe = end, content

    def truncate(self) -> None:
        offset = self.draw.randint(max(self.log.start, self.log.end - 12), self.log.end)
        self.log.truncate_to(offset)
        if self.log.end < self.durable:
            self.durable, self.safe = self.log.end, everything(self.log)
        self.epoch += 1
        self.log.start_epoch(self.epoch)

    async def step(self) -> None:
        await self.draw.choices(
            [self._write, self.flush, self._truncate, self._rest], [6, 2, 1, 2]
        )[0]()

    async def _write(self) -> None:
        self.write()

    async def _truncate(self) -> None:
        self.truncate()

    async def _rest(self) -> None:
        await asyncio.sleep(self.draw.random() / 50)  # jobs end, or are under way
        if self.draw.random() < 0.3:
            self.directories.directories[0].checkpoint(RECOVERY_POINT)

    async def die(self) -> None:
        kind = self.draw.choice(["clean", "kill", "power", "torn", "clean, then power"])
        before = everything(self.log)
        if kind.startswith("clean"):
            await self.directories.close()
            self.durable, self.safe = self.log.end, before
            if kind != "clean":
                self.runtime = after_crash(self.runtime, power=True, torn=True)
        else:
            crash(self.directories)
            self.runtime = after_crash(self.runtime, power=kind != "kill", torn=kind == "torn")
        self.directories, self.log = reopened(self.runtime, SETTINGS)
        found = everything(self.log)
        if kind == "kill":
            assert found == before, "SIGKILL loses nothing that a write was done for"
        self.check(found)
        self.lead()

    def check(self, found: bytes) -> None:
        assert found.startswith(self.safe), "something durable is gone"
        assert self.log.end >= self.durable
        epoch = -1
        for position, header in batches(found):
            assert crc_matches(found, position)
            assert header.leader_epoch >= epoch
            epoch = header.leader_epoch
            data = found[position : position + header.size]
            assert self.written[epoch, header.base_offset] == data
            assert self.log.epoch_at(header.base_offset) == epoch
        # What a torn cut left is as good as flushed for the next life only if it is flushed.
        offsets = bases(found)
        assert offsets == sorted(offsets)
        for offset in offsets:
            assert bases(self.log.read(offset, 1, self.log.end).records) == [offset]


@pytest.mark.parametrize("seed", range(24))
def test_nothing_durable_is_lost_and_nothing_is_made_up(seed: int) -> None:
    async def body(runtime: Runtime) -> None:
        life = Life(runtime, seed)
        life.begin()
        await life.flush()
        for _ in range(6):
            for _ in range(life.draw.randint(1, 15)):
                await life.step()
            await life.die()

    virtual(body, seed=seed)


def test_flush_means_data_names_and_parents() -> None:
    """A replica that was made, written and flushed a moment ago survives the power cut."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        for epoch in range(3):
            append(log, 2, epoch=epoch)
        await log.flush()
        whole = everything(log)
        crash(directories)
        _, log = reopened(after_crash(runtime, power=True))
        assert everything(log) == whole
        assert log.topic_id == bytes(range(16))
        assert log.latest_epoch == 2

    virtual(body)


def test_what_was_not_flushed_may_be_lost_and_this_test_can_see_it() -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        append(log)
        await log.flush()
        append(log)
        crash(directories)
        _, log = reopened(after_crash(runtime, power=True))
        assert log.end == 1

    virtual(body)


def test_a_segment_that_was_emptied_stays_empty() -> None:
    """Cut at its very base nothing of it is left to flush, but that it is shorter is."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime, SETTINGS)
        for _ in range(30):
            append(log)
        base = log._segments.bases[-1]
        assert base < log.end
        await log.flush()
        log.truncate_to(base)
        assert (log.end, log.recovery_point) == (base, base)
        await directories.close()
        _, log = reopened(after_crash(runtime, power=True), SETTINGS)
        assert log.end == base

    virtual(body)


def test_a_checkpoint_under_way_does_not_undo_a_truncation() -> None:
    """Else a crash would trust bytes that were written after the cut and never synced."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime, SETTINGS)
        for _ in range(30):
            append(log)
        await log.flush()
        directories.directories[0].checkpoint(RECOVERY_POINT)
        log.truncate_to(10)
        await asyncio.sleep(1)
        assert log.recovery_point <= 10
        text = runtime.disk.read(f"{LOGS}/{RECOVERY_POINT}").decode()
        assert f"t 0 {log.recovery_point}\n" in text

    virtual(body)


class DiesError(Exception):
    """The process ends here."""


async def beginning_anew(runtime: Runtime, offset: int, operations: int) -> tuple[MemoryDisk, bool]:
    """A log of [50, 60), committed until 55, begins anew; the disk does so many things, no more.

    At 58 it has been cut before, so that an empty segment begins there.
    """
    directories, log = new_log(runtime, small_settings(segment_bytes=100 if offset == 58 else 2000))
    log.reset_to(50)
    for _ in range(9):
        append(log)
    append(log, producer_id=7, producer_epoch=0, base_sequence=0)
    log.high_watermark = 55
    await directories.close()  # leaves a snapshot of producers at the very end
    directories, log = reopened(runtime)
    if offset == 58:
        log.truncate_to(offset)
        assert not runtime.disk.size(f"{log.directory}/{offset:020d}.log")
    disk = memory_disk(runtime)
    left = operations

    def count(path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise DiesError(path)

    disk.watch = count
    try:
        log.reset_to(offset)
    except DiesError:
        return disk, False
    finally:
        disk.watch = None
        crash(directories)
    return disk, True


@pytest.mark.slow
@pytest.mark.parametrize("offset", [58, 60, 100], ids=["at a cut", "at its end", "beyond its end"])
@pytest.mark.parametrize("death", ["process", "power", "torn"])
def test_who_dies_while_it_begins_anew_has_the_old_log_or_the_new_one(
    offset: int, death: str
) -> None:
    """Wherever it stops: never one that begins at 0, never an old record that counts as committed.

    Seen to fail: with the old files gone before the new one was durable; with checkpoints written
    behind instead of before, when an old producer's batch counted as there.
    """

    async def body(runtime: Runtime) -> None:
        operations, done = 0, False
        batch = make_batch(producer_id=7, producer_epoch=0, base_sequence=0)
        while not done:
            fresh = replace(runtime, disk=MemoryDisk(operations, now_ms=runtime.clock.wall_ms))
            disk, done = await beginning_anew(fresh, offset, operations)
            after = disk.crash() if death == "process" else disk.power_cut(torn=death == "torn")
            found = open_directories(replace(runtime, disk=after)).get("t", 0)
            assert found is not None
            if done or found.start == offset:
                assert (found.start, found.end, found.high_watermark) == (offset,) * 3
                check = found.check_producer(memoryview(bytearray(batch)))
                assert check.duplicate_offset is None, "it is in no log"
            else:
                assert found.start == 50, f"after {operations} operations"
                assert found.end <= 60
                assert found.high_watermark <= 55
            operations += 1
        assert operations > 10

    virtual(body)
