"""What hostile clients have sent before is borne again.

Goal: nobody dies of it, memory stays bounded, others are served. Method: the corpus of `make fuzz`
against a real broker and its controller, many connections at a time, while a neighbour writes and
reads. What was meant for the controller of a cluster apart goes to this one, once the neighbour is
done: believed, it would end its service rightly.
"""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import pytest

from fuzz import CORPUS, PEAK_BYTES_MAX, Run

pytestmark = [pytest.mark.process, pytest.mark.slow]

BYTES_MAX = 300_000
CASES_MAX = 600


def test_what_was_sent_once_does_no_harm(tmp_path: Path) -> None:
    run = Run(tmp_path, 1, CORPUS, apart=False)
    try:
        run.start()
        for node in run.nodes:
            node.rest()
        cases = list(run.kept())
        served, apart = (
            [(node, case) for node, case, is_apart in cases if is_apart is which]
            for which in (False, True)
        )
        run.go_on(iter(served), inf)
        answered = run.neighbour.served
        run.neighbour.wait_served(answered + 1)
        run.check()
        run.neighbour.stop()
        run.go_on(iter(apart), inf)
        for node in run.nodes:
            node.check_alive(run.last)
            node.check_serves()
        assert max(run.grown("VmHWM")) < PEAK_BYTES_MAX
        assert run.counts.total() == len(cases)
        assert run.counts["answered"] > len(cases) // 10, run.counts
    finally:
        run.stop()


def test_the_corpus_is_small_and_has_something_of_each() -> None:
    """Method: by size, by node and API, and by what once came of it."""
    assert CORPUS.stat().st_size < BYTES_MAX
    kinds = [json.loads(line)["what"] for line in CORPUS.read_text().splitlines()]
    assert len(set(kinds)) == len(kinds) <= CASES_MAX
    assert {kind.rpartition(": ")[2] for kind in kinds} >= {"answered", "closed", "silence"}
    assert len({kind.rpartition(": ")[0] for kind in kinds}) > 80  # pairs of a node and an API
