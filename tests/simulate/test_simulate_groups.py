"""Groups take part in a run: their members are broken in each way, and what is wrong is found.

Goal: a run with groups exercises them, is the same run each time, and fails when a coordinator
tells what is not so, or lets somebody wait for ever. Method: short plans of both protocols with one
event of each kind; then a node, or a member, is spoilt in one place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.clients.group_member.light_cooperative import COOPERATIVE
from holdfast.core.group.classic.classic_group import ClassicGroup
from holdfast.core.group.consumer import consumer_group
from holdfast.core.group.offsets.offset_store import OffsetStore
from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS
from holdfast.testing.simulation.drawing import FULL, GROUPS, LIGHT, draw_plan
from holdfast.testing.simulation.groups.group_faults import GROUP_KINDS
from holdfast.testing.simulation.groups.member_life import Life
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.plan import (
    CLASSIC,
    CONSUMER,
    Event,
    GroupPlan,
    MemberPlan,
    Plan,
    ReaderPlan,
    TopicPlan,
)
from holdfast.testing.simulation.run import run_plan

pytestmark = pytest.mark.slow

SESSION_MS = 3_000


def group(
    name: str, *protocols: str, topic: str = "g", static: bool = False, dies: bool = False
) -> GroupPlan:
    """`dies`: its last member does in the end, and stays dead."""
    members = tuple(
        MemberPlan(
            protocol=CLASSIC if each == COOPERATIVE else each,
            assignor=each if each == COOPERATIVE else "",
            instance=f"{name}-{n}" if static else None,
            pause_ms=300,
            stays_dead=dies and n == len(protocols) - 1,
        )
        for n, each in enumerate(protocols)
    )
    return GroupPlan(
        name=name,
        topics=(topic,),
        session_ms=SESSION_MS,
        rebalance_ms=3_000,
        heartbeat_ms=700,
        members=members,
    )


def plan_of(*groups: GroupPlan, seconds: float = 8.0, events: tuple[Event, ...] = ()) -> Plan:
    """A cluster to which nothing is done but these events."""
    topic = TopicPlan(
        name="t", partitions=2, replication_factor=3, configs={"min.insync.replicas": "2"}
    )
    config = {
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": "3",
        "group.initial.rebalance.delay.ms": "200",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": str(SESSION_MS),
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "700",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "min.insync.replicas": "2",
    }
    return Plan(
        seed=7, brokers=3, controllers=1, combined=False, elr=True, config=config,
        seconds=seconds, topics=(topic,), readers=(ReaderPlan(topic="t"),), groups=groups,
        events=events,
        group_topics=(TopicPlan(name="g", partitions=3, replication_factor=3),),
    )  # fmt: skip


def test_groups_of_each_kind_settle_commit_and_are_described() -> None:
    groups = (
        group("classic", CLASSIC, CLASSIC, dies=True),
        group("cooperative", COOPERATIVE, COOPERATIVE),
        group("consumer", CONSUMER, CONSUMER, static=True, dies=True),
        group("both", CLASSIC, CONSUMER, topic="t"),
    )
    outcome = run_plan(plan_of(*groups))
    assert outcome.violation is None, outcome.violation
    counts = outcome.counts
    assert counts["groups described as they are"] == len(groups)
    assert counts["replicas of groups read at the end"] == 3 * 2
    for name in (
        "classic generations committed",
        "commits acknowledged",
        "committed offsets told",
        "epoch generations committed",
        "offsets told at the end",
        "stray commits",
    ):
        assert counts[name], name
    refused = {name for name in counts if name.startswith("commits refused")}
    assert refused, "a stray commit is refused"


def test_each_kind_of_event_is_carried_out_and_groups_come_back() -> None:
    kinds = [
        Event(at=4.0, kind="member_kill", target="member:0", seconds=1.0, detail="power"),
        Event(at=4.5, kind="member_leave", target="member:1", seconds=1.0),
        Event(at=8.0, kind="member_pause", target="member:2", seconds=5.0),
        Event(
            at=9.0, kind="member_cut", target="member:3", other="all", detail="both", seconds=4.0
        ),
        Event(at=15.0, kind="remake_group_topic", target="g", seconds=1.0),
        Event(at=18.0, kind="delete_group", target="classic"),
        Event(at=18.5, kind="kill", target=f"leader:{GROUP_OFFSETS}/0", seconds=1.0),
        Event(at=21.0, kind="reassign", target=GROUP_OFFSETS, amount=2.0),
        Event(at=22.0, kind="set_min_isr", target=GROUP_OFFSETS, amount=2.0, seconds=1.0),
    ]
    assert {each.kind for each in kinds} >= GROUP_KINDS.keys()
    plan = plan_of(
        group("classic", CLASSIC, CLASSIC),
        group("consumer", CONSUMER, CONSUMER),
        seconds=25.0,
        events=tuple(kinds),
    )
    outcome = run_plan(plan)
    assert outcome.violation is None, outcome.violation
    for each in kinds:
        assert outcome.counts[each.kind], each
    assert outcome.counts["members that left"]
    assert outcome.counts["offsets removed with their topic"]
    assert outcome.counts["groups deleted: NON_EMPTY_GROUP"]


@pytest.mark.parametrize("call_us", [0.0, 1.0])
def test_a_run_with_groups_is_the_same_each_time(call_us: float) -> None:
    drawn = draw_plan(3, GROUPS)
    plan = replace(drawn, seconds=15.0, call_us=call_us, provoked=True)
    first, second = run_plan(plan), run_plan(plan)
    assert first.violation is None, first.violation
    assert (first.digest, first.counts) == (second.digest, second.counts)


def test_some_plans_have_groups_and_all_of_one_scale_do() -> None:
    for scale in (FULL, LIGHT):
        drawn = [draw_plan(seed, scale) for seed in range(300)]
        assert 60 < sum(bool(plan.groups) for plan in drawn) < 140
        assert not any(plan.groups for plan in drawn if plan.wide)
    drawn = [draw_plan(seed, GROUPS) for seed in range(200)]
    assert all(plan.groups for plan in drawn)
    kinds = {
        frozenset(each.protocol for each in one.members) for plan in drawn for one in plan.groups
    }
    assert kinds == {frozenset({CLASSIC}), frozenset({CONSUMER}), frozenset({CLASSIC, CONSUMER})}
    without = replace(FULL, groups=0.0)
    same = [
        replace(plan, config={}, groups=(), group_topics=(), events=())
        for plan in (draw_plan(5, FULL), draw_plan(5, without))
    ]
    assert same[0] == same[1], "a seed's other draws are what they were"


def test_the_topic_of_groups_is_compacted_while_they_go_on() -> None:
    """Else nobody loads what a round has left, and no coordinator moves to it."""
    plan = draw_plan(7107, GROUPS)
    assert plan.config["log.roll.ms"] == "700"
    outcome = run_plan(plan)
    assert outcome.is_clean, outcome.violation
    assert outcome.counts["segments of groups that were compacted"]


# -- what is spoilt ----------------------------------------------------------------------------


def test_who_is_never_served_again_fails_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_life: Life) -> None:
        return

    monkeypatch.setattr(Life, "_commit", nothing)
    outcome = run_plan(plan_of(group("consumer", CONSUMER), seconds=4.0))
    assert outcome.violation is not None
    assert outcome.violation.invariant == Invariant.WELL_AGAIN
    assert "a commit was acknowledged last" in outcome.violation.text


def test_a_member_that_reads_nothing_fails_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Life._read

    async def some(life: Life, place: tuple[str, int]) -> None:
        if place[1]:
            await read(life, place)

    monkeypatch.setattr(Life, "_read", some)
    outcome = run_plan(plan_of(group("consumer", CONSUMER), seconds=4.0))
    assert outcome.violation is not None
    assert outcome.violation.invariant == Invariant.WELL_AGAIN
    assert "has read ('g', 0) last at -1.000 s" in outcome.violation.text


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_a_description_that_is_not_so_is_found(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if protocol == CLASSIC:
        where: Any = ClassicGroup
        name = "describe"
    else:
        where, name = consumer_group, "describe"
    describe = getattr(where, name)

    def one_less(*arguments: Any) -> Any:
        described = describe(*arguments)
        del described.members[:1]
        return described

    monkeypatch.setattr(where, name, one_less)
    outcome = run_plan(plan_of(group("g", protocol, protocol), seconds=4.0))
    assert outcome.violation is not None
    assert outcome.violation.invariant == Invariant.GROUPS_AS_LOGGED
    assert "is described as" in outcome.violation.text


def test_an_offset_that_is_not_told_in_the_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OffsetStore, "topics_of", lambda *_: iter(()))
    outcome = run_plan(plan_of(group("g", CONSUMER), seconds=4.0))
    assert outcome.violation is not None
    assert outcome.violation.invariant == Invariant.GROUPS_AS_LOGGED
    assert "is told" in outcome.violation.text
