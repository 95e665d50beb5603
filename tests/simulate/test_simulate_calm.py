"""Who is late although nothing was done to it loses its session, and that fails a run at once.

Goal: work that holds up a broker's loop is found while all is calm. Method: a short run without
faults, in which calls take time; one broker has much to do at once, after the healing.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.testing.ground.loop import Process
from holdfast.testing.simulation.drawing import FULL, LIGHT, draw_plan
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.run import run_plan

CALM_S = 12.0  # by then this run is healed, and looks on
BUSY_S = 8.0  # more than a session


@pytest.mark.slow
def test_a_broker_that_is_busy_for_a_session_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = draw_plan(1001, LIGHT)
    plan = replace(drawn, call_us=1.0, seconds=4.0, events=(), broken=(), provoked=False)
    spend = Process.spend
    busy: list[str] = []

    def spend_much(process: Process, seconds: float) -> None:
        if process.name.startswith("broker-1") and not busy and process._loop.now > CALM_S:
            busy.append(process.name)
            seconds += BUSY_S
        spend(process, seconds)

    monkeypatch.setattr(Process, "spend", spend_much)
    outcome = run_plan(plan)
    assert busy
    assert outcome.violation is not None
    assert outcome.violation.invariant == Invariant.SESSIONS_HOLD
    assert outcome.violation.at_s < CALM_S + BUSY_S


def test_cost_and_many_partitions_are_drawn() -> None:
    drawn = [draw_plan(seed, FULL) for seed in range(600)]
    costly = [plan for plan in drawn if plan.call_us]
    wide = [plan for plan in drawn if plan.wide]
    assert len(drawn) / 12 < len(costly) < len(drawn) / 5
    assert wide
    assert all(plan.call_us and 200 <= plan.wide <= 2_000 for plan in wide)
