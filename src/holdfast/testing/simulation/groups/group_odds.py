"""Which plans have groups, who is in them, and what is done to them.

Owns the odds, which are of their own: a seed's other draws are what they were without groups.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from holdfast.clients.group_member.light_cooperative import COOPERATIVE
from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS
from holdfast.testing.simulation.plan import (
    CLASSIC,
    CONSUMER,
    Event,
    GroupPlan,
    MemberPlan,
    Plan,
    TopicPlan,
)
from holdfast.wire.groups.group_partition import group_partition

TOPIC: Final = "g"  # that groups alone read
_FIRST_S: Final = 4.0
_ASSIGNORS: Final = {
    CLASSIC: ("range", "roundrobin", COOPERATIVE),
    CONSUMER: ("", "uniform", "range"),
}
_OLD_JOIN: Final = 3  # the last version in which a client is a member before it knows its id
_JOINS_AS_BEFORE: Final = 0.2
_STAYS_DEAD: Final = 0.25  # how often a member does, but for a group's first one
_MIXED: Final = 0.25  # how often a group has members of both protocols


def with_groups(plan: Plan, chance: float) -> Plan:
    """Give some plans a group or two, and events that are about them."""
    draw = random.Random(f"groups/{plan.seed}")
    if plan.wide or draw.random() >= chance:
        return plan
    session_ms = draw.choice((3_000, 4_000, 6_000))
    heartbeat_ms = session_ms // draw.choice((3, 4))
    config = _config(draw, plan, session_ms, heartbeat_ms)
    has_topic = draw.random() < 0.6
    topic = TopicPlan(name=TOPIC, partitions=2, replication_factor=min(3, plan.brokers), configs={})
    topics = [each.name for each in plan.topics]
    groups = tuple(
        _draw_group(draw, f"group-{n}", topics, session_ms, heartbeat_ms, has_topic=has_topic)
        for n in range(draw.choice((1, 1, 2)))
    )
    plan = replace(plan, config=config, groups=groups, group_topics=(topic,) if has_topic else ())
    events = [*plan.events, *_draw_events(draw, plan)]
    return replace(plan, events=tuple(sorted(events, key=lambda event: event.at)))


def _config(draw: random.Random, plan: Plan, session_ms: int, heartbeat_ms: int) -> dict[str, str]:
    config = {
        "offsets.topic.num.partitions": draw.choice((1, 1, 2, 3)),
        "offsets.topic.replication.factor": min(plan.brokers, draw.choice((1, 2, 3, 3, 3, 3))),
        "offsets.commit.timeout.ms": draw.choice((500, 2_000, 5_000)),
        "group.initial.rebalance.delay.ms": draw.choice((0, 300, 1_000)),
        "group.min.session.timeout.ms": 1_000,
        "group.consumer.session.timeout.ms": session_ms,
        "group.consumer.min.session.timeout.ms": 1_000,
        "group.consumer.heartbeat.interval.ms": heartbeat_ms,
        "group.consumer.min.heartbeat.interval.ms": 500,
        "min.insync.replicas": draw.choice((1, 2, 2)),
    }
    config |= _compaction(plan)
    return {**plan.config, **{key: str(value) for key, value in config.items()}}


def _compaction(plan: Plan) -> dict[str, Any]:
    """Have the topic of groups compacted within a run, in most plans; where it is, with rests.

    What is deleted stays so for the whole run: as in Apache Kafka, who was away for longer than
    delete.retention.ms has members and offsets that are gone, and may lead with them.
    """
    draw = random.Random(f"groups/compaction/{plan.seed}")  # its own: see `_draw_compaction`
    config = {
        "log.roll.ms": draw.choice((700, 2_000, 604_800_000)),
        "log.cleaner.min.cleanable.ratio": draw.choice((0.01, 0.2, 0.5)),
        "log.cleaner.backoff.ms": draw.choice((100, 500, 2_000)),
        "log.cleaner.dedupe.buffer.size": 4_000_000,
    }
    return {key: value for key, value in config.items() if key not in plan.config}


def _draw_group(
    draw: random.Random,
    name: str,
    topics: list[str],
    session_ms: int,
    heartbeat_ms: int,
    *,
    has_topic: bool,
) -> GroupPlan:
    protocol = draw.choice((CLASSIC, CONSUMER))
    assignors = {kind: draw.choice(names) for kind, names in _ASSIGNORS.items()}
    static = draw.random() < 0.3
    # A topic that is made anew is another one to one protocol, and the same to the other.
    mixed = not has_topic and draw.random() < _MIXED
    members = tuple(
        MemberPlan(
            protocol=kind,
            instance=f"{name}-{n}" if static and draw.random() < 0.7 else None,
            assignor=assignors[kind],
            join_version=_OLD_JOIN if not static and draw.random() < _JOINS_AS_BEFORE else None,
            pause_ms=draw.choice((500, 900, 1_500)),
            begins_s=round(draw.choice((0.0, 0.0, draw.uniform(0.0, 8.0))), 3),
            stays_dead=n > 0 and draw.random() < _STAYS_DEAD,
        )
        for n in range(draw.choice((1, 2, 2, 3, 3, 4)))
        for kind in (draw.choice((CLASSIC, CONSUMER)) if mixed else protocol,)
    )
    return GroupPlan(
        name=name,
        topics=(
            *([TOPIC] if has_topic else ()),
            *sorted(draw.sample(topics, draw.randint(1, len(topics)))),
        ),
        session_ms=session_ms,
        # Within less, who beats on time can't be told and answer: such a group never settles, as
        # with Apache Kafka.
        rebalance_ms=max(draw.choice((2_000, 4_000, 8_000)), 2 * heartbeat_ms),
        heartbeat_ms=heartbeat_ms,
        members=members,
    )


# -- the schedule ------------------------------------------------------------------------------


class _Dice:
    """What an event's details are drawn with."""

    def __init__(self, draw: random.Random, plan: Plan) -> None:
        self.draw: Final = draw
        self.plan: Final = plan
        self._members: Final = sum(len(group.members) for group in plan.groups)

    def seconds(self, low: float, high: float) -> float:
        return round(self.draw.uniform(low, high), 3)

    def group(self) -> GroupPlan:
        return self.draw.choice(self.plan.groups)

    def member(self) -> str:
        return f"member:{self.draw.randrange(self._members)}"

    def coordinator(self) -> str:
        offsets = self.plan.offsets_topic
        assert offsets is not None, "there are groups"
        partition = group_partition(self.group().name, offsets.partitions)
        return f"leader:{GROUP_OFFSETS}/{partition}"

    def session_s(self) -> float:
        return self.group().session_ms / 1000


class _Odds(NamedTuple):
    weight: int
    make: Callable[[_Dice, float], Event]


def _at_member(
    kind: str, low: float, high: float, *details: str
) -> Callable[[_Dice, float], Event]:
    def make(dice: _Dice, at: float) -> Event:
        return Event(
            at=at,
            kind=kind,
            target=dice.member(),
            seconds=dice.seconds(low, high),
            detail=dice.draw.choice(details or ("",)),
            other=dice.draw.choice(("coordinator", "all")) if kind == "member_cut" else "",
        )

    return make


def _paused(dice: _Dice, at: float) -> Event:
    """For less than a session, or for more."""
    seconds = dice.session_s() * dice.draw.choice((0.5, 1.2, 2.5)) * dice.draw.uniform(0.8, 1.2)
    return Event(at=at, kind="member_pause", target=dice.member(), seconds=round(seconds, 3))


def _at_coordinator(
    kind: str, low: float, high: float, *details: str, other: str = "", amount: float = 0.0
) -> Callable[[_Dice, float], Event]:
    def make(dice: _Dice, at: float) -> Event:
        return Event(
            at=at,
            kind=kind,
            target=dice.coordinator(),
            other=other,
            seconds=dice.seconds(low, high),
            amount=amount and dice.seconds(0.0, amount),
            detail=dice.draw.choice(details or ("",)),
        )

    return make


def _to_offsets(kind: str) -> Callable[[_Dice, float], Event]:
    """What an operator asks of the topic of groups."""

    def make(dice: _Dice, at: float) -> Event:
        return Event(
            at=at,
            kind=kind,
            target=GROUP_OFFSETS,
            amount=float(dice.draw.randrange(1 << 20)),
            seconds=dice.seconds(0.0, 8.0),
        )

    return make


def _delete_group(dice: _Dice, at: float) -> Event:
    return Event(at=at, kind="delete_group", target=dice.group().name)


def _remake_topic(dice: _Dice, at: float) -> Event:
    return Event(at=at, kind="remake_group_topic", target=TOPIC, seconds=dice.seconds(0.0, 6.0))


_ODDS: Final = (
    _Odds(6, _at_member("member_kill", 0.1, 10.0, "", "power")),
    _Odds(6, _paused),
    _Odds(6, _at_member("member_leave", 0.1, 6.0)),
    _Odds(4, _at_member("member_cut", 0.5, 9.0, "asks", "is answered", "both")),
    _Odds(1, _delete_group),
    _Odds(4, _at_coordinator("kill", 0.1, 6.0)),
    _Odds(3, _at_coordinator("power_cut", 0.1, 6.0, "", "torn")),
    _Odds(2, _at_coordinator("power_cut_in_job", 0.1, 6.0, "torn", other=".log")),
    _Odds(4, _at_coordinator("kill_after_write", 0.0, 4.0, amount=0.02)),
    _Odds(3, _at_coordinator("stop", 0.2, 4.0)),
    _Odds(4, _at_coordinator("pause", 0.5, 10.0)),
    _Odds(4, _at_coordinator("isolate", 1.0, 10.0)),
    _Odds(3, _to_offsets("reassign")),
    _Odds(3, _to_offsets("elect_preferred")),
    _Odds(3, _to_offsets("set_min_isr")),
    _Odds(1, _to_offsets("set_unclean")),
    _Odds(1, _to_offsets("elect_unclean")),
)
_REMAKES: Final = _Odds(10, _remake_topic)


def _draw_events(draw: random.Random, plan: Plan) -> Iterator[Event]:
    """One in some ten seconds, so that a group has time to settle between most of them."""
    dice = _Dice(draw, plan)
    table = [*_ODDS, *([_REMAKES] if plan.group_topics else ())]
    at = _FIRST_S + draw.uniform(0.0, 6.0)
    while at < plan.seconds - 2.0:
        odds = draw.choices(table, [each.weight for each in table])[0]
        yield odds.make(dice, round(at, 3))
        at += draw.uniform(0.5, 18.0)
