"""Goal: a replica that compacts keeps each key's last value through any number of processes.

Method: a seeded run over the memory disk of appends with keys, flushes, cuts, retention and rounds,
each a step at a time among the others, with clean stops, SIGKILLs and torn power cuts in between.
A list of records says what may be found. Beside it: what the cleaner checkpoint says is true.
Seen to fail: without the end of the round before a cut, and with a checkpoint that a cut leaves as
it was.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.log.compaction_kit import (
    DAY_MS,
    advanced,
    append_all,
    compact,
    keyed,
    latest_of,
    records_of,
    roll,
    whole_batches,
)
from tests.log.log_kit import (
    LOGS,
    NOW_MS,
    after_crash,
    append,
    bases,
    crash,
    everything,
    new_log,
    open_directories,
    reopened,
    small_settings,
    virtual,
)

from holdfast.log.checkpoints import CLEANED, HIGH_WATERMARK, RECOVERY_POINT
from holdfast.log.directories import LogDirectories
from holdfast.log.log import Log
from holdfast.log.segments import Segments
from holdfast.runtime.ports import Runtime
from holdfast.wire.batch import Record

SETTINGS = small_settings(
    segment_bytes=500,
    index_interval_bytes=100,
    cleanup_policy=("compact",),
    file_delete_delay_ms=50,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=DAY_MS,
)
MAP_BYTES = 24 * 400


class Life:
    """One replica through many processes; knows what each may find."""

    def __init__(self, runtime: Runtime, seed: int) -> None:
        self.runtime = runtime
        self.draw = random.Random(seed)
        self.epoch = 0
        self.now_ms = NOW_MS
        self.directories: LogDirectories
        self.log: Log
        self.model: list[Record] = []  # all that the log would have without compaction
        self.cut_off: list[list[Record]] = []  # what it was before a cut that is not durable yet
        self.durable = 0
        self.rounds = 0
        self.round: tuple[Any, Any] | None = None  # its steps, and what they have yielded last

    def lead(self) -> None:
        self.epoch += 1
        self.log.start_epoch(self.epoch)

    def write(self) -> None:
        for _ in range(self.draw.randint(1, 6)):
            pairs = [
                (self.draw.choice("abcdefgh"), self.draw.choice([None, "1", "2" * 40]))
                for _ in range(self.draw.randint(1, 3))
            ]
            base = append_all(self.log, [keyed(*pairs)], epoch=self.epoch)[0]
            self.model += [
                record._replace(offset=base + index)
                for index, record in enumerate(keyed(*pairs).records)
            ]

    async def flush(self) -> None:
        await self.log.flush()
        self.durable = self.log.end
        self.cut_off.clear()

    def commit(self) -> None:
        self.log.high_watermark = self.draw.randint(self.log.high_watermark, self.log.end)

    def cut(self) -> None:
        """Most cuts leave what is committed; an unclean election's does not."""
        lowest = self.log.high_watermark if self.draw.random() < 0.8 else self.log.start
        self.cut_off.append(records_of(self.log))
        self.log.truncate_to(self.draw.randint(max(lowest, self.log.start), self.log.end))
        self.durable = min(self.durable, self.log.end)
        # What a later record had taken away does not come back with the cut.
        self.model = records_of(self.log)
        self.lead()

    def begin_anew(self) -> None:
        self.log.reset_to(self.log.end + self.draw.randint(0, 5))
        self.durable = self.log.end
        self.model = []
        self.cut_off.clear()
        self.lead()

    def compact(self) -> None:
        """Take some steps of a round, or begin one."""
        if self.round is not None and not self.log.compaction.is_under_way:
            self.round = None  # it was ended
        if self.round is None:
            self.now_ms += self.draw.choice([0, 0, 2 * DAY_MS])
            dirty = self.log.compaction.dirty(self.now_ms)
            if not dirty.is_due(self.log.settings):
                return
            begun, _ = self.log.compaction.begin(dirty, self.now_ms, bytes(16), MAP_BYTES)
            self.round = begun.steps(), None
        steps, wanted = self.round
        for _ in range(self.draw.randint(1, 12)):
            try:
                wanted = advanced(steps, wanted)
            except StopIteration as end:
                checkpoint = end.value
                break
        else:
            self.round = steps, wanted
            return
        assert checkpoint is not None, "nothing has disturbed it"
        self.log.compaction.done(checkpoint)
        self.log.home.checkpoint(CLEANED)
        self.rounds += 1
        self.round = None

    async def step(self) -> None:
        kind = self.draw.choices(
            ["write", "flush", "commit", "compact", "cut", "anew", "rest"], [6, 3, 4, 9, 1, 0.2, 2]
        )[0]
        if kind == "flush":
            await self.flush()
        elif kind == "rest":
            await asyncio.sleep(self.draw.random() / 50)  # jobs end, or are under way
            for name in (RECOVERY_POINT, HIGH_WATERMARK):
                self.log.home.checkpoint(name)
        else:
            moves = {
                "write": self.write,
                "commit": self.commit,
                "compact": self.compact,
                "cut": self.cut,
                "anew": self.begin_anew,
            }
            moves[kind]()

    async def die(self) -> None:
        kind = self.draw.choice(["clean", "kill", "power", "torn"])
        end, before = self.log.end, records_of(self.log)
        if kind == "clean":
            await self.directories.close()
            self.durable = end
        else:
            crash(self.directories)
            self.runtime = after_crash(self.runtime, power=kind != "kill", torn=kind == "torn")
        self.round = None
        self.directories, self.log = reopened(self.runtime, SETTINGS)
        if kind in {"clean", "kill"}:
            assert self.log.end == end
            assert latest_of(records_of(self.log)) == latest_of(before)
        self.check()
        self.cut_off.clear()
        await self.flush()
        self.lead()

    def check(self) -> None:
        """Hold what is found against what was written, or what it was before a cut."""
        assert self.log.end >= self.durable, "something durable is gone"
        found = records_of(self.log)
        lives = [self.model, *self.cut_off]
        problems = [why_not(found, life, self.log.end) for life in lives]
        assert "" in problems, problems
        self.model = [
            record for record in lives[problems.index("")] if record.offset < self.log.end
        ]
        expected = self.log.start
        for header, _ in whole_batches(everything(self.log)):
            assert header.base_offset >= expected
            expected = header.next_offset
        for offset in bases(everything(self.log)):
            assert bases(self.log.read(offset, 1, self.log.end).records) == [offset]
        self.check_checkpoint(found)

    def check_checkpoint(self, found: list[Record]) -> None:
        """Below it no key has two records: else a tombstone may go and leave an older one."""
        cleaned = [record.key for record in found if record.offset < (self.log.cleaned_to or 0)]
        assert len(cleaned) == len(set(cleaned)), f"clean up to {self.log.cleaned_to}?"


def why_not(found: list[Record], written: list[Record], end: int) -> str:
    """Say why this can't be what is left of what was written below `end`; "" if it can."""
    there = {record.offset: record for record in written if record.offset < end}
    for record in found:
        if record != there.get(record.offset):
            return f"{record} in the place of {there.get(record.offset)}"
    latest = latest_of(list(there.values()))
    return "" if latest_of(found) == latest else f"{latest_of(found)} instead of {latest}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_each_keys_last_value_stays_through_all_lives(seed: int) -> None:
    async def body(runtime: Runtime) -> None:
        life = Life(runtime, seed)
        life.directories, life.log = new_log(runtime, SETTINGS)
        life.lead()
        await life.flush()
        for _ in range(8):
            for _ in range(life.draw.randint(5, 60)):
                await life.step()
                life.check_checkpoint(records_of(life.log))
            await life.die()
        assert life.rounds

    virtual(body, seed=seed)


# --- the checkpoint ---


async def clean_log(runtime: Runtime) -> tuple[LogDirectories, Log, int]:
    """Return a log that is clean up to its active segment, and so says its checkpoint."""
    directories, log = new_log(runtime, SETTINGS)
    for number in range(12):
        append_all(log, [keyed(("abc"[number % 3], str(number) * 30))])
    roll(log)
    append_all(log, [keyed(("a", "last"))])
    log.high_watermark = log.end
    await log.flush()
    checkpoint = compact(log).checkpoint
    assert checkpoint == log.cleaned_to == 12
    log.home.checkpoint(CLEANED)
    await log.home.submit(lambda: None)
    log.home.write_now()
    return directories, log, checkpoint


def test_the_checkpoint_is_apache_kafkas_and_is_found_again() -> None:
    async def body(runtime: Runtime) -> None:
        directories, log, _ = await clean_log(runtime)
        assert runtime.disk.read(f"{LOGS}/{CLEANED}") == b"0\n1\nt 0 12\n"
        crash(directories)
        _, log = reopened(after_crash(runtime, power=True), SETTINGS)
        assert log.cleaned_to == 12

    virtual(body)


@pytest.mark.parametrize(("cut", "expected"), [(12, 12), (6, 6), (0, 0)])
def test_it_is_lowered_before_anything_is_cut(
    cut: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it stops: what is written behind the cut is not believed to be clean."""
    seen: list[bytes] = []
    truncate = Segments.truncate

    def watched(segments: Segments, *arguments: Any) -> int:
        seen.append(segments._home.runtime.disk.read(f"{LOGS}/{CLEANED}"))
        return truncate(segments, *arguments)

    monkeypatch.setattr(Segments, "truncate", watched)

    async def body(runtime: Runtime) -> None:
        _, log, _ = await clean_log(runtime)
        log.truncate_to(cut)
        assert seen == [f"0\n1\nt 0 {expected}\n".encode()]
        assert log.cleaned_to == log.end or log.cleaned_to == cut == 12

    virtual(body)


def test_a_log_that_begins_anew_has_none() -> None:
    async def body(runtime: Runtime) -> None:
        _, log, _ = await clean_log(runtime)
        log.reset_to(20)
        assert log.cleaned_to is None
        assert runtime.disk.read(f"{LOGS}/{CLEANED}") == b"0\n0\n"

    virtual(body)


def test_a_replica_that_is_made_anew_has_none_of_its_namesake() -> None:
    async def body(runtime: Runtime) -> None:
        directories, _, _ = await clean_log(runtime)
        directories.delete("t", 0)
        fresh = directories.create("t", 0, bytes(16), SETTINGS)
        assert fresh.cleaned_to is None
        assert runtime.disk.read(f"{LOGS}/{CLEANED}") == b"0\n0\n"
        append(fresh, 30)
        await fresh.flush()
        crash(directories)
        _, log = reopened(after_crash(runtime), SETTINGS)
        assert (log.end, log.cleaned_to) == (30, None)

    virtual(body)


@pytest.mark.parametrize(
    "text", [b"0\n1\nt 0 14\n", b"0\n2\nt 0 7\n", b"nonsense"], ids=["too high", "cut", "nonsense"]
)
def test_one_that_says_too_much_or_nothing_is_done_without(text: bytes) -> None:
    """One beyond the log's end would be believed as soon as the log is longer."""

    async def body(runtime: Runtime) -> None:
        directories, log, _ = await clean_log(runtime)
        assert log.end == 13
        crash(directories)
        runtime.disk.write_atomic(f"{LOGS}/{CLEANED}", text)
        directories, log = reopened(after_crash(runtime), SETTINGS)
        assert log.cleaned_to is None
        append(log, 3)
        await log.flush()
        crash(directories)
        _, log = reopened(after_crash(runtime), SETTINGS)
        assert log.cleaned_to is None

    virtual(body)


def test_where_nothing_is_compacted_there_is_no_such_file() -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        append(log)
        log.home.write_now()
        await directories.close()
        assert not runtime.disk.exists(f"{LOGS}/{CLEANED}")
        directories = open_directories(after_crash(runtime))
        await directories.close()

    virtual(body)
