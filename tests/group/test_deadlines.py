"""Goal: what is due comes in order, what was put off or cancelled does not, and memory is bounded.

Method: cases, and random operations held against a dictionary. Seen to fail: with a deadline that
moves to an earlier time and keeps its place, with one that is put off and comes all the same, and
without the tidying.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.deadlines import NEVER_MS, Deadlines

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["set", "forward", "cancel", "take"]),
        st.integers(0, 5),
        st.integers(0, 100),
    ),
    max_size=200,
)


def drain(deadlines: Deadlines[str], now_ms: int) -> list[str]:
    taken = []
    while (key := deadlines.take(now_ms)) is not None:
        taken.append(key)
    return taken


def test_the_earliest_comes_first_and_equals_in_their_order() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, at_ms in (("c", 30), ("a", 10), ("b", 20), ("a2", 10)):
        deadlines.set(key, at_ms)
    assert deadlines.next_ms == 10
    assert drain(deadlines, 9) == []
    assert drain(deadlines, 20) == ["a", "a2", "b"]
    assert deadlines.next_ms == 30
    assert "c" in deadlines
    assert len(deadlines) == 1


def test_a_deadline_moves() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("a", 50)  # put off
    deadlines.set("b", 50)
    deadlines.set("b", 20)  # brought forward
    deadlines.bring_forward("b", 40)  # it is earlier anyway
    deadlines.bring_forward("a", 30)
    assert deadlines.next_ms == 20
    assert drain(deadlines, 49) == ["b", "a"]
    assert deadlines.next_ms == NEVER_MS
    assert drain(deadlines, NEVER_MS) == []


def test_a_cancelled_deadline_does_not_come() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.cancel("a")
    deadlines.cancel("never set")
    assert deadlines.next_ms == NEVER_MS
    deadlines.set("a", 40)
    assert drain(deadlines, 39) == []
    assert drain(deadlines, 40) == ["a"]


def test_sessions_that_are_put_off_again_and_again_take_no_memory() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for now_ms in range(1000):
        for member in range(10):
            deadlines.set(member, now_ms + 10_000)
    assert _places(deadlines) <= 36


def test_deadlines_that_come_and_go_take_no_memory() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for count in range(10_000):
        deadlines.set(count, 10_000)
        deadlines.cancel(count)
    for count in range(10_000, 0, -1):
        deadlines.set(0, count)
    assert _places(deadlines) <= 18
    assert deadlines.next_ms == 1


def _places(deadlines: Deadlines[int]) -> int:
    return len(deadlines._heap) + len(deadlines._old)


def test_tidying_is_done_by_steps_and_loses_nothing() -> None:
    """A hundred thousand groups have a deadline each: all places at once would take long."""
    deadlines: Deadlines[int] = Deadlines()
    count = 4000
    for at_ms in (10_000, 5_000):
        for key in range(count):
            deadlines.set(key, at_ms + key)
    assert _places(deadlines) == 2 * count
    cancelled = range(0, count, 2)
    fewest = _places(deadlines)
    for key in cancelled:
        before = _places(deadlines)
        deadlines.cancel(key)
        assert before - _places(deadlines) <= 8
        fewest = min(fewest, _places(deadlines))
    assert fewest <= 2 * count - len(cancelled)
    for key in range(count, count + 100):
        deadlines.set(key, 1)
    taken = []
    while (due := deadlines.take(NEVER_MS)) is not None:
        taken.append(due)
    assert taken == [*range(count, count + 100), *range(1, count, 2)]


@given(OPERATIONS)
def test_it_is_what_a_dictionary_says(operations: list[tuple[str, int, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    model: dict[int, int] = {}
    for what, key, at_ms in operations:
        if what == "set":
            deadlines.set(key, at_ms)
            model[key] = at_ms
        elif what == "forward":
            deadlines.bring_forward(key, at_ms)
            model[key] = min(at_ms, model.get(key, at_ms))
        elif what == "cancel":
            deadlines.cancel(key)
            model.pop(key, None)
        else:
            taken = deadlines.take(at_ms)
            if taken is None:
                assert all(due_ms > at_ms for due_ms in model.values())
            else:
                due_ms = model.pop(taken)
                assert due_ms <= at_ms
                assert due_ms <= min(model.values(), default=NEVER_MS)
        assert deadlines.next_ms == min(model.values(), default=NEVER_MS)
        assert len(deadlines) == len(model)


@given(OPERATIONS)
def test_who_comes_when_it_says_misses_nothing_and_gets_on(
    operations: list[tuple[str, int, int]],
) -> None:
    """Goal: `wake_ms` is never late, and nobody who comes in vain is told the same time again."""
    deadlines: Deadlines[int] = Deadlines()
    model: dict[int, int] = {}
    for what, key, at_ms in operations:
        if what == "cancel":
            deadlines.cancel(key)
            model.pop(key, None)
        elif what == "take":
            wake_ms = deadlines.wake_ms
            taken = deadlines.take(wake_ms)
            if taken is None:
                assert not model or deadlines.wake_ms > wake_ms
            else:
                assert model.pop(taken) == wake_ms
        else:
            deadlines.set(key, at_ms)
            model[key] = at_ms
        assert deadlines.wake_ms <= min(model.values(), default=NEVER_MS)
        assert (deadlines.wake_ms == NEVER_MS) == (not model)


def test_a_deadline_that_is_put_off_is_made_good_when_its_old_time_comes() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("a", 50)
    assert deadlines.wake_ms == 10
    assert deadlines.take(10) is None
    assert deadlines.wake_ms == 50
