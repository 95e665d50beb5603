"""Goal: ranges are cut as the JVM connector cuts them, and nothing is read twice or left out.

Method: cases whose outcome follows by hand from the connector's rules, and random ones for what
must always hold.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.pipelines.intake.option_values import OptionError
from holdfast.pipelines.intake.split import TASKS_MAX, split
from holdfast.pipelines.offsets import Partition, Range

A, B, C = Partition("a", 0), Partition("a", 1), Partition("b", 0)
SOME = st.none() | st.integers(1, 60)


def cut(sizes: list[int], parts_min: int | None = None, rows_max: int | None = None) -> list[int]:
    """Return the sizes of the parts of ranges with these sizes."""
    ranges = [Range(Partition("t", at), 100, 100 + size) for at, size in enumerate(sizes)]
    parts = split(ranges, parts_min=parts_min, rows_max=rows_max)
    return [part.end - part.start for part in parts]


def test_without_options_ranges_stay_and_empty_ones_go() -> None:
    assert split([Range(A, 3, 9), Range(B, 5, 5), Range(C, 7, 6)]) == [Range(A, 3, 9)]


@pytest.mark.parametrize(
    ("sizes", "rows_max", "parts"),
    [
        ([10], 10, [10]),
        ([11], 10, [5, 6]),
        ([10], 3, [2, 2, 3, 3]),
        ([7, 2], 5, [3, 4, 2]),
        ([3], 1, [1, 1, 1]),
    ],
)
def test_no_part_is_larger_than_it_may_be(
    sizes: list[int], rows_max: int, parts: list[int]
) -> None:
    assert cut(sizes, rows_max=rows_max) == parts


@pytest.mark.parametrize(
    ("sizes", "parts_min", "parts"),
    [
        ([5, 5], 2, [5, 5]),  # there are enough
        ([5, 5], 1, [5, 5]),
        # Enough, though by its share of the two large ones the first would be two.
        ([90, 30, *[1] * 8], 10, [90, 30, *[1] * 8]),
        ([9], 2, [4, 5]),
        ([3], 9, [1, 1, 1]),  # no empty ones
        # 1/11 of 4 rounds to nothing, so it is one, and the large one has the other three.
        ([1, 10], 4, [1, 3, 3, 4]),
        # Of 45 the first is 3.6 of four, which would make six in all. The two small ones stay
        # whole, so it has the other two.
        ([40, 3, 2], 4, [20, 20, 3, 2]),
        # Halves round up, as Java's do: 1.5 is two, and 4.5 is five.
        ([25, 75], 6, [12, 13, 15, 15, 15, 15, 15]),
        ([0, 8], 2, [4, 4]),
    ],
)  # fmt: skip
def test_large_ranges_are_cut_in_proportion(
    sizes: list[int], parts_min: int, parts: list[int]
) -> None:
    assert cut(sizes, parts_min) == parts


def test_both_options_one_after_the_other() -> None:
    """First 3, 3, 4 and 2; then five are wanted of twelve: only 4/12*5 = 1.67 rounds to two."""
    assert cut([10, 2], rows_max=4) == [3, 3, 4, 2]
    assert cut([10, 2], 5, 4) == [3, 3, 2, 2, 2]


def test_a_slip_is_refused_before_a_hundred_thousand_tasks_are_made() -> None:
    assert len(cut([TASKS_MAX], rows_max=1)) == TASKS_MAX
    said = (
        f"^maxRecordsPerPartition: a batch of {TASKS_MAX + 1} offsets would be read by "
        f"{TASKS_MAX + 1} tasks, and {TASKS_MAX} are the most"
    )
    with pytest.raises(OptionError, match=said):
        cut([TASKS_MAX + 1], rows_max=1)
    with pytest.raises(OptionError, match=r"^minPartitions: "):
        cut([1 << 62], 1 << 40)


@pytest.mark.slow
@given(st.lists(st.integers(0, 200), max_size=8), SOME, SOME)
def test_parts_are_the_ranges(
    sizes: list[int], parts_min: int | None, rows_max: int | None
) -> None:
    ranges = [Range(Partition("t", at), at, at + size) for at, size in enumerate(sizes)]
    parts = split(ranges, parts_min=parts_min, rows_max=rows_max)
    for each in ranges:
        mine = [part for part in parts if part.partition == each.partition]
        assert bool(mine) == (each.end > each.start)
        assert all(part.start < part.end for part in mine)
        assert all(left.end == right.start for left, right in pairwise(mine))
        if mine:
            assert (mine[0].start, mine[-1].end) == (each.start, each.end)
    if rows_max is not None:
        assert all(part.end - part.start <= rows_max for part in parts)
