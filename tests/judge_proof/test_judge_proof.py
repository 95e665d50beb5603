"""Goal: the judge names every anomaly of a history, and none that is not there.

Method: a model of a replicated log makes histories from seeds, true ones and such with planted
anomalies, and knows what must be found; the judge must say exactly that, counts included. One seed
again: `python -m tests.judge_proof --seed N`.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from tests.judge_proof.__main__ import command
from tests.judge_proof.plants import PLANTS
from tests.judge_proof.proof import Case, differences, made

from holdfast.judge.verdict import Anomaly

CHUNK = 30
SEEDS = 300


@cache
def cases(first: int) -> list[Case]:
    return [made(seed) for seed in range(first, first + CHUNK)]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_the_judge_says_what_the_model_knows(first: int) -> None:
    wrong = {case.seed: lines for case in cases(first) if (lines := differences(case))}
    assert not wrong, "\n".join(
        f"{command(seed)}\n  " + "\n  ".join(lines) for seed, lines in wrong.items()
    )


def test_a_seed_makes_one_history() -> None:
    first, again = made(7), made(7)
    assert first.events == again.events
    assert first.truth == again.truth


@pytest.mark.slow
def test_the_histories_are_varied() -> None:
    """A generator that makes nothing to be found, or nothing clean, would prove nothing."""
    every = [case for first in range(0, SEEDS, CHUNK) for case in cases(first)]
    planted = Counter(plant for case in every for plant in case.planted)
    assert planted.keys() == PLANTS.keys(), PLANTS.keys() - planted.keys()
    foretold = Counter(anomaly for case in every for anomaly, _, _ in case.truth.findings)
    assert foretold.keys() == set(Anomaly), set(Anomaly) - foretold.keys()
    assert sum(not case.truth.findings for case in every) >= SEEDS // 5
    assert sum(any(counts.expired for counts in case.counts.values()) for case in every) >= 15
    assert sum(bool(case.truth.may) for case in every) <= SEEDS // 10, "too much is left open"
