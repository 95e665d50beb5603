"""What a segment's age is counted from: absent, past and future timestamps, however it came to be.

Goal: retention, the time index and look-ups by timestamp agree, on whoever wrote a log, copied it,
opened it again after a clean end, a crash or a power cut, or cut it off. Method: a list of what was
written is the truth; every segment of every such log is held against it. Seen to fail: with an
index that takes -1 for a timestamp, with a cut that keeps the largest timestamp of what it cut off,
and without the time of the file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.log_kit import (
    NOW_MS,
    after_crash,
    append,
    crash,
    everything,
    found_at,
    make_batch,
    new_log,
    newest_of,
    open_directories,
    small_settings,
    time_entries,
    virtual,
)

from holdfast.log.log import Log
from holdfast.runtime.ports import Runtime
from holdfast.wire.errors import ErrorCode

NONE = -1
DAY_MS = 86_400_000
SETTINGS = small_settings(segment_bytes=400, index_interval_bytes=100, retention_ms=DAY_MS)
STAMPS = [NONE, NONE, 0, NOW_MS - 9 * DAY_MS, NOW_MS - DAY_MS, NOW_MS, NOW_MS + 3_600_000]


def spans(log: Log) -> list[range]:
    """The offsets of each segment."""
    bounds = [*log._segments.bases, log.end]
    return [range(first, behind) for first, behind in pairwise(bounds)]


def agrees(log: Log, stamps: list[int]) -> None:
    """Hold each segment, and look-ups through all of them, against what was written."""
    for segment, span in zip(log._segments.all, spans(log), strict=True):
        inside = [stamps[offset] for offset in span]
        newest = max(inside, default=NONE)
        expected = (
            (newest, span.start + inside.index(newest)) if newest >= 0 else (NONE, span.start)
        )
        assert segment.max_timestamp == expected
        assert segment.first_timestamp == (inside[0] if inside else NONE)
        entries = time_entries(segment.times)
        assert entries == sorted(set(entries)), "an index rises, and has no absent timestamp"
        assert all(stamps[offset] == stamp >= 0 for stamp, offset in entries)
    for wanted in {0, 1, NOW_MS - DAY_MS, NOW_MS, NOW_MS + 1}:
        found = found_at(log, wanted)
        young = [n for n in range(log.start, log.end) if stamps[n] >= wanted]
        assert (found.offset if found else None) == (young[0] if young else None)
    newest = max(stamps[: log.end], default=NONE)
    found = newest_of(log)
    assert (found.timestamp if found else NONE) == newest


@settings(max_examples=40, deadline=None)
@pytest.mark.slow
@given(
    stamps=st.lists(st.sampled_from(STAMPS), min_size=1, max_size=24),
    cut=st.integers(0, 24),
    flushed=st.booleans(),
)
def test_every_way_to_a_log_gives_the_same_ages(stamps: list[int], cut: int, flushed: bool) -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime, SETTINGS)
        copy = directories.create("t", 1, bytes(16), SETTINGS)
        for stamp in stamps:
            append(log, timestamp=stamp)
        agrees(log, stamps)
        assert copy.append_as_follower(memoryview(everything(log))) is ErrorCode.NONE
        agrees(copy, stamps)
        if flushed:
            await log.flush()
        crash(directories)
        for power in (False, True):
            runtime = after_crash(runtime, power=power)
            directories = open_directories(runtime, settings=SETTINGS)
            again = directories.get("t", 0)
            assert again is not None
            agrees(again, stamps)
            again.truncate_to(cut)
            agrees(again, stamps)
            await again.flush()
            await directories.close()
            directories = open_directories(runtime, settings=SETTINGS)
            again = directories.get("t", 0)
            assert again is not None
            agrees(again, stamps)
            if not power:
                crash(directories)

    virtual(body)


@settings(max_examples=40, deadline=None)
@given(
    stamps=st.lists(st.sampled_from(STAMPS), min_size=1, max_size=24),
    age_ms=st.sampled_from([0, 1, DAY_MS, DAY_MS + 1, 3 * DAY_MS]),
)
def test_a_segment_goes_when_its_largest_timestamp_or_else_its_file_is_old_enough(
    stamps: list[int], age_ms: int
) -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        for stamp in stamps:
            append(log, timestamp=stamp)
        written_ms = runtime.clock.wall_ms()
        kept = 0
        for span in spans(log):
            newest = max((stamps[offset] for offset in span), default=NONE)
            if written_ms + age_ms - (newest if newest >= 0 else written_ms) <= DAY_MS:
                break
            kept = span.stop
        log.high_watermark = log.end
        log.retention(written_ms + age_ms, log.end)
        assert log.start == kept

    virtual(body)


def old(log: Log) -> None:
    """A backfill: each record says itself that it is nine days old."""
    for _ in range(3):
        append(log, timestamp=NOW_MS - 9 * DAY_MS)


def unstamped(log: Log) -> None:
    for _ in range(3):
        append(log, timestamp=NONE)


def young(log: Log) -> None:
    for _ in range(3):
        append(log, timestamp=NOW_MS)


@pytest.mark.parametrize(
    ("write", "changes", "after_ms", "words"),
    [
        (old, {}, 5, "the largest timestamp of the records, 1766448000000, is 777600005 ms ago"),
        (old, {}, 0, ", retention.ms=86400000"),
        (unstamped, {}, DAY_MS + 1, "no timestamps, and the last write to their file, 1767225600"),
        (young, {"retention_bytes": 0}, 0, "without them the log has 0 bytes, retention.bytes=0"),
    ],
)  # fmt: skip
def test_the_log_says_why_a_segment_went(
    write: Callable[[Log], None],
    changes: dict[str, int],
    after_ms: int,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Goal: whoever misses records finds which key took them. Method: one line for each reason."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS.replace(**changes))
        write(log)
        log.high_watermark = log.end
        assert log.retention(runtime.clock.wall_ms() + after_ms, log.end) == 1

    with caplog.at_level(logging.INFO, logger="holdfast.log"):
        virtual(body)
    size = 3 * len(make_batch())
    assert f"t-0: offsets 0 to 2 ({size} bytes) are deleted: " in caplog.text
    assert words in caplog.text
