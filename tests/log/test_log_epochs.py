"""Epoch look-ups answer as they must, and the cache stays true through truncations.

Rules: log.md#epoch-look-up, log.md#epoch-cache.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.log.epochs import EpochCache, parse_epochs
from holdfast.log.errors import CorruptFileError

KNOWN = [(2, 10), (4, 20), (7, 35)]
LOG_END = 50


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (7, (7, LOG_END)),  # the latest ends at the log's end
        (8, (-1, -1)),  # larger than all: undefined
        (1, (1, 10)),  # smaller than all: it ends where the first known one begins
        (2, (2, 20)),
        (3, (2, 20)),  # unknown: the largest known one below it
        (4, (4, 35)),
        (6, (4, 35)),
        (-1, (-1, -1)),
    ],
)
def test_end_of_epoch(asked: int, answer: tuple[int, int]) -> None:
    assert tuple(EpochCache(KNOWN).end_of(asked, LOG_END)) == answer


def test_an_empty_cache_knows_no_epoch() -> None:
    assert tuple(EpochCache().end_of(0, LOG_END)) == (-1, -1)
    assert EpochCache().latest == -1
    assert EpochCache().at(0) == -1


@pytest.mark.parametrize(
    ("offset", "epoch"), [(9, -1), (10, 2), (19, 2), (20, 4), (34, 4), (35, 7), (99, 7)]
)
def test_epoch_at_offset(offset: int, epoch: int) -> None:
    assert EpochCache(KNOWN).at(offset) == epoch


@pytest.mark.parametrize(
    ("entry", "left"),
    [
        ((7, 40), KNOWN),  # known already: it keeps its start
        ((9, 50), [*KNOWN, (9, 50)]),
        ((9, 35), [(2, 10), (4, 20), (9, 35)]),  # an epoch without records makes room
        ((9, 15), [(2, 10), (9, 15)]),
        ((4, 38), [(2, 10), (4, 20)]),  # batches say that epoch 4 went on: 7 was truncated once
        ((4, 15), [(2, 10), (4, 15)]),
    ],
)
def test_assign_removes_what_contradicts_it(
    entry: tuple[int, int], left: list[tuple[int, int]]
) -> None:
    cache = EpochCache(KNOWN)
    cache.assign(*entry)
    assert cache.entries() == left
    assert cache.dirty is (left != KNOWN)


@pytest.mark.parametrize(
    ("offset", "left"),
    [(36, KNOWN), (35, KNOWN[:2]), (21, KNOWN[:2]), (20, KNOWN[:1]), (10, []), (0, [])],
)
def test_truncate_from_end(offset: int, left: list[tuple[int, int]]) -> None:
    cache = EpochCache(KNOWN)
    cache.truncate_from_end(offset)
    assert cache.entries() == left


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        (5, KNOWN),
        (10, KNOWN),
        (15, [(2, 15), (4, 20), (7, 35)]),
        (20, [(4, 20), (7, 35)]),
        (40, [(7, 40)]),
    ],
)
def test_truncate_from_start_clamps_the_epoch_in_force(
    offset: int, left: list[tuple[int, int]]
) -> None:
    cache = EpochCache(KNOWN)
    cache.truncate_from_start(offset)
    assert cache.entries() == left


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=12))
def test_the_cache_always_rises_and_survives_its_file(entries: list[tuple[int, int]]) -> None:
    cache = EpochCache()
    for entry in entries:
        cache.assign(*entry)
    found = cache.entries()
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(found))
    assert parse_epochs(cache.text(), "file").entries() == found


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n2\n1 2\n",
        b"0\n1\n1 x\n",
        b"0\n1\n1 2",
        b"0\n1\n1 2 3\n",
        bytes(64),
    ],
)
def test_a_damaged_file_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptFileError, match="file"):
        parse_epochs(text, "file")
