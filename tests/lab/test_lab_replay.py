"""Goal: what is left of a simulator's plan is such a plan, and the same faults at the same times.

Method: plans of many seeds, by their properties; a swizzle beside the simulator's own hand; single
events by hand.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.judge.verdict import Anomaly
from holdfast.lab.parameters import LabError
from holdfast.lab.scenario import load_scenario
from holdfast.lab.scenarios.networks import timetable
from holdfast.lab.scenarios.networks.replay import (
    Replay,
    faults_told,
    refuse_too_little,
    tables,
)
from holdfast.lab.steps.replay_plan import (
    AFTER_S,
    CALM_S,
    FIRST_S,
    SESSION,
    SESSION_MS,
    Fault,
    Kind,
    replayable,
    schedule_of,
)
from holdfast.testing.simulation import faults
from holdfast.testing.simulation.conductor import Conductor
from holdfast.testing.simulation.drawing import draw_plan
from holdfast.testing.simulation.plan import Event, Plan, plan_from_row
from mutations import MUTATIONS
from replay_search import PATTERNS, fits
from replays import BUGS

SEEDS = range(40)


def row_of(plan: Plan) -> dict[str, Any]:
    row = json.loads(plan.to_json())
    assert isinstance(row, dict)
    return row


def drawn(seed: int, **changes: object) -> dict[str, Any]:
    return row_of(draw_plan(seed)) | changes


def event(at: float, kind: str, target: str = "broker:0", **values: object) -> dict[str, Any]:
    return asdict(Event(at=at, kind=kind, target=target)) | {"seconds": 1.0} | values


def simulated(row: Mapping[str, Any]) -> Plan:
    """Read a plan as the simulator does."""
    return plan_from_row({key: value for key, value in row.items() if key != "version"})


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_left_is_a_plan_that_both_worlds_can_run(seed: int) -> None:
    row = drawn(seed)
    kept = replayable(row)
    plan = simulated(kept.plan)
    assert {each.kind for each in plan.events} <= {kind.value for kind in Kind}
    assert simulated(replayable(row_of(plan)).plan) == plan
    assert replayable(kept.plan).plan == kept.plan
    assert replayable(kept.plan).left_out == ()
    assert int(plan.config[SESSION]) >= SESSION_MS
    schedule = schedule_of(kept.plan)
    own = schedule.parameters
    assert (own.brokers, own.controllers, own.combined, own.elr) == (
        plan.brokers, plan.controllers, plan.combined, plan.elr
    )  # fmt: skip
    (topic,) = plan.topics
    assert (own.partitions, own.replication_factor, own.min_isr) == (
        topic.partitions, topic.replication_factor, topic.min_isr
    )  # fmt: skip
    assert own.node_config | dict(plan.config) == own.node_config
    assert [each.at_s for each in schedule.faults] == [each.at for each in plan.events]
    assert len(schedule.describe()) == 2 + len(plan.events)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_event_is_left_or_named(seed: int) -> None:
    row = drawn(seed)
    kept = replayable(row)
    kinds = {kind.value for kind in Kind}
    named = [line.partition(" of ")[2].partition(":")[0] for line in kept.left_out]
    assert {each["kind"] for each in row["events"]} - kinds <= set(named)


def test_calm_is_shortened_and_bursts_stay() -> None:
    events = [event(20.0, "kill"), event(20.5, "pause", seconds=8.0), event(60.0, "isolate")]
    config = drawn(1)["config"] | {SESSION: "6000"}
    plan = replayable(drawn(1, events=events, config=config)).plan
    first, second, third = plan["events"]
    assert first["at"] == FIRST_S
    assert second["at"] == FIRST_S + 0.5
    assert third["at"] == FIRST_S + 0.5 + 8.0 + 6.0 + CALM_S
    assert plan["seconds"] == third["at"] + 1.0 + AFTER_S


def test_a_short_session_stretches_every_time() -> None:
    config = drawn(1)["config"] | {SESSION: "2000", "replica.lag.time.max.ms": "5000"}
    events = [event(4.0, "kill", seconds=2.0), event(6.0, "kill", "broker:1")]
    kept = replayable(drawn(1, events=events, config=config))
    assert (
        kept.plan["config"] | {SESSION: "3000", "replica.lag.time.max.ms": "7500"}
        == (kept.plan["config"])
    )
    first, second = kept.plan["events"]
    assert (second["at"] - first["at"], first["seconds"]) == (3.0, 3.0)
    assert any("1.5 times" in line for line in kept.left_out)


def test_a_role_is_one_of_the_topic_that_is_left() -> None:
    row = drawn(2)
    topic = {**row["topics"][0], "name": "t0", "partitions": 2}
    events = [event(4.0, "kill", "leader:t1/3"), event(5.0, "cut", "active", other="follower:t0/1")]
    kept = replayable(
        {**row, "topics": [topic, {**topic, "name": "t1", "partitions": 4}], "events": events}
    )
    kill, cut = schedule_of(kept.plan).faults
    assert (kill.target, cut.target, cut.other) == ("leader:t0/1", "active", "follower:t0/1")
    assert "topics t1" in kept.left_out


def test_what_is_aimed_at_a_moment_is_a_kill_and_says_so() -> None:
    events = [event(4.0, "kill_after_write", "leader:t0/0", amount=0.02), event(5.0, "wipe")]
    kept = replayable(drawn(3, events=events))
    (kill,) = schedule_of(kept.plan).faults
    assert kill.kind is Kind.KILL
    assert any(line.startswith("1 of kill_after_write: ") for line in kept.left_out)
    assert "1 of wipe" in kept.left_out


class Hand:
    """Who cuts and mends what, and when, in place of a conductor's cluster."""

    def __init__(self, names: list[str]) -> None:
        self.names = [*names, "client"]
        self.now_s = 0.0
        self.done: list[tuple[str, str, str, float]] = []

    def cut(self, link: tuple[str, str]) -> None:
        self.done.append(("cut", *link, self.now_s))

    def mend(self, link: tuple[str, str]) -> None:
        self.done.append(("mend", *link, self.now_s))


def test_a_swizzle_cuts_the_links_that_the_simulator_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: the simulator's own hand carries it out, and says what it does."""
    config = drawn(4)["config"] | {SESSION: "3000"}
    row = drawn(4, brokers=3, controllers=2, combined=False, config=config)
    swizzle = event(FIRST_S, "swizzle", "", seconds=9.0, amount=float(123_456_789))
    nodes = [f"broker:{n}" for n in range(3)] + [f"controller:{n}" for n in range(2)]
    hand = Hand(nodes)

    async def slept(seconds: float) -> None:
        hand.now_s += seconds

    monkeypatch.setattr("holdfast.testing.simulation.faults.asyncio.sleep", slept)

    async def carry_out() -> None:
        await faults.KINDS["swizzle"](cast("Conductor", hand), Event(**swizzle))

    asyncio.run(carry_out())
    found = schedule_of(replayable({**row, "events": [swizzle]}).plan).faults
    assert len(found) == 6
    assert {each.one_way for each in found} == {True}
    ours = [("cut", each.target, each.other, each.at_s - FIRST_S) for each in found]
    ours += [
        ("mend", each.target, each.other, each.at_s - FIRST_S + each.seconds) for each in found
    ]
    assert [each[:3] for each in sorted(ours, key=lambda each: each[3])] == [
        each[:3] for each in hand.done
    ]
    for mine, theirs in zip(sorted(ours), sorted(hand.done), strict=True):
        assert mine[3] == pytest.approx(theirs[3], abs=0.01)


@pytest.mark.parametrize("row", [{}, {"topics": []}, {"topics": [{}], "events": 7}])
def test_what_is_no_plan_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(LabError, match="no plan of the simulator"):
        replayable(row)
    with pytest.raises(LabError, match="no schedule for a replay"):
        schedule_of(row)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("at", float("nan")),
        ("at", float("inf")),
        ("at", -1.0),
        ("seconds", 1e9),
        ("seconds", float("nan")),
        ("target", ""),
        ("target", "banana"),
        ("target", "broker:x"),
        ("target", "leader:t0/x"),
        ("other", "controller"),
        ("brokers", 10**9),
        ("brokers", 10**30),
        ("controllers", 0),
        ("elr", "no"),
        ("combined", 0),
        ("partitions", 10**9),
        ("partitions", 0),
        ("config", {SESSION: "0"}),
        ("config", {SESSION: float("inf")}),
        ("producers", []),
    ],
)
def test_nonsense_is_refused_before_a_run_begins(name: str, value: object) -> None:
    """Goal: no run that ends in its midst, or never. Method: a file by hand, one thing wrong."""
    cut = event(4.0, "cut", "broker:0", other="active")
    row = drawn(1, events=[cut])
    schedule_of(replayable(row).plan)
    (where,) = [each for each in (cut, row["topics"][0], row) if name in each][:1]
    where[name] = value
    with pytest.raises(LabError, match=r"no plan of the simulator|no schedule for"):
        schedule_of(replayable(row).plan)


KILLS_AND_CUTS = {Kind.KILL: 1, Kind.CUT: 9, Kind.ISOLATE: 4}


@pytest.mark.parametrize(
    ("planned", "done", "dropped", "words"),
    [
        ({Kind.CUT: 2}, {}, 7, "nothing that the schedule names"),
        ({Kind.KILL: 1}, {Kind.KILL: 0}, None, "nothing that the schedule names"),
        (KILLS_AND_CUTS, KILLS_AND_CUTS, 0, "13 cuts were made, and none has dropped any packet"),
        (KILLS_AND_CUTS, KILLS_AND_CUTS, 1, ""),
        (KILLS_AND_CUTS, KILLS_AND_CUTS, None, ""),
        ({Kind.KILL: 9}, {Kind.KILL: 4}, None, "4 of 9 faults could be done"),
        ({Kind.KILL: 8}, {Kind.KILL: 4}, None, ""),
        ({Kind.KILL: 2, Kind.CUT: 6}, {Kind.CUT: 6}, 9, "none of the schedule's 2 kills"),
        ({Kind.KILL: 6, Kind.PAUSE: 1}, {Kind.KILL: 6}, None, "none of the schedule's 1 pauses"),
        ({Kind.KILL: 6, Kind.STOP: 3}, {Kind.KILL: 6}, None, "none of the schedule's 3 clean"),
        (KILLS_AND_CUTS, {Kind.KILL: 1, Kind.CUT: 0}, None, "1 of 14 faults"),
        ({Kind.KILL: 6, Kind.ISOLATE: 3}, {Kind.KILL: 6}, 0, "none of the schedule's 3 cuts"),
        ({Kind.CUT: 2, Kind.ISOLATE: 2}, {Kind.ISOLATE: 2}, 1, ""),
    ],
)
def test_where_too_little_was_done_nothing_is_proven(
    planned: dict[Kind, int], done: dict[Kind, int], dropped: int | None, words: str
) -> None:
    """Goal: what was not done is not kept. Seen to pass as kept: 4 of 8 faults, and no kill."""
    with pytest.raises(LabError, match=words) if words else nullcontext():
        refuse_too_little(planned, done, dropped)


def test_what_comes_when_it_was_to_be_over_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a cut that held for no moment was not made, and what held is told as long as it did.

    Method: a clock by hand. To cut takes three seconds, as on a machine with too much to do.
    """
    clock = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr(timetable, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    told: list[str] = []

    def waits(seconds: float) -> None:
        clock.now_s += seconds

    def cuts(a: str, b: str, *_: object, **__: object) -> None:
        told.append(f"cut {a} {b}")
        sides.latest = f"{a} {b}"
        waits(3.0)

    run: Any = SimpleNamespace(
        steady_view=waits, cluster=SimpleNamespace(broker_ids=[0, 1, 2], controller_ids=[100])
    )
    sides: Any = SimpleNamespace(
        cut=cuts,
        end=lambda fault: told.append(f"end {fault}"),
        has_places=True,
        dropped_by_link=lambda: {("0", "1"): len(told), ("0", "100"): 7},
        links_of=lambda fault: {tuple(fault.split()[:2])},
    )
    replay = Replay(run, sides)
    between = partial(Fault, kind=Kind.CUT, target="broker:0")
    replay.play(
        [
            between(at_s=1.0, seconds=10.0, other="broker:1"),
            between(at_s=2.0, seconds=1.5, other="broker:2"),
            between(at_s=3.0, seconds=1.5, other="controller:0"),
        ]
    )
    assert told == ["cut 0 1", "cut 0 100", "end 0 100", "end 0 1"]
    assert (replay.done[Kind.CUT], replay.passed_over[Kind.CUT]) == (2, 1)
    assert [row[:3] for row in replay.rows] == [
        ["1.0", "0.0", "7.0"],
        ["2.0", "2.0", "-"],
        ["3.0", "1.0", "0.0"],
    ]
    assert [row[-1] for row in replay.rows] == ["done", "passed over", "done"]
    assert [row[5:] for row in replay.rows] == [
        ["3", "done"],
        ["-", "passed over"],
        ["0", "done"],
    ]
    assert replay.words(3) == (
        "2 of 3 faults done, 1 passed over, 1 of 2 cuts have dropped no packet"
    )
    planned: Any = SimpleNamespace(seed=1)
    assert faults_told(tables(replay, planned, 3)) == (2, 1)
    assert faults_told(tables(replay, planned, 3)[1:]) is None


def test_the_scenario_s_control_breaks_what_a_plan_promises() -> None:
    scenario = load_scenario("replay")
    main, control = scenario.parts
    plans = [replayable(drawn(seed)).plan for seed in SEEDS]
    bases = [schedule_of(plan).parameters for plan in plans]
    promised = [base for base in bases if Anomaly.LOST in base.promise.forbids]
    assert promised
    assert len(promised) < len(bases)
    for base in promised:
        assert main.parameters(base) == base
        assert control.parameters(base).acks == "1"


def test_bugs_that_the_lab_must_name_are_there_and_have_a_pattern() -> None:
    assert BUGS.keys() <= {mutation.name for mutation in MUTATIONS}
    assert set(BUGS.values()) <= PATTERNS.keys()


def test_a_pattern_is_some_of_a_plan_s_events() -> None:
    found = dict.fromkeys(PATTERNS, 0)
    for seed in range(100):
        row = replayable(drawn(seed)).plan
        if not fits(row):
            continue
        for name, pattern in PATTERNS.items():
            for events in pattern(row):
                assert events
                assert all(each in row["events"] for each in events)
                found[name] += 1
    assert min(found["any"], found["cut"], found["brief"]) > 0, found
