"""Goal: two judges, written apart from the same rules, find the same in small histories.

Method: the judge against the naive checker over made runs, with plants, and over histories at
random that make no sense at all. A difference is printed as the shortest history that still
shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from tests.judge_proof.__main__ import command
from tests.judge_proof.naive import naive
from tests.judge_proof.proof import made
from tests.judge_proof.soup import Soup, disagree, shortest, verdicts

from holdfast.judge.checker import Checker, judge
from holdfast.judge.history import Event, PartitionEvent, in_runs
from holdfast.judge.verdict import Anomaly

CHUNK = 100


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 600, CHUNK))
def test_both_find_the_same_in_senseless_histories(first: int) -> None:
    for seed in range(first, first + CHUNK):
        events = Soup(seed).made()
        assert not disagree(events), told(seed, shortest(events))


def told(seed: int, events: Sequence[Event]) -> str:
    left, right = verdicts(events)
    lines = "\n".join(str(event) for event in events)
    return f"{command(seed)}: the judge {left}, the naive one {right}\n{lines}"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, 50))
def test_both_find_the_same_in_made_runs(first: int) -> None:
    for seed in range(first, first + 50):
        events = made(seed, steps=60).events
        for partition in judge(events).judgement.partitions:
            mine = [
                event
                for event in events
                if isinstance(event, PartitionEvent) and event.partition == partition.partition
            ]
            if partition.whole_read:
                said = +Counter(partition.anomalies), not partition.undecided
                assert naive(mine) == said, f"seed {seed}, P{partition.partition}"


@pytest.mark.slow
def test_the_evidence_does_not_hang_on_the_runs_in_which_events_come() -> None:
    """Where nothing in a run is odd, deliveries are taken together; else one by one."""
    histories: list[Sequence[Event]] = [Soup(seed).made() for seed in range(300)]
    histories += [made(seed, steps=60).events for seed in range(30)]
    for number, events in enumerate(histories):
        told = judge(events)
        for length in (1, 2, 5, 40):
            checker = Checker()
            for run in in_runs(events, length):
                checker.feed(run)
            assert checker.finish() == told, f"history {number} in runs of {length}"


def test_senseless_histories_come_to_every_anomaly() -> None:
    seen = {anomaly for seed in range(50) for anomaly in naive(Soup(seed).made())[0]}
    assert seen == set(Anomaly)
