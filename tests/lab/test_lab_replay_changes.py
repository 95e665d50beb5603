"""Goal: nothing of a plan that a replay has not goes unsaid, nor that it has so many records.

Method: plans of many seeds beside what is left of them, compared here by other means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.lab.parameters import LabError
from holdfast.lab.scenarios.networks import replay
from holdfast.lab.scenarios.networks.replay import DRAWN, SCHEDULE, not_as_drawn
from holdfast.lab.scenarios.networks.replay_changes import UNSAID, changes, rate_of
from holdfast.lab.steps.replay_plan import BATCH, SESSION, Kind, replayable, schedule_of
from holdfast.testing.simulation.drawing import draw_plan
from holdfast.testing.simulation.plan import ProducerPlan, ReaderPlan

SEEDS = range(60)
Row = Mapping[str, Any]


def drawn(seed: int, **values: object) -> dict[str, Any]:
    row = json.loads(draw_plan(seed).to_json())
    assert isinstance(row, dict)
    return row | values


def said(before: Row, after: Row) -> dict[str, str]:
    """Return all that is said, by field of the plan."""
    found: dict[str, str] = {}
    for each in changes(before, after):
        found[each.field] = f"{found.get(each.field, '')}; {' '.join(each.row)}"
    return found


def others(before: Row, after: Row, clients: str) -> Iterator[str]:
    """Yield which fields of a topic's clients are not as they were."""
    topic = after["topics"][0]["name"]
    pairs = zip(
        [each for each in before[clients] if each["topic"] == topic], after[clients], strict=True
    )
    for one, other in pairs:
        for name, value in one.items():
            if name == "retries" and one["idempotent"] and other["idempotent"]:
                continue
            if value != other.get(name, UNSAID.get(name)):
                yield name


@pytest.mark.parametrize("seed", SEEDS)
def test_all_that_is_not_as_it_was_drawn_is_said(seed: int) -> None:
    before = drawn(seed)
    after = replayable(before).plan
    found = said(before, after)
    nested = {"config", "topics", "producers", "readers", "events"}
    for field, value in before.items():
        assert field in nested or value == after[field] or field in found, field
    for key in before["config"].keys() - after["config"].keys():
        assert f"{key}=" in found["config"]
    pace = int(after["config"][SESSION]) / int(before["config"][SESSION])
    assert pace == 1 or f"{pace:g} times as long" in found["config"]
    for topic in before["topics"][1:]:
        assert topic["name"] in found["topics"]
    for key in before["topics"][0]["configs"].keys() - after["topics"][0]["configs"].keys():
        assert f"{key}=" in found["topics"]
    for name in others(before, after, "producers"):
        assert ("milliseconds between" if name == "pause_ms" else name) in found["producers"]
    for name in others(before, after, "readers"):
        assert name in found["readers"]
    for event in before["events"]:
        assert event["kind"] in set(Kind) or f" of {event['kind']}" in found["events"]
        if "t1" in event["target"] and event["kind"] in set(Kind):
            assert event["target"] in found["events"]
    assert changes(after, after) == []


def test_what_nobody_has_thought_of_is_said_by_its_own_name() -> None:
    """Method: a field more in a plan and in its clients, and a setting that is another one."""
    before = drawn(1, moons=["io", "europa"])
    for one in before["producers"]:
        one["mood"] = "grim"
    after = dict(replayable(before).plan)
    after["config"] = {**after["config"], "min.insync.replicas": "7"}
    after["topics"] = [{**after["topics"][0], "partitions": 99}]
    found = said(before, after)
    assert "moons io, europa none" in found["moons"]
    assert "mood of 6" in found["producers"]
    assert "min.insync.replicas 1 7" in found["config"]
    assert "partitions 6 99" in found["topics"]


def test_what_a_plan_does_not_say_is_what_the_simulator_takes_it_for() -> None:
    known = {
        each.name: each.default
        for plan in (ProducerPlan, ReaderPlan)
        for each in fields(plan)
        if each.default is not MISSING and each.name != "pause_ms"
    }
    assert {name: known[name] for name in UNSAID} == UNSAID
    assert known.keys() == UNSAID.keys()


def test_a_terminal_is_told_in_short_and_a_report_in_full() -> None:
    before = drawn(1)
    config, *_ = changes(before, replayable(before).plan)
    assert str(config).startswith("settings of nodes (20): default.replication.factor, log.* (9), ")
    assert str(config).endswith("; here: their defaults")
    assert "metadata.log.segment.ms=" in config.row[1]


@pytest.mark.parametrize("what", [{"seconds": "long"}, {"producers": [{}]}, {"events": 7}])
def test_what_is_no_plan_is_refused(what: dict[str, object]) -> None:
    with pytest.raises(LabError, match="no plan of the simulator"):
        changes(drawn(1) | what, replayable(drawn(1)).plan)


@pytest.mark.parametrize("seed", SEEDS)
def test_there_are_as_many_records_as_the_plan_s_producers_send(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: all clients together send that, how many they are, and partitions and producers.

    Method: the scenario's steps up to its clients, which say at which rates they were started.
    """
    plan = dict(replayable(drawn(seed)).plan)
    plan["producers"] = plan["producers"][: seed % 3 + 1]
    parameters = schedule_of(plan).parameters
    sent = rate_of(plan)
    assert sent == pytest.approx(sum(1000 / one["pause_ms"] for one in plan["producers"]) * BATCH,
                                 abs=0.1)  # fmt: skip
    rates: list[float] = []

    class StartedError(Exception):
        """All clients have been started."""

    def stop(**_: object) -> None:
        raise StartedError

    def raw(*, rate: float, **_: object) -> None:
        rates.append(rate * parameters.partitions)

    def producer(*, rate: float, **_: object) -> None:
        rates.append(rate)

    run: Any = SimpleNamespace(
        history=Path("none", "main", "history"),
        parameters=SimpleNamespace(
            rate=sent, partitions=parameters.partitions, idempotent=parameters.idempotent
        ),
        cluster=SimpleNamespace(broker_ids=[0]),
        tables=[],
        note=lambda _text: None,
        place_topic=lambda: None,
        start_raw=raw,
        start_producer=producer,
        start_readers=stop,
    )
    sides = SimpleNamespace(of=lambda *_: SimpleNamespace(flags={}))
    monkeypatch.setattr(replay, "Sides", lambda _run: sides)
    monkeypatch.setattr(replay, "read_schedule", lambda _path: schedule_of(plan))
    with pytest.raises(StartedError):
        replay.steps(run)
    assert len(rates) == 1 + parameters.idempotent
    assert sum(rates) == pytest.approx(sent)


def test_a_schedule_and_its_plan_are_compared_in_the_folder(tmp_path: Path) -> None:
    before = drawn(1)
    after = replayable(before).plan
    (tmp_path / SCHEDULE).write_text(json.dumps(after))
    assert not_as_drawn(tmp_path) == []
    (tmp_path / DRAWN).write_text(json.dumps(before))
    (found,) = not_as_drawn(tmp_path)
    assert [list(row) for row in found.rows] == [each.row for each in changes(before, after)]
    (tmp_path / DRAWN).write_text("{")
    with pytest.raises(LabError, match=DRAWN):
        not_as_drawn(tmp_path)
