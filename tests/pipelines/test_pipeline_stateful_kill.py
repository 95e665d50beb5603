"""Goal: a driver with state that is killed anywhere leaves what the next one needs.

Method: real drivers, SIGKILL at a random moment and at each of the places where rows, offsets and
Spark's commit could part; a last life in the session that tests share; then the table against what
plain Python makes of the log. The campaigns of `make soak` do the same for hours, with sessions and
a join beside the windows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from tests.pipelines.here import StatefulHere

from holdfast.lab.soak import stateful_campaigns as stateful_soak
from holdfast.lab.soak import stateful_truth as truth
from holdfast.lab.soak.stateful_campaigns import PLACES, Life, Proof
from holdfast.lab.soak.stateful_truth import Event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_plain_python_makes_of_a_log() -> None:
    """By hand, since everything else is held against it."""
    written = [
        Event(0, 10_000, "a", "left", 1, 7),
        Event(0, 11_000, "a", "right", 1, 5),
        Event(1, 13_100, "a", "left", 2, 1),
        Event(0, 14_999, "b", "right", 2, 3),
        Event(1, 18_101, "b", "right", 2, 9),
        Event(0, 15_000, "b", "right", 1, 2),
    ]
    assert truth.windows(written) == Counter(
        [(10_000, "a", 3, 13), (10_000, "b", 1, 3), (15_000, "b", 2, 11)]
    )
    assert truth.sessions(written) == Counter(
        [
            (10_000, 13_050, "a", 2),
            (13_100, 15_150, "a", 1),
            (14_999, 17_050, "b", 2),
            (18_101, 20_151, "b", 1),
        ]
    )
    assert truth.pairs(written) == Counter([(1, 7, 5), (1, 7, 2), (2, 1, 3)])
    assert truth.pairs(written[2:3]) == Counter([(2, 1, None)])


def test_no_event_is_later_than_the_queries_wait_for() -> None:
    made = truth.events(7, 900, 3, 0)
    latest = 0
    for event in made:
        latest = max(latest, event.at_ms)
        assert event.at_ms > latest - truth.LATE_MS_MAX
    assert truth.events(7, 900, 3, 0) == made


class ProofHere(Proof):
    """The last life needs no process of its own: nobody kills it."""

    spark: SparkSession

    def life(self, *options: str, queries: Sequence[str] = ()) -> Life:
        if "--once" not in options:
            return super().life(*options, queries=queries)
        with patch.object(stateful_soak, "Life", partial(StatefulHere, self.spark)):
            return super().life(*options, queries=queries)


@pytest.fixture
def proof(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Iterator[Proof]:
    url = f"sqlite:///{tmp_path}/{{query}}.db"
    made = ProofHere(tmp_path, bootstrap, url, ["windows"], seed=11)
    made.spark = spark
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_windows_under_kills(proof: Proof) -> None:
    proof.kill_at_random()
    for place in PLACES:
        proof.kill_at(place, 2)
    proof.finish()
    assert proof.differences() == []
    assert proof.rows("windows").total() > 100
