"""Appending, rolling and reading: what goes in comes out, whole batches, from every offset."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.log_kit import (
    NOW_MS,
    append,
    bases,
    everything,
    make_batch,
    memory_disk,
    new_log,
    small_settings,
    virtual,
)

from holdfast.log.log import Log
from holdfast.runtime.ports import Runtime
from holdfast.wire.batch import batches, read_header
from holdfast.wire.errors import ErrorCode


def build(*batch_bytes: tuple[int, int, int]) -> bytearray:
    """Return batches as a leader has them, from (base offset, epoch, count) triples."""
    return bytearray(
        b"".join(
            make_batch(count, base_offset=base, leader_epoch=epoch)
            for base, epoch, count in batch_bytes
        )
    )


def follow(log: Log, *batch_bytes: tuple[int, int, int]) -> ErrorCode:
    return log.append_as_follower(memoryview(build(*batch_bytes)))


def test_the_leader_assigns_offsets_and_epoch() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime)
        log.start_epoch(5)
        assert append(log, 3, epoch=5) == 0
        assert append(log, 1, epoch=5) == 3
        assert (log.start, log.end) == (0, 4)
        found = [header for _, header in batches(everything(log))]
        assert [(h.base_offset, h.leader_epoch, h.record_count) for h in found] == [
            (0, 5, 3),
            (3, 5, 1),
        ]

    virtual(body)


def test_prebuilt_batches_are_numbered_one_after_the_other() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime)
        append(log)
        several = bytearray(make_batch(2) + make_batch(3, control=True) + make_batch(1))
        assert log.append_batches_as_leader(memoryview(several), 4) == 1
        assert bases(everything(log)) == [0, 1, 3, 6]
        assert (log.end, log.latest_epoch, log.epoch_at(1), log.epoch_at(0)) == (7, 4, 4, 0)

    virtual(body)


@settings(max_examples=30, deadline=None)
@given(
    counts=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 120)), min_size=1, max_size=40),
    interval=st.sampled_from([0, 150, 5_000]),
    segment_bytes=st.sampled_from([300, 1_000, 1_000_000]),
    max_bytes=st.sampled_from([0, 1, 80, 200, 700, 1 << 20]),
    minimum_one=st.booleans(),
)
def test_reads_from_every_offset_to_every_bound(
    counts: list[tuple[int, int]],
    interval: int,
    segment_bytes: int,
    max_bytes: int,
    minimum_one: bool,
) -> None:
    """Against a list of batches: the one that holds the offset comes first, none is cut.

    Twice, so that the second pass meets the cursors that the first left.
    """

    async def body(runtime: Runtime) -> None:
        chosen = small_settings(segment_bytes=segment_bytes, index_interval_bytes=interval)
        directories, log = new_log(runtime, chosen)
        model: list[tuple[int, int, bytes]] = []
        for count, size in counts:
            base = append(log, count, size=size)
            batch = bytearray(make_batch(count, size=size))
            batch[0:8], batch[12:16] = base.to_bytes(8, "big"), bytes(4)
            model.append((base, log.end, bytes(batch)))
        await log.flush()  # sealed segments are searched on disk from here
        bounds = sorted({0, log.end // 2, log.end - 1, log.end, log.end + 9})
        for offset in [*range(log.end + 1)] * 2:
            for bound in bounds:
                found = log.read(offset, max_bytes, bound, minimum_one=minimum_one)
                assert found.error is ErrorCode.NONE
                expected = expect(model, offset, bound, max_bytes, minimum_one)
                # One read stays in one segment, so fewer batches may come, but not none.
                assert b"".join(expected).startswith(found.records)
                assert bool(found.records) is bool(expected)
                taken = bases(found.records)
                if taken:
                    ends = {base: end for base, end, _ in model}
                    assert found.next_offset == ends[taken[-1]]
                else:
                    assert found.next_offset == offset
        await directories.close()

    def expect(
        model: list[tuple[int, int, bytes]], offset: int, bound: int, limit: int, one: bool
    ) -> list[bytes]:
        if offset >= bound:
            return []
        taken: list[bytes] = []
        size = 0
        for _, end, batch in model:
            if end <= offset:
                continue
            if end > bound:
                break
            if size + len(batch) > limit and not (one and not taken):
                break
            taken.append(batch)
            size += len(batch)
        return taken

    virtual(body)


@pytest.mark.parametrize("offset", [-1, 1, 2, 8, 100])
def test_reads_outside_the_log_are_refused(offset: int) -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime)
        for _ in range(5):
            append(log)
        log.high_watermark = 5
        assert log.advance_start(3)
        assert log.read(offset, 1_000, log.end).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.read(5, 1_000, 5) == (b"", 5, ErrorCode.NONE)

    virtual(body)


def test_a_segment_rolls_by_size_time_index_and_offset() -> None:
    async def body(runtime: Runtime) -> None:
        size = len(make_batch())
        cases = {
            "size": small_settings(segment_bytes=3 * size),
            "time": small_settings(segment_bytes=1 << 20, segment_ms=20),
            "index": small_settings(
                segment_bytes=1 << 20, index_interval_bytes=0, segment_index_bytes=36
            ),
        }
        directories, _ = new_log(runtime)
        firsts = {}
        for number, (case, chosen) in enumerate(cases.items(), 1):
            log = directories.create("t", number, bytes(16), chosen)
            for step in range(9):
                append(log, timestamp=NOW_MS + 10 * step)
            firsts[case] = log._segments.bases
        assert firsts["size"] == [0, 3, 6]
        assert firsts["time"] == [0, 3, 6]
        assert firsts["index"] == [0, 3, 6]
        far = directories.create("t", 9, bytes(16), small_settings(segment_bytes=1 << 20))
        assert follow(far, (0, 0, 1), (1 << 40, 0, 1)) is ErrorCode.NONE
        assert follow(far, ((1 << 40) + (1 << 31), 0, 1)) is ErrorCode.NONE
        assert far._segments.bases == [0, 1 << 40, (1 << 40) + 1], "the last reaches just as far"
        assert bases(everything(far)) == [0, 1 << 40, (1 << 40) + (1 << 31)]

    virtual(body)


def test_jitter_makes_a_segment_roll_sooner() -> None:
    async def body(runtime: Runtime) -> None:
        chosen = small_settings(segment_bytes=1 << 20, segment_ms=1_000, segment_jitter_ms=900)
        directories, _ = new_log(runtime)
        rolled = set()
        for number in range(1, 20):
            log = directories.create("t", number, bytes(16), chosen)
            for step in range(12):
                append(log, timestamp=NOW_MS + 100 * step)
            rolled.add(log._segments.bases[1])
        assert len(rolled) > 3, "each segment draws its own"
        assert all(1 <= base <= 11 for base in rolled)

    virtual(body)


def test_a_follower_takes_what_the_leader_sent() -> None:
    async def body(runtime: Runtime) -> None:
        directories, leader = new_log(runtime)
        for number in range(40):
            append(leader, 1 + number % 3, epoch=number // 10)
        follower = directories.create("t", 1, bytes(16), small_settings(segment_bytes=700))
        while follower.end < leader.end:
            found = leader.read(follower.end, 900, leader.end)
            assert follower.append_as_follower(memoryview(found.records)) is ErrorCode.NONE
        assert everything(follower) == everything(leader)
        for epoch in range(6):
            assert follower.epoch_end(epoch) == leader.epoch_end(epoch)

    virtual(body)


@pytest.mark.parametrize(
    ("batch_bytes", "error"),
    [
        ([(2, 1, 1)], ErrorCode.OFFSET_OUT_OF_RANGE),  # before the end
        ([(3, 1, 2), (4, 1, 1)], ErrorCode.OFFSET_OUT_OF_RANGE),  # not upwards
        ([(3, 0, 1)], ErrorCode.CORRUPT_MESSAGE),  # an epoch that went back
        ([(3, 2, 1), (4, 1, 1)], ErrorCode.CORRUPT_MESSAGE),
        ([(3, 1, 1), (9, 1, 1)], ErrorCode.NONE),  # a hole that compaction left
    ],
)
def test_a_follower_refuses_what_does_not_go_on(
    batch_bytes: list[tuple[int, int, int]], error: ErrorCode
) -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime)
        append(log, 3, epoch=1)
        before = everything(log)
        assert follow(log, *batch_bytes) is error
        if error:
            assert everything(log) == before
        else:
            assert bases(everything(log)) == [0, 3, 9]
            assert bases(log.read(5, 1_000, 99).records) == [9], "in a hole: what comes next"

    virtual(body)


def test_a_follower_refuses_every_flipped_byte_and_drops_a_cut_batch() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime)
        good = build((0, 0, 2), (2, 0, 1))
        first = read_header(good).size
        for index in range(8, len(good)):
            if index % first in (*range(8), *range(12, 16)):
                continue  # offset and leader epoch lie outside the CRC
            bad = bytearray(good)
            bad[index] ^= 0x10
            answer = log.append_as_follower(memoryview(bad))
            if answer is ErrorCode.NONE:
                # A length that claims more than was sent looks like a batch cut at the end.
                assert index in (*range(8, 12), *range(first + 8, first + 12))
                log.truncate_to(0)
            assert log.end == 0
            assert answer in (
                ErrorCode.NONE,
                ErrorCode.CORRUPT_MESSAGE,
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        assert log.append_as_follower(memoryview(good)[:-1]) is ErrorCode.NONE
        assert log.end == 2

    virtual(body)


def test_producers_are_checked_against_the_log() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime)

        def batch(sequence: int) -> memoryview:
            fields = {"producer_id": 9, "producer_epoch": 0, "base_sequence": sequence}
            return memoryview(bytearray(make_batch(2, **fields)))

        assert log.check_producer(batch(0)).duplicate_offset is None
        log.append_as_leader(batch(0), 0)
        assert log.check_producer(batch(0)).duplicate_offset == 0
        assert log.check_producer(batch(3)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert log.check_producer(batch(2)).error is ErrorCode.NONE
        assert log.check_producer(memoryview(make_batch())).error is ErrorCode.NONE

    virtual(body)


def test_a_batch_that_is_not_there_any_more_is_told_from_a_damaged_one() -> None:
    """A length that leads nowhere: the reader gets CORRUPT_MESSAGE, the log goes on."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, small_settings(index_interval_bytes=1 << 20))
        for _ in range(4):
            append(log)
        size = len(make_batch())
        memory_disk(runtime).corrupt(log._segments.active.log_path, size + 8, bytes(4))
        assert log.read(0, size, 4).error is ErrorCode.NONE
        assert log.read(3, size, 4).error is ErrorCode.CORRUPT_MESSAGE
        assert append(log) == 4

    virtual(body)
