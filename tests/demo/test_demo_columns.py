"""Goal: a log of millions of events fits beside its table, and no row finds what isn't its own.

Method: columns beside dictionaries and sets, which they stand for; and what they take.
"""

from __future__ import annotations

import tracemalloc
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.judge.history import Delivered, HistoryError
from holdfast.lab.demo.columns import PLACES_MAX, Digests, SeenPlaces
from holdfast.lab.demo.demo_check import READER, Log
from holdfast.lab.demo.events import event_id, event_number

EVENTS = 20_000
BYTES_AN_EVENT = 20  # a dictionary's are some 330

odd = st.sampled_from([2.0, 2.5, Decimal(3), float("inf"), None, "2", b"2", True])


def delivered(offset: int, digest: str = "0000002a") -> Delivered:
    return Delivered(
        at_ms=1.0,
        wall_ms=1,
        process=READER,
        topic="t",
        partition=0,
        offset=offset,
        id="p:1",
        digest=digest,
        key=None,
    )


@pytest.mark.slow
def test_a_log_takes_some_bytes_an_event() -> None:
    log, seen = Log(), SeenPlaces(3)
    tracemalloc.start()
    try:
        for offset in range(EVENTS):
            log.feed(delivered(offset))
            seen.add((0, offset))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(log.records[0]) == EVENTS
    assert taken < EVENTS * BYTES_AN_EVENT


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 0xFFFFFFFF))))
def test_digests_are_what_was_set_last(pairs: list[tuple[int, int]]) -> None:
    digests, known = Digests(), {}
    for number, value in pairs:
        known[number] = f"{value:08x}"
        digests.set(number, known[number])
    assert {number: digests.get(number) for number in range(-1, 14)} == {
        number: known.get(number) for number in range(-1, 14)
    }
    assert list(digests) == sorted(known)
    assert len(digests) == len(known)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 3) | odd, st.integers(-3, 12) | odd)))
def test_places_are_a_set(places: list[tuple[object, object]]) -> None:
    """What is equal is one place, whatever type a table's column gives it."""
    found, known = SeenPlaces(2), set()
    for where in places:
        assert (where in found) == (where in known)
        assert found.add(where) == (where not in known)
        known.add(where)
        assert where in found


@pytest.mark.parametrize("part", [2.5, Decimal("2.5"), "2", b"2", None])
def test_what_only_looks_like_a_number_is_another_place(part: object) -> None:
    places = SeenPlaces(3)
    assert places.add((2, 2))
    assert places.add((2, part))
    assert places.add((part, 2))
    assert [places.add((2, same)) for same in (2.0, Decimal(2))] == [False, False]


def test_a_place_far_away_takes_no_room() -> None:
    places = SeenPlaces(1)
    assert places.add((0, PLACES_MAX))
    assert not places.add((0, PLACES_MAX))
    assert places.add((7, 1 << 70))


def test_what_is_no_digest_is_said() -> None:
    with pytest.raises(HistoryError, match="'' is no digest"):
        Log().feed(delivered(0, digest=""))


def test_an_event_is_known_by_its_number() -> None:
    assert [event_number(event_id(number)) for number in (0, 7, 10**17)] == [0, 7, 10**17]
    for name in ("producer:07", "producer:", "other:7", "7", "producer:-1", "producer:" + "9" * 30):
        assert event_number(name) is None
