"""Fresh seeds, every time, and all that have ever failed.

Goal: a whole cluster under random faults keeps its promises and recovers. Method: short runs of
seeds that nobody has seen before (printed, so that a failure can be played again), then the
regression list: plans that broke something once, each with what it was.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cluster.processes import wait_until
from holdfast.testing.simulation import report
from holdfast.testing.simulation.drawing import LIGHT, draw_plan
from holdfast.testing.simulation.run import run_plan
from holdfast.testing.simulation.runner import MODULE, command, main, read_entry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CHUNKS, SEEDS = 8, 25
BOUND_S = 60
FIRST = random.SystemRandom().randrange(1 << 40)
REGRESSIONS = json.loads((Path(__file__).parent / "regressions.json").read_text())


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_fresh_seeds_are_clean(chunk: int) -> None:
    first = FIRST + chunk * SEEDS
    sys.stdout.write(f"seeds {first} to {first + SEEDS - 1}, scale light\n")
    for seed in range(first, first + SEEDS):
        outcome = run_plan(draw_plan(seed, LIGHT))
        if outcome.violation is not None:
            pytest.fail("\n".join(report.failure(outcome, command(seed, "light"))))


@pytest.mark.parametrize("entry", REGRESSIONS, ids=lambda entry: entry["why"][:60])
def test_what_failed_once_is_clean(entry: dict[str, object]) -> None:
    outcome = run_plan(read_entry(entry))
    if outcome.violation is not None:
        pytest.fail("\n".join(report.failure(outcome, "python -m holdfast.testing.simulation")))


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--minimise"], "--seed or --plan"),
        (["--seeds", "0"], "at least 1"),
        (["--results", "/nowhere/at/all"], "--results /nowhere/at/all"),
        (["--plan", "/nowhere/at/all"], "/nowhere/at/all"),
    ],
)
def test_what_makes_no_sense(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    """Goal: status 2, and a line that names the option. Method: each was a run or a traceback."""
    try:
        status = main(arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        logging.disable(logging.NOTSET)  # the command turns it off for its own process
    assert (status, words in capsys.readouterr().err) == (2, True)
