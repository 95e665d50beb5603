"""Fresh seeds for each state of the code, and all that have ever failed.

Goal: a whole cluster under random faults keeps its promises and recovers. Method: short runs of
seeds that nobody has seen before (printed, so that a failure can be played again), then the
regression list: plans that broke something once, each with what it was.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulate.fresh import CHUNKS, FIRST, SEEDS

from holdfast.cluster.processes import wait_until
from holdfast.testing.simulation import report, runner
from holdfast.testing.simulation.drawing import LIGHT, draw_plan
from holdfast.testing.simulation.plan import Plan
from holdfast.testing.simulation.run import Outcome, run_plan
from holdfast.testing.simulation.runner import MODULE, command, main, read_entry

pytestmark = pytest.mark.timeout(300)

BOUND_S = 60
REGRESSIONS = json.loads((Path(__file__).parent / "regressions.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_fresh_seeds_are_clean(chunk: int) -> None:
    first = FIRST + chunk * SEEDS
    for seed in range(first, first + SEEDS):
        outcome = run_plan(draw_plan(seed, LIGHT))
        if outcome.violation is not None:
            again = command(seed, "light")
            pytest.fail("\n".join(report.failure(outcome, outcome.violation, again)))


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.parametrize("entry", REGRESSIONS, ids=lambda entry: entry["why"][:60])
def test_what_failed_once_is_clean(entry: dict[str, object]) -> None:
    outcome = run_plan(read_entry(entry))
    if outcome.violation is not None:
        again = "python -m holdfast.testing.simulation"
        pytest.fail("\n".join(report.failure(outcome, outcome.violation, again)))


@pytest.mark.slow
@pytest.mark.process
def test_a_killed_batch_leaves_no_process_behind(tmp_path: Path) -> None:
    """Goal: whoever ends a batch of hours has their cores back.

    Method: SIGKILL amid the work; the output ends once the last process that could write there has
    gone. Seen to fail without `_end_with_parent`: two waited for work that nobody would give them.
    """
    results = tmp_path / "results.jsonl"
    seeds = ["--seeds", "1000", "--scale", "light", "--jobs", "2", "--results", str(results)]
    with subprocess.Popen(
        [sys.executable, "-m", MODULE, *seeds],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        start_new_session=True,
    ) as batch:
        try:
            wait_until(
                lambda: results.exists() and len(results.read_text().splitlines()) > 1,
                timeout_s=BOUND_S,
                what="the first result",
            )
            batch.kill()
            batch.communicate(timeout=BOUND_S)
        except BaseException:
            os.killpg(batch.pid, signal.SIGKILL)
            raise


def test_a_run_that_goes_on_and_on_is_ended_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: one plan that never ends costs a batch that plan alone, however busy the machine is.

    Method: a run that turns in a circle. By the wall's time three clean seeds were called broken on
    a machine that did other work.
    """

    def turns_in_a_circle(_plan: Plan, *, trace_lines: int) -> Outcome:  # noqa: ARG001 - as it is called
        while True:
            pass

    monkeypatch.setattr(runner, "run_plan", turns_in_a_circle)
    monkeypatch.setattr(runner, "_CPU_S", 0.05)
    (row,) = runner.run_seeds([7], "light", 1)
    logging.disable(logging.NOTSET)  # the command turns it off for its own process
    assert (row["clean"], row["invariant"]) == (False, "a run comes to its end")
    assert "0.05 seconds of the processor" in "\n".join(row["report"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--minimise"], "--seed or --plan"),
        (["--seeds", "0"], "at least 1"),
        (["--results", "/nowhere/at/all"], "--results /nowhere/at/all"),
        (["--plan", "/nowhere/at/all"], "/nowhere/at/all"),
        (["--seed", "7", "--seeds", "3"], "--seed is one seed again"),
        (["--plan", "FILE:5"], "no plan of a run"),
        (["--results", "FILE:{}"], "no result: "),
        (["--regressions", "FILE:5"], "no list of plans"),
        (["--regressions", "FILE:[{}]"], "no list of plans"),
        (["--regressions", "FILE:[]"], "there is one at least"),
    ],
)
def test_what_makes_no_sense(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], words: str
) -> None:
    """Goal: status 2, and a line that names the option. Method: each was a run or a traceback."""
    if arguments[-1].startswith("FILE:"):
        file = tmp_path / "given.json"
        file.write_text(arguments[-1].removeprefix("FILE:") + "\n")
        arguments = [*arguments[:-1], str(file)]
    try:
        status = main(arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        logging.disable(logging.NOTSET)  # the command turns it off for its own process
    assert (status, words in capsys.readouterr().err) == (2, True)
