"""Goal: what a callback took is what it had of the processor, and no more than the clock says."""

from __future__ import annotations

from itertools import count

import pytest

from holdfast.runtime import own_time
from holdfast.runtime.own_time import FRESH_S, OwnTime


def test_neither_a_stop_nor_other_work_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = [100.0]
    monkeypatch.setattr(own_time, "thread_time", lambda: spent[0])
    own = OwnTime()
    own.begin(50.0)
    spent[0] += 0.25
    assert own.took(50.0, 60.0) == 0.25, "it stood still for the rest"
    own.begin(60.0)
    spent[0] += 0.25
    assert own.took(60.0, 60.25) == 0.25
    spent[0] += 8.0  # meanwhile something else had its turn
    own.begin(68.25)
    assert own.took(68.25, 68.5) == 0.0


def test_it_looks_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it may be wrong by is what it has not looked for, and the clock bounds that."""
    looks = count()
    monkeypatch.setattr(own_time, "thread_time", lambda: float(next(looks)))
    own = OwnTime()
    for step in range(100):
        own.begin(step * FRESH_S / 100)
    assert next(looks) == 1


def test_what_is_asked_of_the_system_is_of_this_thread() -> None:
    own = OwnTime()
    own.begin(0.0)
    sum(range(100_000))
    assert 0 < own.took(0.0, 1000.0) < 1000.0
