"""Goal: a batch with a limit takes from each partition what it should. Method: exact shares."""

from __future__ import annotations

import pytest

from holdfast.pipelines.offsets import Offsets, Partition, advance

A, B, C, D = (Partition(topic, 0) for topic in "abcd")


@pytest.mark.parametrize(
    ("there", "rows_max", "shares"),
    [
        ({A: 4, B: 6}, 10, {A: 4, B: 6}),
        ({A: 4, B: 6}, 9, {A: 3, B: 6}),  # what rounding leaves over goes to who has most
        ({A: 6, B: 6}, 11, {A: 6, B: 5}),  # and then to the first by name
        ({A: 11, B: 1, C: 101}, 25, {A: 3, B: 1, C: 21}),  # in proportion, but one for each
        ({A: 1, B: 5, C: 3, D: 0}, 2, {B: 1, C: 1}),  # not one for each: they take turns
        ({A: 2, B: 2, C: 2}, 2, {A: 1, B: 1}),
        ({A: 1, B: 1, C: 1}, 2, {A: 1, B: 1}),
        ({A: 1, B: 1, C: 1}, 1, {A: 1}),
        ({C: 1, A: 1, B: 1}, 1, {A: 1}),  # in whatever order they are told
    ],
)
def test_who_gets_how_much_of_a_limit(there: Offsets, rows_max: int, shares: Offsets) -> None:
    start = dict.fromkeys(there, 7)
    latest = {partition: 7 + rows for partition, rows in there.items()}
    end = {partition: 7 + shares.get(partition, 0) for partition in there}
    assert advance(start, {}, latest, rows_max) == end


def test_a_limit_that_is_just_enough_leaves_nothing_behind() -> None:
    """Not even where all of it has aged out: there is nothing to be read there any more."""
    assert advance({A: 0, B: 0}, {A: 90}, {A: 90, B: 10}, 10) == {A: 90, B: 10}


def test_a_limit_below_the_number_of_partitions_starves_none_of_them() -> None:
    """Two grow faster than they are read, for good: who has little must not wait for them."""
    at = dict.fromkeys([A, B, C, D], 0)
    ends = {A: 1000, B: 1000, C: 1, D: 1}
    for _ in range(2):
        at = advance(at, {}, ends, 2)
        ends |= {A: ends[A] + 1000, B: ends[B] + 1000}
    assert at == {A: 1, B: 1, C: 1, D: 1}
