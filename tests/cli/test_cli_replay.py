"""`holdfast prove replay` before its run: what it refuses, and that a file is as good as a seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.cli.proving import prove_replay
from holdfast.lab.journal import Exit
from holdfast.lab.keeping import KEPT_MAX, VERDICT
from holdfast.lab.outcome import Outcome
from holdfast.lab.parameters import Parameters
from holdfast.lab.scenario import Scenario
from holdfast.lab.scenarios.networks.replay import SCHEDULE, not_as_drawn, read_schedule
from holdfast.lab.scenarios.networks.replay_changes import rate_of
from holdfast.lab.scenarios.networks.timetable import REGISTERING
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
        (("replay", "--plan", "DEEP"), "it can't be read"),
        (("replay", "--plan", "/dev/zero"), "it is larger than 4 MiB"),
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
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    files = {"PLAN": plan, "QUIET": quiet, "EMPTY": empty, "DEEP": deep}
    given = [str(files.get(each, each)) for each in arguments]
    if given[0] == "replay":
        given += ["--output", str(tmp_path / "run")]
    outcome = run("prove", *given)
    assert outcome.status == 2
    assert words in outcome.errors


@pytest.mark.process
@pytest.mark.slow
def test_a_closed_pipe_is_no_broken_promise(tmp_path: Path) -> None:
    """Method: a plan that is described, and then refused, into a pipe that nobody reads."""
    quiet = tmp_path / "quiet.json"
    quiet.write_text(replace(draw_plan(SEED), events=()).to_json())
    words = ["prove", "replay", "--plan", str(quiet), "--output", str(tmp_path / "run")]
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *words],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert ended.returncode == Exit.NOT_MADE
    assert "nothing of it can be done to processes" in ended.stderr


@pytest.mark.process
@pytest.mark.slow
def test_a_seed_is_drawn_as_the_simulator_draws_it() -> None:
    assert prove_replay.drawn(SEED) == json.loads(draw_plan(SEED).to_json())


class Proofs:
    """Proofs that come out as they are told, in place of true ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *came: Exit) -> None:
        self._came = list(came)
        self.commands: list[str] = []
        self.rates: list[float] = []
        monkeypatch.setattr(prove_replay, "prove", self._prove)

    def _prove(
        self, scenario: Scenario, parameters: Parameters, folder: Path, *, command: str, **_: Any
    ) -> Outcome:
        code = self._came.pop(0)
        self.commands.append(command)
        self.rates.append(parameters.rate)
        assert REGISTERING.items() <= parameters.node_config.items()
        return Outcome(
            scenario=scenario,
            parameters=parameters,
            exit=code,
            verdict=code.name,
            results=(),
            directory=folder,
            report=None,
        )


def test_attempts_end_with_the_first_that_is_broken(
    run: Run, tmp_path: Path, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt has its schedule beside it, and the plan that this is what is left of."""
    proofs = Proofs(monkeypatch, Exit.KEPT, Exit.NOT_MADE, Exit.BROKEN, Exit.KEPT)
    folder = tmp_path / "run"
    outcome = run("prove", "replay", "--plan", str(plan), "--attempts", "9", "--output",
                  str(folder), "--json")  # fmt: skip
    assert outcome.status == Exit.BROKEN, outcome.errors
    told_of = json.loads(outcome.output)
    assert (told_of["attempts"], told_of["misses"]) == (3, 1)
    assert "3 attempts, 1 in which nothing was broken, 1 that could not be made" in outcome.errors
    assert json.loads((folder / VERDICT).read_bytes()) == told_of
    assert proofs.rates == [rate_of(json.loads((folder / "attempt-1" / SCHEDULE).read_bytes()))] * 3
    names = sorted(each.name for each in folder.iterdir() if each.is_dir())
    assert names == ["attempt-1", "attempt-2", "attempt-3"]
    schedule = read_schedule(folder / names[0] / SCHEDULE)
    (told_apart,) = not_as_drawn(folder / names[0])
    for row in told_apart.rows:
        assert f"not as drawn: {row[0]}" in outcome.errors
    assert all(line in outcome.errors for line in schedule.describe())
    assert schedule.seed == SEED


def test_an_attempt_that_could_not_be_made_says_nothing_of_the_others(
    run: Run, tmp_path: Path, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Proofs(monkeypatch, Exit.NOT_MADE, Exit.KEPT, Exit.NOT_MADE)
    words = ("--plan", str(plan), "--attempts", "3", "--output", str(tmp_path / "run"))
    outcome = run("prove", "replay", *words)
    assert outcome.status == Exit.KEPT, outcome.errors
    assert "Report" not in outcome.output


@pytest.mark.process
@pytest.mark.slow
def test_a_seed_that_was_drawn_is_in_the_command_and_old_runs_go(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a report's command does the same again, and proofs don't pile up.

    Method: attempts into the user's own folder, where more runs lie that were kept than stay.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("secrets.randbelow", lambda _most: SEED)
    proofs = tmp_path / "holdfast" / "proofs"
    for number in range(KEPT_MAX):
        folder = proofs / f"replay-20260101-000000-{number}"
        folder.mkdir(parents=True)
        (folder / VERDICT).write_text('{"exit": 0}')
    told = Proofs(monkeypatch, Exit.KEPT, Exit.KEPT)
    outcome = run("prove", "replay", "--attempts", "2")
    assert outcome.status == Exit.KEPT, outcome.errors
    assert all(command.endswith(f" --seed {SEED}") for command in told.commands)
    assert "Removed: replay-20260101-000000-" in outcome.output
    assert len([*proofs.iterdir()]) == KEPT_MAX
