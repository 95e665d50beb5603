"""Goal: a batch waits for enough records, and no longer than it may. Method: times from a table."""

from __future__ import annotations

from holdfast.pipelines.intake.delay import Delay, new_offsets
from holdfast.pipelines.offsets import Partition

A, B, C = Partition("a", 0), Partition("a", 1), Partition("b", 0)


def test_the_first_batch_of_a_process_waits_for_nothing() -> None:
    delay = Delay(rows_min=10, wait_ms_max=1_000)
    assert not delay.holds(0, now_ms=5)
    assert not delay.holds(1, now_ms=5_000)
    assert delay.holds(1, now_ms=5_999)


def test_enough_is_enough_and_time_is_up() -> None:
    delay = Delay(rows_min=10, wait_ms_max=1_000, last_ms=0)
    assert delay.holds(9, now_ms=999)
    assert not delay.holds(10, now_ms=999)
    assert delay.holds(9, now_ms=1_998), "the time counts from that batch"
    assert not delay.holds(9, now_ms=1_999)


def test_a_batch_without_data_does_not_begin_the_time_anew() -> None:
    """What comes when the time has passed long ago goes at once, however little it is."""
    delay = Delay(rows_min=10, wait_ms_max=1_000, last_ms=0)
    assert not delay.holds(0, now_ms=1_500)
    assert not delay.holds(1, now_ms=1_600)
    assert delay.last_ms == 1_600


def test_new_offsets_are_those_that_the_logs_still_hold() -> None:
    start = {A: 5, B: 5, C: 5}
    assert new_offsets(start, {A: 0, B: 7, C: 0}, {A: 9, B: 9}) == 4 + 2
    assert new_offsets(start, {}, {A: 3, B: 5}) == 0, "a log that was cut has none"
    assert new_offsets({}, {A: 0}, {A: 9}) == 0, "what is new in the topics enters by itself"
