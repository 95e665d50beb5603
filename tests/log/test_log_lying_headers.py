"""Goal: what a header claims of its records costs a look-up by timestamp turns, and nobody else.

Method: logs of batches that a client made up (a largest timestamp that no record has, garbage or
bombs under a right CRC), whose look-ups are gone through slice by slice, while what is opened in
each slice is counted. No time is measured.
Seen to fail: with a look-up that never lets others have their turn, with one that inflates all it
meets on the loop, and with one that takes a batch that nobody can read for damage of the disk.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
from tests.log.log_kit import (
    NOW_MS,
    after_crash,
    append,
    crash,
    everything,
    found_at,
    make_batch,
    many_headers,
    new_log,
    newest_of,
    open_directories,
    reopened,
    small_settings,
    steps_of,
    virtual,
    with_body,
)

from holdfast.config.topic import TopicSettings
from holdfast.log import search
from holdfast.log.log import Log
from holdfast.log.segment import Segment
from holdfast.runtime import sliced_work
from holdfast.runtime.ports import Runtime
from holdfast.runtime.sliced_work import BYTES_A_SLICE, Effort
from holdfast.wire.batch import Codec
from holdfast.wire.compression import INFLATED_BYTES_SMALL, Buffer, decompress
from holdfast.wire.errors import ErrorCode

LATER = NOW_MS + 1_000_000
ROOMY = TopicSettings(segment_bytes=1 << 30)


def put(log: Log, batch: bytes) -> int:
    return log.append_as_leader(memoryview(bytearray(batch)), 0)


def lie(count: int = 1, *, codec: Codec = Codec.NONE) -> bytes:
    """Return a batch that claims a largest timestamp that no record has."""
    honest = make_batch(count, codec=codec)
    return with_body(honest, honest[61:], max_timestamp=LATER)


def bomb(size: int) -> bytes:
    """Return a small batch that claims to be late, and inflates to so many zeros."""
    body = zlib.compress(bytes(size), wbits=31)
    return with_body(make_batch(codec=Codec.GZIP), body, max_timestamp=LATER)


GARBAGE = {
    "no records": with_body(make_batch(), b"", max_timestamp=LATER),
    "noise": with_body(make_batch(3), b"\xff\x00nothing that is a record", max_timestamp=LATER),
    "cut": with_body(make_batch(3), make_batch(3)[61:-1], max_timestamp=LATER),
    "more than counted": with_body(make_batch(1), make_batch(3)[61:], max_timestamp=LATER),
    "fewer than counted": with_body(make_batch(3), make_batch(1)[61:], max_timestamp=LATER),
    "does not inflate": with_body(make_batch(codec=Codec.ZSTD), b"noise", max_timestamp=LATER),
    "no such codec": with_body(make_batch(), b"noise", attributes=7, max_timestamp=LATER),
    "negative count": with_body(make_batch(), b"noise", record_count=-5, max_timestamp=LATER),
    "a bomb": bomb(INFLATED_BYTES_SMALL + 1),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_what_nobody_can_read_is_passed_over(kind: str) -> None:
    """By look-ups, followers, a start after SIGKILL, and retention; and no disk is blamed."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime, small_settings(retention_ms=1, segment_bytes=1000))
        append(log, 2)
        put(log, GARBAGE[kind])
        end = append(log, 2, timestamp=LATER)
        for _ in range(2):
            found = found_at(log, LATER)
            assert found == (end, LATER, 0)
            assert newest_of(log) == (end + 1, LATER + 1, 0)
            await log.flush()
            crash(directories)
            runtime = after_crash(runtime)
            directories, log = reopened(runtime, small_settings(retention_ms=1, segment_bytes=1000))
            assert (log.start, log.end) == (0, end + 2)
        follower = open_directories(runtime, ("/other",)).create("t", 1, bytes(16), ROOMY)
        assert follower.append_as_follower(memoryview(everything(log))) is ErrorCode.NONE
        assert follower.end == log.end
        log.high_watermark = log.end
        log.retention(LATER + 1_000_000, log.high_watermark)
        assert log.start == log.end
        assert not log.offline

    virtual(body)


def test_the_largest_true_one_is_found_where_all_lie() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, ROOMY)
        append(log, 2)
        put(log, lie(3))
        put(log, lie(5))
        put(log, GARBAGE["noise"])
        assert newest_of(log) == (2 + 3 + 4, NOW_MS + 4, 0)
        assert found_at(log, LATER) is None

    virtual(body)


def opened_a_slice(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], Callable[[], None]]:
    """Count the batches that each slice opens; the second is called where one ends."""
    counts = [0]
    read = Segment.read

    def counted(segment: Segment, position: int, size: int) -> bytes:
        counts[-1] += 1
        return read(segment, position, size)

    monkeypatch.setattr(Segment, "read", counted)
    return counts, lambda: counts.append(0)


@pytest.mark.parametrize("is_largest", [False, True])
def test_a_slice_opens_few_batches(monkeypatch: pytest.MonkeyPatch, is_largest: bool) -> None:
    """30 KB of tiny batches: each claims to be late, and none has a late record."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, ROOMY)
        for _ in range(400):
            put(log, lie())
        counts, ended = opened_a_slice(monkeypatch)
        effort = Effort()
        steps = log.find_max_timestamp(effort) if is_largest else log.find_timestamp(LATER, effort)
        found = None
        try:
            while True:
                assert next(steps) in {sliced_work.REST, sliced_work.HOLD}
                ended()
        except StopIteration as end:
            found = end.value
        assert sum(counts) == 400
        assert max(counts) <= 1 / search.OPENING_EFFORT
        assert found == ((0, NOW_MS, 0) if is_largest else None)

    virtual(body)


def test_headers_that_are_only_passed_count_too() -> None:
    """A look-up begins far in front of what it finds, where timestamps rise and fall."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, ROOMY)
        append(log, timestamp=LATER)  # the time index knows of nothing later than this
        for _ in range(2000):
            append(log, timestamp=NOW_MS)
        wanted = append(log, timestamp=LATER)
        put(log, make_batch(timestamp=LATER + 1))
        log.high_watermark = log.end
        log.advance_start(1)
        found, turns = steps_of(log.find_timestamp(LATER, Effort()))
        assert found == (wanted, LATER, 0)
        assert len(turns) >= 2000 * search.HEADER_EFFORT - 1

    virtual(body)


@pytest.mark.slow
def test_bombs_are_inflated_in_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the loop nothing is inflated to more than a slice may have, all its bombs together."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, ROOMY)
        for size in (2_000_000, 8_000_000, INFLATED_BYTES_SMALL + 1):
            put(log, bomb(size))
        bounds: list[int] = []

        def seen(codec: int, data: bytes, size_max: int) -> Buffer:
            bounds.append(size_max)
            return decompress(codec, data, size_max)

        monkeypatch.setattr(sliced_work, "decompress", seen)
        steps = log.find_timestamp(LATER, Effort())
        found, turns = steps_of(steps)
        assert found is None
        assert sum(map(callable, turns)) == 3  # each of them is a job
        assert bounds.count(INFLATED_BYTES_SMALL) == 3
        assert sum(bounds) <= 3 * INFLATED_BYTES_SMALL + BYTES_A_SLICE // 2

    virtual(body)


def test_records_are_looked_through_in_slices() -> None:
    """One batch of very many records that inflates to little is left in the middle, too."""

    async def body(runtime: Runtime) -> None:
        from holdfast.wire.walker.record_walker import RECORDS_A_SLICE  # noqa: PLC0415

        _, log = new_log(runtime, ROOMY)
        count = 3 * RECORDS_A_SLICE
        tiny = bytes([12, 0, 0, 0, 1, 1, 0])  # a record without a key or a value
        batch = with_body(
            make_batch(), tiny * count,
            max_timestamp=LATER, record_count=count, last_offset_delta=count - 1,
        )  # fmt: skip
        put(log, batch)
        found, turns = steps_of(log.find_timestamp(LATER, Effort()))
        assert found is None
        assert len(turns) >= 2

    virtual(body)


@pytest.mark.parametrize("is_largest", [False, True])
def test_the_headers_of_one_record_are_looked_through_in_slices(is_largest: bool) -> None:
    """What inflates from a kilobyte may be one record with millions of them."""

    async def body(runtime: Runtime) -> None:
        from holdfast.wire.walker.record_walker import STEPS_A_SLICE  # noqa: PLC0415

        _, log = new_log(runtime, ROOMY)
        packed = many_headers(3 * STEPS_A_SLICE)
        put(log, with_body(make_batch(1, timestamp=NOW_MS), packed, max_timestamp=LATER))
        effort = Effort()
        steps = log.find_max_timestamp(effort) if is_largest else log.find_timestamp(LATER, effort)
        found, turns = steps_of(steps)
        assert (found is not None) == is_largest
        assert len(turns) >= 2

    virtual(body)


def test_a_log_that_changes_meanwhile() -> None:
    """What was looked through may be deleted, what is new lies behind the end that counts."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, small_settings(segment_bytes=2000))
        for _ in range(200):
            put(log, lie())
        steps = log.find_timestamp(LATER, Effort())
        assert next(steps) is sliced_work.REST
        log.high_watermark = log.end
        log.advance_start(150)
        assert log.retention(NOW_MS, log.high_watermark) > 0
        put(log, make_batch(timestamp=LATER))
        assert steps_of(steps)[0] is None
        steps = log.find_timestamp(LATER + 1, Effort())
        log.abandon()
        assert steps_of(steps) == (None, [])

    virtual(body)
