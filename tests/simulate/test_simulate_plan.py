"""A plan is data: the same from the same seed, whole through JSON, smaller without an event.

Goal: a failing seed can be kept, sent and made smaller. Method: round trips and a made-up culprit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from holdfast.testing.simulation.drawing import FAULTS_MIN, FULL, LIGHT, draw_plan
from holdfast.testing.simulation.faults import KINDS
from holdfast.testing.simulation.plan import Event
from holdfast.testing.simulation.run import run_plan, shrink
from holdfast.testing.simulation.runner import read_entry


def test_the_same_seed_draws_the_same_plan_and_json_keeps_it() -> None:
    for seed in range(50):
        plan = draw_plan(seed)
        assert plan == draw_plan(seed)
        assert read_entry({"plan": json.loads(plan.to_json())}) == plan
        assert len(plan.events) >= FAULTS_MIN
        assert all(event.kind in KINDS and event.at < plan.seconds for event in plan.events)


def test_no_group_has_less_than_two_heartbeats_to_settle_in() -> None:
    """Within less it never does, with Apache Kafka either: it joins anew each time.

    Seen to fail: seed 332208769740 waited in vain for a group of 2000 ms and 2000 ms.
    """
    plans = (draw_plan(seed, LIGHT) for seed in (332208769740, *range(400)))
    groups = [group for plan in plans for group in plan.groups]
    assert groups
    assert all(group.rebalance_ms >= 2 * group.heartbeat_ms for group in groups)


def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises(ValueError, match="not a plan"):
        read_entry({"plan": []})
    with pytest.raises(ValueError, match="not a plan"):
        read_entry({"plan": {"version": 1, "seed": 3}})


def test_every_kind_of_event_is_drawn() -> None:
    drawn = {event.kind for seed in range(300) for event in draw_plan(seed, FULL).events}
    assert drawn == KINDS.keys()


def test_a_schedule_shrinks_to_the_events_that_matter() -> None:
    events = [Event(at=float(n), kind="kill", target=f"broker:{n}") for n in range(40)]
    culprits = {7, 23}

    def breaks(some: Sequence[Event]) -> bool:
        return culprits <= {int(event.at) for event in some}

    assert [int(event.at) for event in shrink(events, breaks)] == [7, 23]


@pytest.mark.slow
def test_the_same_plan_is_the_same_run() -> None:
    plan = replace(draw_plan(5, LIGHT), seconds=15.0)
    first, second = run_plan(plan), run_plan(plan)
    assert first.violation is None, first.violation
    assert (first.digest, first.counts) == (second.digest, second.counts)
