"""Goal: the judge names every anomaly of a history, and none that is not there.

Method: a model of a replicated log makes histories from seeds, true ones and such with planted
anomalies, and knows what must be found; the judge must say exactly that, counts included. One seed
again: `python -m tests.judge_proof --seed N`.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from itertools import chain, pairwise

import pytest
from tests.judge_proof.__main__ import command
from tests.judge_proof.plants import PLANTS
from tests.judge_proof.proof import Case, differences, made

from holdfast.judge.history import encode_event, read_runs
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


def test_what_is_written_is_what_is_read() -> None:
    """Files come in blocks that are cut anywhere, and end with what a SIGKILL leaves."""
    chance = random.Random(1)
    for case in cases(0)[:10]:
        for process in sorted({event.process for event in case.events}):
            mine = [event for event in case.events if event.process == process]
            data = "".join(map(encode_event, mine)).encode() + encode_event(mine[0])[:-1].encode()
            cuts = sorted(chance.randrange(len(data)) for _ in range(chance.randint(1, 40)))
            blocks = [data[begin:end] for begin, end in pairwise([0, *cuts, len(data)])]
            assert list(chain.from_iterable(read_runs(blocks))) == mine
