"""Goal: the campaigns of kills around the sinks ask for what they promise.

Method: what plain Python makes of a log, by hand; the entries of the sinks held against the code
that they name. The campaigns themselves run in `make soak`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.lab.soak import latest_campaigns, sink_campaigns, sink_truth
from holdfast.lab.soak.sink_kinds import CONTROL, SINKS, Sink
from holdfast.lab.soak.sink_truth import Event
from holdfast.pipelines.proving.holding import found
from holdfast.pipelines.sinks.writing import SCHEMES

LOG = [
    Event(0, 0, 10_000, "a", 1, 7),
    Event(0, 1, 10_999, "a", 2, None),
    Event(1, 0, 10_500, "b", 3, 5),
    Event(1, 1, 11_000, "b", 4, 6),
    Event(0, 2, 22_000, "c", 5, None),
]


def test_what_plain_python_makes_of_a_log() -> None:
    every = [
        ("0", "0", "10000", "a", "1", "7"),
        ("0", "1", "10999", "a", "2", None),
        ("1", "0", "10500", "b", "3", "5"),
        ("1", "1", "11000", "b", "4", "6"),
        ("0", "2", "22000", "c", "5", None),
    ]
    assert sink_truth.rows(LOG) == Counter(every)
    assert sink_truth.last_rows(reversed(LOG)) == Counter([every[3]])
    closed = [("10000", "a", "2", "7"), ("10000", "b", "1", "5"), ("11000", "b", "1", "6")]
    assert sink_truth.closed_windows(LOG) == Counter(closed)
    assert sink_truth.all_windows(LOG) == Counter([*closed, ("22000", "c", "1", None)])
    assert sink_truth.closed_windows(LOG[:4]) == Counter()


def test_a_table_is_spelt_as_the_truth_is() -> None:
    row: dict[str, object] = {
        "amount": None,
        "events": 2,
        "key": "a",
        "begin_ms": 10_000,
        "more": "x",
    }
    assert sink_truth.found("windows", [row, row]) == {("10000", "a", "2", None): 2}


@pytest.mark.slow
def test_every_place_is_a_function() -> None:
    for place in (*latest_campaigns.PLACES, *(p for s in (*SINKS, CONTROL) for p in s.places)):
        assert callable(getattr(*found(place))), place


def test_every_target_of_write_has_its_campaigns() -> None:
    known = {sink.name.partition("-")[0] for sink in SINKS}
    assert known | {"rediss", "unix"} == set(SCHEMES), "give a new target its entry in sink_kinds"


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.name)
def test_a_run_kills_each_kind_and_two_at_places(sink: Sink) -> None:
    """Of ten runs of five kills each twenty or more are aimed: fifteen were promised."""
    for _ in range(20):
        plan = sink_campaigns._plan(sink)
        kinds = {"driver", "executor", "broker"} | ({"database"} if sink.server else set())
        assert {kind for kind, _ in plan} == kinds
        assert len(plan) == 5
        assert sum(aimed for _, aimed in plan) >= 2
        assert plan[-1][0] == "driver"
