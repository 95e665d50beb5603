"""Goal: logs are looked at when that can be of use, and the dirtiest of those that are due is next.

Method: short stories told to the queue, and drawn ones held against a model that looks at all logs
each time.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.log.compaction.cleaner_queue import CleanerQueue


def test_what_has_changed_is_looked_at_once_some_at_a_time() -> None:
    queue: CleanerQueue[str] = CleanerQueue()
    for log in ("a", "b", "a", "c"):
        queue.changed(log)
    assert queue.take_changed(2) == ["b", "a"]
    assert queue.has_changed
    assert queue.take_changed(2) == ["c"]
    assert not queue.has_changed


def test_the_dirtiest_is_next_and_what_has_changed_since_is_not() -> None:
    queue: CleanerQueue[str] = CleanerQueue()
    for log, dirtiness in (("a", 0.5), ("b", 0.9), ("c", 0.6), ("d", 0.95), ("a", 0.7)):
        queue.due(log, dirtiness)
    queue.changed("b")
    queue.forget("d")
    assert [queue.take_dirtiest() for _ in range(3)] == ["a", "c", None]
    assert queue.take_changed(9) == ["b"]


def test_who_waits_for_an_offset_and_a_time_is_looked_at_when_the_first_comes() -> None:
    queue: CleanerQueue[str] = CleanerQueue()
    reached = {"a": 4, "b": 9, "c": 0}
    queue.look_later("a", offset=5, at_ms=100)
    queue.look_later("b", offset=10, at_ms=50)
    queue.look_later("c", offset=None, at_ms=70)
    assert queue.is_behind
    assert queue.next_ms == 50
    queue.time_is(49, reached.__getitem__)
    assert queue.take_changed(9) == []
    reached["a"] = 5
    queue.time_is(60, reached.__getitem__)
    assert sorted(queue.take_changed(9)) == ["a", "b"]
    assert not queue.is_behind
    assert queue.next_ms == 70
    queue.look_later("c", offset=None, at_ms=None)
    assert queue.next_ms is None


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["changed", "forget", "later", "due", "time", "take"]),
        st.sampled_from("abcd"),
        st.integers(0, 9),
    ),
    max_size=60,
)


@given(MOVES)
def test_no_log_is_in_two_places_or_forgotten(moves: list[tuple[str, str, int]]) -> None:
    queue: CleanerQueue[str] = CleanerQueue()
    places: dict[str, tuple[str, int]] = {}
    now_ms = 0
    for move, log, number in moves:
        if move == "changed":
            queue.changed(log)
            places[log] = "changed", 0
        elif move == "forget":
            queue.forget(log)
            places.pop(log, None)
        elif move == "later":
            queue.look_later(log, offset=None, at_ms=now_ms + number)
            places[log] = "later", now_ms + number
        elif move == "due":
            queue.due(log, number)
            places[log] = "due", number
        elif move == "time":
            now_ms += number
            queue.time_is(now_ms, lambda _: 0)
            for each, (kind, at_ms) in list(places.items()):
                if kind == "later" and at_ms <= now_ms:
                    places[each] = "changed", 0
        else:
            dirtiest = max((n for kind, n in places.values() if kind == "due"), default=None)
            taken = queue.take_dirtiest()
            if dirtiest is None:
                assert taken is None
            else:
                assert taken is not None
                assert places.pop(taken) == ("due", dirtiest)
        later = [at_ms for kind, at_ms in places.values() if kind == "later"]
        assert queue.next_ms == min(later, default=None)
    changed = {log for log, (kind, _) in places.items() if kind == "changed"}
    assert set(queue.take_changed(99)) == changed
