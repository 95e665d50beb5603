"""Goal: what a callback took is what it kept others from the loop for: no standstill counts."""

from __future__ import annotations

from itertools import count

import pytest

from holdfast.runtime import own_time
from holdfast.runtime.own_time import FRESH_S, WAIT_S, OwnTime


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What this thread had of the processor, as it is told."""
    told = [100.0]
    monkeypatch.setattr(own_time, "thread_time", lambda: told[0])
    return told


def test_neither_a_stop_nor_other_work_counts(spent: list[float]) -> None:
    own = OwnTime()
    own.begin(50.0)
    spent[0] += 0.25
    assert own.took(50.0, 60.0) == 0.25, "it stood still for the rest"
    own.begin(60.0)
    spent[0] += 0.25
    assert own.took(60.0, 60.25) == 0.25
    spent[0] += 8.0  # meanwhile something else had its turn
    own.begin(68.25)
    assert own.took(68.25, 78.25) == WAIT_S


@pytest.mark.usefixtures("spent")
def test_who_waits_for_a_disk_keeps_others_from_the_loop() -> None:
    """Seen to fail: who had the loop wait for a disk, again and again, left nothing of it."""
    own = OwnTime()
    own.begin(50.0)
    assert own.took(50.0, 50.0625) == 0.0625


def test_it_looks_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it may be wrong by is what it has not looked for, and the clock bounds that."""
    looks = count()
    monkeypatch.setattr(own_time, "thread_time", lambda: float(next(looks)))
    own = OwnTime()
    for step in range(100):
        own.begin(step * FRESH_S / 100)
    assert next(looks) == 1


def test_it_looks_again_once_what_it_has_seen_is_six_milliseconds_old(spent: list[float]) -> None:
    """Goal: what others did in between is no time of who stands still then.

    Method: all is begun six milliseconds behind the last one, and others take what is between.
    """
    own = OwnTime()
    for step in range(100):
        own.begin(step * 0.006)
        spent[0] += 0.006
    assert own.took(99 * 0.006, 60.0) == WAIT_S
    now = 100 * 0.006
    own.begin(now)
    spent[0] += 0.25
    assert own.took(now, now + 60) == 0.25, "not a millisecond of what was before"


def test_what_is_asked_of_the_system_is_of_this_thread() -> None:
    own = OwnTime()
    own.begin(0.0)
    sum(range(100_000))
    assert 0 < own.took(0.0, 1000.0) < 1000.0
