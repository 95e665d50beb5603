"""Goal: a storm is its seed's, and hurts nobody in a way that its promise does not cover.

Method: plans of many seeds, by their properties.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.lab.run import Run
from holdfast.lab.scenarios.networks import storm
from holdfast.lab.scenarios.networks.storm import Timetable, leave
from holdfast.lab.steps.storm_plan import CALM_S, OF_BROKERS, WEIGHTS, Deed, plan_storm

BROKERS, CONTROLLERS = (0, 1, 2), (100, 101, 102)


def test_the_same_seed_is_the_same_storm() -> None:
    first, again, other = (plan_storm(seed, 300, BROKERS, CONTROLLERS) for seed in (7, 7, 8))
    assert first == again
    assert first != other


@pytest.mark.parametrize("seed", range(20))
def test_a_storm_has_every_kind_and_ends_in_calm(seed: int) -> None:
    planned = plan_storm(seed, 600, BROKERS, CONTROLLERS)
    assert [each.at_s for each in planned] == sorted(each.at_s for each in planned)
    assert planned[-1].at_s <= 600 - CALM_S
    kinds = Counter(each.deed for each in planned)
    rounds = len(planned) // sum(WEIGHTS.values())
    assert rounds >= 4
    for deed, weight in WEIGHTS.items():
        assert rounds * weight <= kinds[deed] <= (rounds + 1) * weight
    for each in planned:
        assert each.node != each.other
        assert each.deed not in OF_BROKERS or each.node in BROKERS


def test_deeds_in_words() -> None:
    planned = plan_storm(3, 3000, BROKERS, CONTROLLERS)
    words = {each.deed: each.words for each in planned}
    assert set(words) == set(Deed)
    assert words[Deed.KILL].endswith(" is killed")
    assert words[Deed.PAUSE].endswith(" stands still")
    assert " ms apart" in words[Deed.SLOW]
    assert " % of packets between " in words[Deed.LOSE]
    assert " is not heard by " in words[Deed.ONE_WAY]


def test_a_storm_that_is_too_short_does_nothing() -> None:
    assert plan_storm(1, CALM_S, BROKERS, CONTROLLERS) == []


def test_what_is_due_is_done_in_its_order_and_what_it_begins_is_ended_in_time() -> None:
    """Time stands still here: each thing is waited for until it is due, and none is left."""
    waited: list[float] = []
    times = Timetable(cast("Run", SimpleNamespace(steady_view=waited.append)))
    done: list[str] = []

    def begins(name: str, until_s: float) -> None:
        done.append(name)
        times.at(until_s, partial(done.append, f"end of {name}"))

    times.at(500.0, partial(begins, "second", 600.0))
    times.at(300.0, partial(begins, "first", 500.0))
    times.at(0.0, partial(done.append, "at once"))
    times.keep()
    assert done == ["at once", "first", "second", "end of first", "end of second"]
    assert [round(each, -2) for each in waited] == [300, 500, 500, 600]


@pytest.mark.parametrize(("goes_at_s", "killed"), [(0.0, False), (12.0, False), (1e9, True)])
def test_who_is_told_to_leave_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, goes_at_s: float, killed: bool
) -> None:
    """Seen to fail: without a controller a broker of Apache Kafka takes five minutes to leave, and
    nothing else was done meanwhile, not even what would have brought a controller back.
    """
    clock = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr(storm, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    done: list[str] = []

    def wait(seconds: float) -> None:
        clock.now_s += seconds

    run = SimpleNamespace(
        steady_view=wait,
        observer=SimpleNamespace(avoid=lambda _node: None),
        record_fault=lambda action, _node: done.append(f"{action} {clock.now_s:.0f}"),
        cluster=SimpleNamespace(
            kill=lambda *_, **__: None,
            state=lambda _node: "dead" if clock.now_s >= goes_at_s else "running",
        ),
    )
    times = Timetable(cast("Run", run))

    def begins() -> None:
        left = leave(cast("Run", run), times, 1, lambda node: done.append(f"start {node}"))
        times.at(5.0, left)

    times.at(0.0, begins)
    times.at(6.0, lambda: done.append(f"others {clock.now_s:.0f}"))
    times.keep()
    last = {0.0: 5, 12.0: 12, 1e9: 45}[goes_at_s]
    ended = f"{'KILL' if killed else 'exit'} {last}"
    others = "others 6"
    assert done == (
        ["TERM 0", ended, "start 1", others] if last < 6 else ["TERM 0", others, ended, "start 1"]
    )
