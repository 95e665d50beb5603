"""Goal: what is dirty, when a round is due, and which segments become one are as Kafka has them.

Method: tables of small logs, each beside the rule of Apache Kafka that it shows.
Seen to fail: with the segment of the first unstable offset among what may be touched, and with a
ratio that is enough when it is equal.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.compaction_kit import compaction_settings
from tests.log.log_kit import small_settings

from holdfast.log.compaction.compaction_due import Bounds, SegmentFacts, what_is_dirty
from holdfast.log.compaction.segment_groups import GROUP_BYTES_MAX, group_segments
from holdfast.log.index import RELATIVE_MAX

NOW_MS = 1_000_000


def segments(*bases: int, size: int = 100, stamp: int = NOW_MS - 500) -> list[SegmentFacts]:
    return [SegmentFacts(base, size, stamp + base, stamp + base + 5, 16, 24) for base in bases]


def asked(
    sealed: list[SegmentFacts], checkpoint: int | None = None, now_ms: int = NOW_MS, **changes: Any
) -> Any:
    """Ask of a log of [0, 50) whose active segment begins at 40."""
    bounds = Bounds(0, 40, 45, 45, 50)
    found = {name: changes.pop(name) for name in bounds._fields if name in changes}
    chosen = compaction_settings(small_settings(), **changes)
    dirty = what_is_dirty(sealed, bounds._replace(**found), checkpoint, chosen, now_ms)
    return dirty, dirty.is_due(chosen)


FOUR = segments(0, 10, 20, 30)


@pytest.mark.parametrize(
    ("checkpoint", "changes", "expected"),
    [
        (None, {}, (0, 40, 0, 400)),
        (20, {}, (20, 40, 200, 200)),
        (25, {}, (25, 40, 300, 200)),  # in a segment: that is clean and dirty
        (40, {}, (40, 40, 400, 0)),
        (45, {}, (45, 40, 400, 0)),
        (51, {}, (0, 40, 0, 400)),  # beyond the log's end: it was cut by something
        (5, {"start": 12}, (12, 40, 200, 300)),  # below its start: records were deleted
        (20, {"stable": 35}, (20, 30, 200, 100)),  # the whole segment of what is not decided
        (20, {"stable": 30}, (20, 30, 200, 100)),
        (20, {"stable": 12}, (20, 10, 200, 0)),
        (20, {"recovery_point": 39}, (20, 30, 200, 100)),
        (None, {"stable": 0}, (0, 0, 0, 0)),
    ],
)
def test_what_is_dirty(
    checkpoint: int | None, changes: dict[str, int], expected: tuple[int, ...]
) -> None:
    dirty, _ = asked(FOUR, checkpoint, **changes)
    assert dirty[:4] == expected


def test_an_empty_log_has_nothing() -> None:
    dirty, is_due = asked([], active=0, stable=0, recovery_point=0, end=3)
    assert (dirty[:4], is_due, dirty.ratio) == ((0, 0, 0, 0), False, 0)


@pytest.mark.parametrize(
    ("checkpoint", "ratio", "is_due"),
    [
        (20, 0.5, False),  # it has to be more
        (20, 0.49, True),
        (19, 0.5, True),
        (40, 0.0, False),  # nothing is dirty
        (30, 0.0, True),
        (None, 1.0, False),  # all of it is, and that is no more than all
        (None, 0.99, True),
    ],
)
def test_a_share_of_dirty_bytes_is_due(checkpoint: int | None, ratio: float, is_due: bool) -> None:
    assert asked(FOUR, checkpoint, min_cleanable_dirty_ratio=ratio)[1] == is_due


def test_what_is_young_waits_and_holds_up_what_is_behind() -> None:
    """min.compaction.lag.ms: from the first segment on that has a record which is younger."""
    stamps = [500, 100, 800, 100]
    sealed = [
        facts._replace(largest_timestamp=stamp) for facts, stamp in zip(FOUR, stamps, strict=True)
    ]
    for now_ms, bound in ((900, 0), (1_000, 0), (1_100, 20), (1_399, 20), (1_400, 40)):
        dirty, is_due = asked(sealed, None, now_ms, min_compaction_lag_ms=600)
        assert (dirty.bound, is_due) == (bound, bound > 0)
        assert dirty.look_again_ms in {None, 1_100, 1_400, 2**63 - 1 + NOW_MS - 500 + 1}
    # What is clean already does not wait.
    assert asked(sealed, 30, 900, min_compaction_lag_ms=600)[0].bound == 40


def test_what_is_old_is_due_whatever_its_share() -> None:
    """max.compaction.lag.ms: by the first batch of each segment that is not clean."""
    lag = {"max_compaction_lag_ms": 1_000, "min_cleanable_dirty_ratio": 1.0}
    oldest = FOUR[2].first_timestamp
    for now_ms in (oldest + 1_000, oldest + 1_001):
        dirty, is_due = asked(FOUR, 20, now_ms, **lag)
        assert is_due == dirty.is_overdue == (now_ms > oldest + 1_000)
        assert dirty.look_again_ms == (None if is_due else oldest + 1_001)
    dirty, is_due = asked(FOUR, 20, 2**40, stable=20, **lag)
    assert (dirty.is_overdue, is_due) == (True, False), "it may not be touched"
    unstamped = [facts._replace(first_timestamp=-1) for facts in FOUR]
    assert asked(unstamped, 20, 2**40, **lag)[0].look_again_ms is None


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), st.integers(0, 20)), max_size=6),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 30),
)
def test_nothing_changes_before_it_says_so(
    drawn: list[tuple[int, int, int]], checkpoint: int, stable: int, lag: int
) -> None:
    sealed: list[SegmentFacts] = []
    base = 0
    for width, size, stamp in drawn:
        sealed.append(SegmentFacts(base, size, stamp, stamp + 3, 0, 0))
        base += width
    options: dict[str, Any] = {
        "active": base, "stable": stable, "end": base, "recovery_point": base,
        "min_compaction_lag_ms": lag, "max_compaction_lag_ms": 2 * lag + 1,
    }  # fmt: skip
    before = asked(sealed, checkpoint, 1, **options)
    for now_ms in range(2, 100):
        now = asked(sealed, checkpoint, now_ms, **options)
        if now[1] != before[1] or now[0].bound != before[0].bound:
            assert before[0].look_again_ms == now_ms
        before = now


# --- groups ---


def sizes_of(groups: Any) -> list[list[int]]:
    return [[facts.base for facts in group] for group in groups]


def test_neighbours_that_fit_into_a_segment_become_one() -> None:
    chosen = compaction_settings(small_settings(segment_bytes=250, segment_index_bytes=1_000))
    assert sizes_of(group_segments(FOUR, 40, chosen)) == [[0, 10], [20, 30]]
    large = [FOUR[0]._replace(size=900), *FOUR[1:]]
    assert sizes_of(group_segments(large, 40, chosen)) == [[0], [10, 20], [30]]
    assert group_segments([], 40, chosen) == []


@pytest.mark.parametrize(("index_bytes", "expected"), [(48, 2), (47, 1), (72, 3), (95, 3), (96, 4)])
def test_neither_index_may_be_too_large(index_bytes: int, expected: int) -> None:
    chosen = compaction_settings(
        small_settings(segment_bytes=10_000, segment_index_bytes=index_bytes)
    )
    assert len(sizes_of(group_segments(FOUR, 40, chosen))[0]) == expected
    swapped = [facts._replace(offset_index_bytes=24, time_index_bytes=16) for facts in FOUR]
    assert len(sizes_of(group_segments(swapped, 40, chosen))[0]) == expected


def test_offsets_of_a_group_can_be_counted_from_its_first() -> None:
    """By where the following segment begins, for the last record's offset is not known."""
    chosen = compaction_settings(small_settings(segment_bytes=10_000))
    wide = segments(0, 10, RELATIVE_MAX - 5)
    assert sizes_of(group_segments(wide, RELATIVE_MAX + 1, chosen)) == [[0, 10, wide[2].base]]
    assert sizes_of(group_segments(wide, RELATIVE_MAX + 2, chosen)) == [[0, 10], [wide[2].base]]
    empty = [*wide[:2], wide[2]._replace(size=0)]
    assert sizes_of(group_segments(empty, 2**40, chosen)) == [[0, 10, wide[2].base]]


def test_a_group_has_room_for_what_grows() -> None:
    chosen = compaction_settings(small_settings(segment_bytes=2**31 - 1))
    halves = segments(0, 10, 20, size=GROUP_BYTES_MAX // 2)
    assert sizes_of(group_segments(halves, 40, chosen)) == [[0, 10], [20]]
