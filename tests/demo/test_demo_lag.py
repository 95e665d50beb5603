"""Goal: how far the table was behind its log, as it was. Method: moves and words by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.judge.histories import Story

from holdfast.judge.checker import judge
from holdfast.judge.history import Event, Note, encode_event
from holdfast.lab.demo.demo_check import DemoVerdict
from holdfast.lab.demo.demo_plan import DemoPlan, Places
from holdfast.lab.demo.demo_report import (
    DRIVER_KILLED,
    LAG_POINTS_MAX,
    behind,
    report_data,
    report_demo,
    thinned,
)
from holdfast.lab.demo.spark import Words
from holdfast.lab.demo.steps import Gates


def test_a_batch_takes_the_line_down_and_never_below_nothing() -> None:
    moves = [(1.0, 1), (2.0, 1), (3.0, -1), (4.0, -2), (5.0, 1), (6.0, 3)]
    assert list(behind(moves)) == [(1.0, 1), (2.0, 2), (3.0, 1), (4.0, 0), (5.0, 0), (6.0, 3)]


def test_what_is_drawn_keeps_the_peak_and_the_end() -> None:
    points = [(float(ms), ms % 1000) for ms in range(10_000)]
    points[4321] = (4321.0, 77_777)
    drawn = thinned(points, 0.0, 12_000.0)
    assert len(drawn) <= LAG_POINTS_MAX + 4
    assert drawn == sorted(drawn, key=lambda point: point[0])
    assert max(drawn, key=lambda point: point[1]) == (4321.0, 77_777)
    assert drawn[0] == (0.0, 0)
    assert drawn[-2:] == [(9999.0, 999), (12_000.0, 999)]
    assert thinned([], 5.0, 6.0) == [(5.0, 0), (5.0, 0), (6.0, 0)]


@pytest.mark.parametrize("events", [1, 2, 3, 4, 7, 10, 900, 30_000])
def test_some_events_are_left_for_each_step_as_long_as_there_are_any(events: int) -> None:
    gates = Gates.of(events)
    assert 1 <= gates.before <= gates.during <= gates.held <= events
    assert (gates.held > gates.during) == (events > 1)
    assert events < 7 or gates.before < gates.during < gates.held < events


def say(path: Path, *events: object) -> None:
    path.write_text("".join(json.dumps(event) + "\n" for event in events) + '{"event": "comm')


def test_acknowledgements_and_the_words_of_both_drivers_make_the_lag(tmp_path: Path) -> None:
    plan = DemoPlan(kind="payments", events=4, rate=1, topic="foo", query="q")
    places = Places(tmp_path)
    story = Story().send(0, 1, 2, 3).ack(0, 0).ack(1, 1).pause(100).ack(2, 2).ack(3, 3)
    killed = Note(at_ms=1050.0, wall_ms=0, process="lab", text=f"{DRIVER_KILLED}: batch 1")
    events: list[Event] = sorted([*story.events, killed], key=lambda event: event.at_ms)
    places.history.mkdir()
    (places.history / "all.jsonl").write_text("".join(map(encode_event, events)))
    committed = {"event": "committed", "batch": 1}
    say(places.words(1), {**committed, "rows": 2, "at_ms": 1020.0}, "a library's own words", {})
    say(
        places.words(2),
        {**committed, "rows": 0, "at_ms": 1060.0},
        {**committed, "rows": 1, "at_ms": 1200.0},
    )
    verdict = DemoVerdict(
        directory=tmp_path,
        plan=plan,
        evidence=judge(events),
        checks=(),
        tables=(),
        undecided=None,
        broke_off=None,
    )
    (part,) = report_data(places, verdict, "holdfast demo").parts
    assert part.also_broken == "SIGKILL of the Spark driver"
    assert part.lag is not None
    found = part.lag
    assert found.marks == [(1050.0, "KILL Spark")]
    at = dict(found.points)
    assert [at[ms] for ms in (1006.0, 1020.0, 1060.0, 1108.0, 1200.0)] == [2, 0, 0, 2, 1]
    assert found.points[-1][1] == 1
    assert Words(places.words(1)).poll().rows == 2


def test_a_report_does_not_tell_the_password_of_the_database(tmp_path: Path) -> None:
    """Goal: a report can be passed on. Method: a database that needs a password."""
    database = "postgresql+psycopg://ann:s3cret@db.example/ledger"
    places = Places(tmp_path)
    places.history.mkdir()
    verdict = DemoVerdict(
        directory=tmp_path,
        plan=DemoPlan(kind="payments", events=4, rate=1, topic="foo", query="q", database=database),
        evidence=judge(Story().send(0).ack(0, 0).events),
        checks=(),
        tables=(),
        undecided=None,
        broke_off=None,
    )
    report_demo(places, verdict, f"holdfast demo --database {database}")
    page = places.report.read_text()
    assert "s3cret" not in page
    assert page.count("postgresql+psycopg://ann:***@db.example/ledger") == 2
