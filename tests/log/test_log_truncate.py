"""Truncation, reset and epochs: what is thrown away is gone from every derived state."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.log_kit import (
    LOGS,
    NOW_MS,
    after_crash,
    append,
    bases,
    crash,
    everything,
    found_at,
    make_batch,
    memory_disk,
    new_log,
    newest_of,
    open_directories,
    reopened,
    small_settings,
    virtual,
)

from holdfast.log.errors import StorageError
from holdfast.log.log import Log
from holdfast.runtime.ports import Runtime

SIZE = len(make_batch(2))


def fill(log: Log, count: int, *, epoch: int = 0, producer: int = -1) -> None:
    for number in range(count):
        fields = (
            {"producer_id": producer, "producer_epoch": 0, "base_sequence": 2 * number}
            if producer >= 0
            else {}
        )
        batch = make_batch(2, timestamp=NOW_MS + 10 * number, **fields)
        log.append_as_leader(memoryview(bytearray(batch)), epoch)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    count=st.integers(1, 30),
    cut=st.integers(0, 62),
    flushed=st.booleans(),
    segment_bytes=st.sampled_from([400, 1 << 20]),
)
def test_a_truncated_log_is_like_one_that_never_had_more(
    count: int, cut: int, flushed: bool, segment_bytes: int
) -> None:
    """Against a second replica that was given only what stays; also after a restart."""

    async def body(runtime: Runtime) -> None:
        chosen = small_settings(segment_bytes=segment_bytes, index_interval_bytes=150)
        directories, log = new_log(runtime, chosen)
        fill(log, count, epoch=1)
        if flushed:
            await log.flush()
        log.truncate_to(cut)
        kept = min(count, cut // 2)
        short = directories.create("t", 1, bytes(16), chosen)
        fill(short, kept, epoch=1)
        assert everything(log) == everything(short)
        assert log.end == short.end == 2 * kept
        for each in log, short:
            fill(each, 5, epoch=2)
        assert everything(log) == everything(short)
        assert log.epoch_end(1) == short.epoch_end(1)
        assert log.latest_epoch == 2
        assert found_at(log, NOW_MS + 35) == found_at(short, NOW_MS + 35)
        assert newest_of(log) == newest_of(short)
        whole = everything(short)
        await directories.close()
        directories, log = reopened(runtime, chosen)
        assert everything(log) == whole
        crash(directories)
        directories, log = reopened(after_crash(runtime), chosen)
        assert everything(log) == whole

    virtual(body)


def test_an_epoch_without_records_goes_when_the_log_is_cut_at_its_start() -> None:
    """Else a follower would ask with it for ever (KAFKA-20961)."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime)
        fill(log, 3, epoch=1)
        log.start_epoch(4)
        assert tuple(log.epoch_end(1)) == (1, 6)
        assert log.latest_epoch == 4
        log.truncate_to(6)
        assert log.end == 6
        assert log.latest_epoch == 1

    virtual(body)


def test_a_new_leaders_epoch_is_known_before_it_writes() -> None:
    """KAFKA-6361: two quick elections; a follower of the second must see where the first began."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        fill(log, 2, epoch=1)
        log.start_epoch(2)
        log.start_epoch(3)
        assert tuple(log.epoch_end(1)) == (1, 4)
        assert tuple(log.epoch_end(2)) == (1, 4), "epoch 2 wrote nothing: it makes room"
        assert tuple(log.epoch_end(3)) == (3, 4)
        fill(log, 1, epoch=3)
        await directories.close()
        _, log = reopened(runtime)
        assert tuple(log.epoch_end(1)) == (1, 4)
        assert tuple(log.epoch_end(3)) == (3, 6)

    virtual(body)


def test_producers_after_truncation_are_those_of_the_shorter_log() -> None:
    """Also when older batches fell out of the window, so that the log has to be asked."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        fill(log, 20, producer=7)
        await log.flush()
        for cut in (36, 16, 2):
            log.truncate_to(cut)
            short = directories.create("t", cut, bytes(16), small_settings())
            fill(short, cut // 2, producer=7)
            for sequence in range(44):
                fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
                view = memoryview(make_batch(2, **fields))
                found, expected = log.check_producer(view), short.check_producer(view)
                if found != expected:
                    # A replay begins at a snapshot, which keeps one batch: more are unknown.
                    assert expected.duplicate_offset is not None
                    assert found.error

    virtual(body)


def test_reset_starts_over_at_another_offset() -> None:
    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime)
        for offset in (1_000, 3, 0):
            log = directories.create("t", 0, bytes(16), small_settings())
            fill(log, 20, epoch=3, producer=7)
            await log.flush()
            log.reset_to(offset)
            assert (log.start, log.end, log.high_watermark) == (offset, offset, offset)
            assert log.latest_epoch == -1
            assert everything(log) == b""
            assert append(log, epoch=1) == offset
            assert bases(everything(log)) == [offset]
            crash(directories)
            runtime = after_crash(runtime)
            directories, log = reopened(runtime)
            assert (log.start, log.end, bases(everything(log))) == (offset, offset + 1, [offset])
            assert log.latest_epoch == 1
            directories.delete("t", 0)

    virtual(body)


def test_truncation_below_the_first_segment_is_a_reset() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime)
        log.reset_to(50)
        fill(log, 3)
        log.truncate_to(20)
        assert (log.start, log.end) == (20, 20)

    virtual(body)


def test_what_is_flushed_while_the_log_is_cut_claims_no_more_than_is_left() -> None:
    """A flush runs, the log is cut and grows again: the new bytes are not durable yet."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        fill(log, 10)
        pending = log.flush()
        log.truncate_to(6)
        fill(log, 10, epoch=1)
        await pending
        assert log.recovery_point == 0, "that the file is shorter is not durable either"
        whole = everything(log)
        crash(directories)
        _, log = reopened(after_crash(runtime, power=True))
        assert log.end >= 6
        assert whole[: len(everything(log))] == everything(log) or log.end > 6

    virtual(body)


@pytest.mark.parametrize(("where", "interval"), [(0, 4096), (1, 4096), (1, 1)])
def test_a_cut_that_meets_damage_leaves_the_log_as_it_was(where: int, interval: int) -> None:
    """Later segments were gone by then, while the log still ended behind them.

    Asked by a leader that has those records, the follower said that it holds them, too.
    """

    async def body(runtime: Runtime) -> None:
        chosen = small_settings(segment_bytes=3 * SIZE, index_interval_bytes=interval)
        _, log = new_log(runtime, chosen)
        fill(log, 12)
        whole = [bases(log.read(offset, SIZE, log.end).records) for offset in range(12, 24, 2)]
        path = f"{LOGS}/t-0/{6:020d}.log"
        memory_disk(runtime).corrupt(path, where * SIZE + 16, b"\xff")
        with pytest.raises(StorageError, match="stays online"):
            log.truncate_to(10)
        assert log.end == 24
        assert [bases(log.read(o, SIZE, log.end).records) for o in range(12, 24, 2)] == whole
        log.truncate_to(16)
        assert (log.end, log.first_segment) == (16, 0)
        assert append(log) == 16
        log.truncate_to(4)
        assert append(log) == 4

    virtual(body)
