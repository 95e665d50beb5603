"""`holdfast prove replay` before its run: what it refuses, and that a file is as good as a seed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.cli.proving import prove_replay
from holdfast.lab.journal import Exit
from holdfast.lab.outcome import Outcome
from holdfast.lab.parameters import Parameters
from holdfast.lab.scenario import Scenario
from holdfast.lab.scenarios.networks.replay import SCHEDULE, read_schedule
from holdfast.testing.simulation.drawing import draw_plan

if TYPE_CHECKING:
    from tests.cli.conftest import Run

SEED = 1


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(draw_plan(SEED).to_json())
    return path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("replay", "--rate", "7"), "--rate has no effect in replay"),
        (("replay", "--config", "a=b"), "--config has no effect in replay"),
        (("replay", "--min-isr", "1"), "--min-isr has no effect in replay"),
        (("replay", "--plan", "no-such"), "--plan no-such: it can't be read"),
        (("replay", "--plan", "PLAN", "--seed", "3"), "give one of them"),
        (("replay", "--plan", "PLAN", "--attempts", "0"), "--attempts 0"),
        (("replay", "--plan", "EMPTY"), "no plan of the simulator"),
        (("replay", "--plan", "QUIET"), "nothing of it can be done to processes"),
        (("replay", "--plan", "PLAN", "--engine", "other"), "--engine other"),
        (("replay", "--seed", "-1"), "--seed -1"),
        (("storm", "--plan", "PLAN"), "--plan and --attempts go with replay"),
        (("storm", "--attempts", "3"), "--plan and --attempts go with replay"),
        (("--all", "--attempts", "3"), "--all runs every scenario"),
        (("--list", "--plan", "PLAN"), "--list names"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_can_not_be_replayed_is_refused_with_the_reason(
    run: Run, tmp_path: Path, plan: Path, arguments: tuple[str, ...], words: str
) -> None:
    quiet, empty = tmp_path / "quiet.json", tmp_path / "empty.json"
    quiet.write_text(replace(draw_plan(SEED), events=()).to_json())
    empty.write_text("{}")
    files = {"PLAN": plan, "QUIET": quiet, "EMPTY": empty}
    given = [str(files.get(each, each)) for each in arguments]
    if given[0] == "replay":
        given += ["--output", str(tmp_path / "run")]
    outcome = run("prove", *given)
    assert outcome.status == 2
    assert words in outcome.errors


@pytest.mark.process
@pytest.mark.slow
def test_a_seed_is_drawn_as_the_simulator_draws_it() -> None:
    assert prove_replay.drawn(SEED) == json.loads(draw_plan(SEED).to_json())


def test_attempts_end_with_the_first_that_is_broken(
    run: Run, tmp_path: Path, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: proofs that come out as they are told. Each has its schedule beside it."""
    came = [Exit.KEPT, Exit.NOT_MADE, Exit.BROKEN, Exit.KEPT]

    def told(scenario: Scenario, parameters: Parameters, folder: Path, **_more: Any) -> Outcome:
        code = came.pop(0)
        return Outcome(
            scenario=scenario,
            parameters=parameters,
            exit=code,
            verdict=code.name,
            results=(),
            directory=folder,
            report=None,
        )

    monkeypatch.setattr(prove_replay, "prove", told)
    folder = tmp_path / "run"
    outcome = run("prove", "replay", "--plan", str(plan), "--attempts", "9", "--output",
                  str(folder), "--json")  # fmt: skip
    assert outcome.status == Exit.BROKEN, outcome.errors
    told_of = json.loads(outcome.output)
    assert (told_of["attempts"], told_of["misses"]) == (3, 1)
    assert "3 attempts, 1 in which nothing was broken, 1 that could not be made" in outcome.errors
    names = sorted(each.name for each in folder.iterdir())
    assert names == ["attempt-1", "attempt-2", "attempt-3"]
    schedule = read_schedule(folder / names[0] / SCHEDULE)
    assert [line in outcome.errors for line in schedule.describe()]
    assert schedule.seed == SEED
