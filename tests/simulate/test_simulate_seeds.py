"""Fresh seeds, every time, and all that have ever failed.

Goal: a whole cluster under random faults keeps its promises and recovers. Method: short runs of
seeds that nobody has seen before (printed, so that a failure can be played again), then the
regression list: plans that broke something once, each with what it was.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

from holdfast.testing.simulation import report
from holdfast.testing.simulation.drawing import LIGHT, draw_plan
from holdfast.testing.simulation.run import run_plan
from holdfast.testing.simulation.runner import command, read_entry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CHUNKS, SEEDS = 8, 25
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
