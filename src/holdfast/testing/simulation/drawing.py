"""Draws a whole plan from one seed: the cluster, its clients and a schedule of faults.

Owns the odds. Calm stretches lie between bursts, so that some faults meet a whole cluster, and some
a cluster that has not recovered from the one before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias

from holdfast.testing.simulation.groups.group_odds import with_groups
from holdfast.testing.simulation.plan import Event, Plan, ProducerPlan, ReaderPlan, TopicPlan

FIRST_S: Final = 4.0  # the workload has begun by then
FAULTS_MIN: Final = 3
_IN_SESSIONS: Final = 0.35  # how often a reader reads in fetch sessions
_SLOTS: Final = "max.incremental.fetch.session.cache.slots"
SMALL_BYTES: Final = 700  # what a batch of usual values fits into
_COMPACTED: Final = 0.25  # how often a topic is
CODECS: Final = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Scale:
    """How long and how busy a run is."""

    seconds: float
    pause_ms: tuple[int, int]  # of a producer, on average
    partitions_max: int
    dynamic: float = 0.0  # how often voters come and go
    costly: float = 0.0  # how often calls take time: to count them takes as long as the run
    groups: float = 0.0  # how often there are groups of consumers
    provoked: float = 0.4  # how often rare branches are taken on purpose
    wide: float = 0.0  # how often there are 200 to 2,000 partitions more, and calls take time


FULL: Final = Scale(112.0, (80, 900), 3, dynamic=0.3, costly=0.12, groups=0.33, wide=0.02)
WIDE: Final = replace(FULL, wide=1.0)  # for finding work that grows with what there is
LIGHT: Final = Scale(25.0, (150, 900), 2, costly=0.04, groups=0.33)  # for continuous integration
# For finding what groups may not do.
GROUPS: Final = replace(LIGHT, seconds=50.0, costly=0.0, groups=1.0, provoked=1.0)


def draw_plan(seed: int, scale: Scale = FULL) -> Plan:
    """The same seed and scale give the same plan."""
    draw = random.Random(f"plan/{seed}")
    brokers = draw.choice((3, 3, 3, 4, 5))
    controllers = draw.choice((1, 3, 3, 3, 5))
    combined = controllers <= brokers and draw.random() < 0.25
    dynamic = controllers > 1 and not combined and draw.random() < scale.dynamic
    racks = tuple(draw.choice("ab") for _ in range(brokers)) if draw.random() < 0.5 else ()
    topics = tuple(_draw_topic(draw, f"t{n}", brokers, scale) for n in range(draw.randint(1, 2)))
    producers = tuple(one for topic in topics for one in _draw_producers(draw, topic, scale))
    readers = tuple(
        ReaderPlan(topic=topic.name, rack=draw.choice(racks) if racks else "", pause_ms=pause)
        for topic in topics
        for pause in draw.sample((250, 400, 700), draw.randint(1, 2))
    )
    plan = Plan(
        seed=seed,
        brokers=brokers,
        controllers=controllers,
        combined=combined,
        dynamic=dynamic,
        elr=draw.random() < 0.6,
        racks=racks,
        log_directories=draw.choice((1, 1, 2)),
        config=_draw_config(draw, racks=bool(racks)),
        delay_us=draw.choice(((50, 500), (50, 500), (100, 5_000), (1_000, 20_000))),
        provoked=draw.random() < scale.provoked,
        shuffled=draw.random() < 0.5,
        seconds=scale.seconds,
        topics=topics,
        producers=producers,
        readers=readers,
        # Of voters that come and go any one may be needed.
        broken=_draw_broken(draw, brokers, 1 if dynamic else controllers, combined=combined),
    )
    if draw.random() < scale.costly:
        plan = replace(plan, call_us=1.0)
    if draw.random() < scale.wide:
        plan = _widen(draw, plan)
    events = [*draw_events(draw, plan), *_draw_false_records(plan)]
    plan = replace(plan, events=tuple(sorted(events, key=lambda event: event.at)))
    return with_groups(_with_compaction(_with_sessions(plan)), scale.groups)


def _draw_false_records(plan: Plan) -> Iterator[Event]:
    """Where records are looked at, somebody sends such as must not be taken.

    By chances of its own, so that a seed's other draws are what they were.
    """
    draw = random.Random(f"false records/{plan.seed}")
    for topic in plan.topics:
        if topic.configs.get("record.validation") != "deep":
            continue
        for detail in ("garbage", "count"):
            yield Event(
                at=round(draw.uniform(FIRST_S, plan.seconds - 1), 3),
                kind="hostile_records",
                target=f"leader:{topic.name}/{draw.randrange(topic.partitions)}",
                detail=detail,
                seconds=0.5,
                amount=float(draw.randrange(1 << 20)),
            )


def _with_sessions(plan: Plan) -> Plan:
    """Some readers read in sessions, where there may be room for few: followers come first.

    By chances of their own, so that a seed's other draws are what they were.
    """
    draw = random.Random(f"sessions/{plan.seed}")
    readers = tuple(
        replace(one, in_sessions=True, rack="") if draw.random() < _IN_SESSIONS else one
        for one in plan.readers
    )
    slots = draw.choice(("1", "2", "3", "4", "6", "1000"))
    config = plan.config if readers == plan.readers else {**plan.config, _SLOTS: slots}
    return replace(plan, readers=readers, config=config)


def _widen(draw: random.Random, plan: Plan) -> Plan:
    """So many partitions that what grows with their number shows, and less time."""
    speed = random.Random(f"speed/{plan.seed}")  # of machines that are not all fast, or have others
    return replace(
        plan,
        call_us=speed.choice((1.0, 2.0, 4.0)),
        wide=int(200 * 10 ** draw.random()),
        seconds=min(plan.seconds, 30.0),
        broken=(),
        delay_us=(50, 500),
        provoked=False,
    )


def _draw_topic(draw: random.Random, name: str, brokers: int, scale: Scale) -> TopicPlan:
    factor = draw.choice((1, 2, 3, 3, 3, 3, min(brokers, 5)))
    min_isr = draw.choice((1, 2, 2, 2)) if factor > 1 else 1
    if factor == 2:
        min_isr = draw.choice((1, 1, 2))
    configs = {
        "min.insync.replicas": str(min_isr),
        "unclean.leader.election.enable": "true" if draw.random() < 0.2 else "false",
    }
    if draw.random() < 0.5:
        configs["segment.ms"] = str(draw.choice((700, 2_000, 6_000)))
    if draw.random() < 0.35:
        configs["retention.ms"] = str(draw.choice((5_000, 10_000, 30_000)))
    if draw.random() < 0.25:
        configs["retention.bytes"] = str(draw.choice((500, 3_000)))
    if draw.random() < 0.5:  # entries that matter, and segments of a few batches
        configs["index.interval.bytes"] = str(draw.choice((0, 300)))
        configs["segment.index.bytes"] = str(draw.choice((100, 400, 10_485_760)))
    if draw.random() < 0.3:
        configs["segment.bytes"] = str(1 << 20)  # the least that there may be
    elif draw.random() < 0.3:
        configs["max.message.bytes"] = str(SMALL_BYTES)
    if draw.random() < 0.25:
        configs["compression.type"] = draw.choice(CODECS)
    if draw.random() < 0.2:
        configs["message.timestamp.type"] = "LogAppendTime"
    # By a chance of its own, so that a seed's other draws are what they were.
    if random.Random(f"validation/{name}/{configs}").random() < 0.3:
        configs["record.validation"] = "deep"
    configs |= _draw_bounds(random.Random(f"flush/{name}/{configs}"))
    configs |= _draw_compaction(name, configs)
    partitions = draw.randint(1, scale.partitions_max)
    if draw.random() < 0.2:  # so many that leaders have several
        partitions = 2 * scale.partitions_max
    return TopicPlan(
        name=name,
        partitions=partitions,
        replication_factor=factor,
        configs=configs,
    )


def _draw_bounds(draw: random.Random) -> dict[str, str]:
    """How much of a topic may not be on a disk: mostly all of it."""
    configs = {}
    if draw.random() < 0.2:
        configs["flush.messages"] = str(draw.choice((1, 3, 20)))
    if draw.random() < 0.2:
        configs["flush.ms"] = str(draw.choice((0, 200, 2_000)))
    return configs


def _draw_compaction(name: str, configs: Mapping[str, str]) -> dict[str, str]:
    """Some topics are compacted, in segments of a few batches.

    By a chance of its own, so that a seed's other draws are what they were.
    """
    draw = random.Random(f"compaction/{name}/{configs}")
    if draw.random() >= _COMPACTED:
        return {}
    return {
        "cleanup.policy": draw.choice(("compact", "compact", "compact,delete")),
        "segment.ms": str(draw.choice((700, 2_000))),
        "index.interval.bytes": "0",
        "segment.index.bytes": str(draw.choice((60, 100, 400))),
        "min.cleanable.dirty.ratio": str(draw.choice((0.01, 0.2, 0.5))),
        "delete.retention.ms": str(draw.choice((0, 3_000, 86_400_000))),
        "min.compaction.lag.ms": str(draw.choice((0, 0, 3_000))),
        "max.compaction.lag.ms": str(draw.choice((4_000, 86_400_000))),
        "file.delete.delay.ms": str(draw.choice((0, 1_000))),
    }


def _with_compaction(plan: Plan) -> Plan:
    """Where topics are compacted records have keys, and rounds happen within a run."""
    names = {topic.name for topic in plan.topics if topic.is_compacted}
    if not names:
        return plan
    draw = random.Random(f"cleaner/{plan.seed}")
    config = {
        "log.cleaner.backoff.ms": str(draw.choice((100, 500, 2_000))),
        "log.cleaner.threads": str(draw.choice((1, 1, 3))),
        "log.cleaner.dedupe.buffer.size": "4000000",
        "log.cleaner.io.max.bytes.per.second": str(draw.choice((5_000, 1e9, 1e9))),
    }
    producers = tuple(replace(one, keyed=one.topic in names) for one in plan.producers)
    return replace(plan, config={**plan.config, **config}, producers=producers)


def _draw_producers(draw: random.Random, topic: TopicPlan, scale: Scale) -> Iterator[ProducerPlan]:
    """One for each partition, or one for all that pipelines."""
    pipelined = topic.partitions > scale.partitions_max or draw.random() < 0.15
    first: ProducerPlan | None = None
    for partition in range(topic.partitions):
        one = _draw_producer(draw, topic, partition, scale)
        first = first or one
        if pipelined:
            one = replace(
                one,
                pipelined=True,
                acks=first.acks,
                idempotent=first.idempotent,
                retries=first.retries,
            )
        yield one


def _draw_producer(
    draw: random.Random, topic: TopicPlan, partition: int, scale: Scale
) -> ProducerPlan:
    idempotent = draw.random() < 0.6
    large = 100_000 if "segment.bytes" in topic.configs else 64
    return ProducerPlan(
        topic=topic.name,
        partition=partition,
        acks=-1 if idempotent or draw.random() < 0.6 else draw.choice((1, 1, 0)),
        idempotent=idempotent,
        retries=draw.random() < 0.5,
        pause_ms=draw.randint(*scale.pause_ms),
        codec=draw.choice((0, 0, 0, 1, 2, 3, 4)),
        stamps=draw.choice(("now", "now", "now", "now", "none", "past", "future", "mixed", "wild")),
        size_max=draw.choice((64, 64, 64, 64, 64, 64, 3_000, 6_000, large)),
        oversized=0.05 if "max.message.bytes" in topic.configs else 0.0,
        wraps=idempotent and draw.random() < 0.2,
    )


def _draw_config(draw: random.Random, *, racks: bool) -> dict[str, str]:
    session_ms = draw.choice((2_000, 3_000, 3_000, 6_000))
    config = {
        "broker.session.timeout.ms": session_ms,
        "broker.heartbeat.interval.ms": session_ms // draw.choice((4, 6)),
        "replica.lag.time.max.ms": draw.choice((1_500, 3_000, 5_000, 10_000)),
        "replica.fetch.wait.max.ms": draw.choice((100, 500, 500)),
        "replica.fetch.backoff.ms": draw.choice((100, 1_000)),
        "replica.fetch.max.bytes": draw.choice((1_000, 1 << 20, 1 << 20)),
        "replica.socket.timeout.ms": 3_000,
        "request.timeout.ms": 3_000,
        "replica.high.watermark.checkpoint.interval.ms": draw.choice((300, 5_000, 60_000)),
        "log.flush.offset.checkpoint.interval.ms": draw.choice((500, 5_000, 60_000)),
        "log.flush.start.offset.checkpoint.interval.ms": draw.choice((500, 60_000)),
        "log.retention.check.interval.ms": 3_000,
        "log.initial.task.delay.ms": 1_000,
        "log.segment.delete.delay.ms": draw.choice((0, 1_000)),
        "unclean.leader.election.interval.ms": 5_000,
        "leader.imbalance.check.interval.seconds": draw.choice((5, 300)),
        "metadata.log.max.record.bytes.between.snapshots": draw.choice((1_500, 6_000, 20_971_520)),
        "metadata.log.max.snapshot.interval.ms": draw.choice((0, 15_000)),
        "metadata.log.segment.ms": draw.choice((1_000, 5_000, 604_800_000)),
        "metadata.max.retention.bytes": draw.choice((2_000, 104_857_600)),
        "metadata.max.retention.ms": draw.choice((8_000, 604_800_000)),
        "default.replication.factor": 3,
        "min.insync.replicas": 1,
    }
    texts = {key: str(value) for key, value in config.items()}
    if racks and draw.random() < 0.7:
        texts["replica.selector.class"] = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    return texts


def _draw_broken(
    draw: random.Random, brokers: int, controllers: int, *, combined: bool
) -> tuple[str, ...]:
    """Who stays down while liveness is looked at: mostly nobody, never a majority of voters."""
    if draw.random() >= 0.3:
        return ()
    broken: list[str] = []
    number = draw.randrange(brokers)
    if not (combined and controllers < 3 and number < controllers):
        broken.append(f"broker:{number}")
    if controllers >= 3 and not combined and draw.random() < 0.6:
        broken.append(f"controller:{draw.randrange(controllers)}")
    return tuple(broken)


# -- the schedule ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Dice:
    """What an event's details are drawn with."""

    draw: random.Random
    plan: Plan

    def partition(self) -> str:
        topic = self.draw.choice(self.plan.topics)
        return f"{topic.name}/{self.draw.randrange(topic.partitions)}"

    def broker(self) -> str:
        """A broker by number, or whoever leads or follows a partition when the time comes."""
        chance = self.draw.random()
        if chance < 0.35:
            return f"leader:{self.partition()}"
        if chance < 0.6:
            return f"follower:{self.partition()}"
        return f"broker:{self.draw.randrange(self.plan.brokers)}"

    def controller(self) -> str:
        if self.draw.random() < 0.6:
            return "active"
        return f"controller:{self.draw.randrange(self.plan.controllers)}"

    def node(self) -> str:
        return self.controller() if self.draw.random() < 0.3 else self.broker()

    def seconds(self, low: float, high: float) -> float:
        return round(self.draw.uniform(low, high), 3)


Draw: TypeAlias = Callable[[_Dice], Any]


class _Odds(NamedTuple):
    """One kind of event: how often, and how its fields are drawn, in this order."""

    weight: int
    kind: str
    fields: Mapping[str, Draw]

    def make(self, dice: _Dice, at: float) -> Event:
        drawn = {name: draw(dice) for name, draw in self.fields.items()}
        return Event(**{"at": at, "kind": self.kind, **drawn})


def _seconds(low: float, high: float) -> Draw:
    return lambda dice: dice.seconds(low, high)


def _one_of(*choices: object) -> Draw:
    return lambda dice: dice.draw.choice(choices)


def _perhaps(chance: float, detail: str, otherwise: str = "") -> Draw:
    return lambda dice: detail if dice.draw.random() < chance else otherwise


def _number(bound: int) -> Draw:
    return lambda dice: float(dice.draw.randrange(bound))


def _admin(weight: int, kind: str) -> _Odds:
    fields = {
        "target": lambda dice: dice.draw.choice(dice.plan.topics).name,
        "amount": _number(1 << 20),
        "seconds": _seconds(0.0, 10.0),
    }
    return _Odds(weight, kind, fields)


def _on_node(weight: int, kind: str, low: float, high: float) -> _Odds:
    fields = {
        "target": _Dice.node,
        "seconds": _seconds(low, high),
        "amount": lambda dice: float(dice.draw.randint(-4_000, 4_000)),
    }
    return _Odds(weight, kind, fields)


def _hostile(weight: int, kind: str, *details: str) -> _Odds:
    fields = {
        "target": _Dice.broker,
        "detail": _one_of(*details or ("",)),
        "seconds": _seconds(0.5, 12.0),
        "amount": _number(1 << 20),
    }
    return _Odds(weight, kind, fields)


def _log_directory(dice: _Dice) -> str:
    """One of several, or all."""
    directories = [f"/data{n}" for n in range(dice.plan.log_directories)]
    return dice.draw.choice(["", *directories]) if len(directories) > 1 else ""


_FILES: Final = (".index", ".index", ".log", "-checkpoint", "/quorum-state", ".checkpoint", "/")
_VOTERS: Final = _Odds(
    14, "change_voters", {"target": _Dice.controller, "seconds": _seconds(0.5, 8.0)}
)
_VOTES: Final = (  # of three controllers or more
    _Odds(
        8,
        "lost_vote",
        {"seconds": _seconds(0.5, 3.0), "amount": _number(1 << 20), "detail": _one_of("", "torn")},
    ),
    _Odds(
        6,
        "split_vote",
        {
            "seconds": _seconds(0.5, 3.0),
            "amount": _number(1 << 20),
            "detail": _one_of("", "killed"),
        },
    ),
)
_ODDS: Final = (
    _Odds(14, "kill", {"target": _Dice.node, "seconds": _seconds(0.1, 12.0)}),
    _Odds(
        10,
        "power_cut",
        {
            "detail": _perhaps(0.5, "torn"),
            "target": _Dice.node,
            "seconds": _seconds(0.1, 12.0),
        },
    ),
    _Odds(  # in the middle of a flush, of writing a vote, of a checkpoint, or of any job
        10,
        "power_cut_in_job",
        {
            "target": _Dice.node,
            "other": _one_of(*_FILES),
            "seconds": _seconds(0.1, 12.0),
            "amount": _number(8),
            "detail": _perhaps(0.7, "torn"),
        },
    ),
    _Odds(
        6,
        "kill_after_write",
        {
            "target": lambda dice: f"leader:{dice.partition()}",
            "seconds": lambda dice: dice.seconds(0.0, dice.draw.choice((0.5, 0.5, 5.0))),
            "amount": lambda dice: dice.seconds(0.0, dice.draw.choice((0.0, 0.002, 0.02))),
        },
    ),
    _Odds(6, "stop", {"target": _Dice.node, "seconds": _seconds(0.2, 8.0)}),
    _on_node(8, "pause", 0.2, 12.0),
    _Odds(
        10,
        "cut",
        {
            "detail": _perhaps(0.6, "both ways", "one way"),
            "target": _Dice.node,
            "other": _Dice.node,
            "seconds": _seconds(0.3, 14.0),
        },
    ),
    _on_node(5, "isolate", 0.5, 14.0),
    _Odds(
        6,
        "weather",
        {
            "detail": _one_of("delay", "loss", "reorder", "throttle", "duplicate"),
            "target": lambda dice: dice.node() if dice.draw.random() < 0.7 else "",
            "seconds": _seconds(1.0, 15.0),
            "amount": lambda dice: round(dice.draw.random(), 3),
        },
    ),
    _Odds(
        4,
        "reset",
        {
            "kind": _perhaps(0.6, "reset", "half_open"),
            "target": _Dice.node,
            "other": _Dice.node,
        },
    ),
    # What a quorum must survive: disks that are slow to write a vote, fail or forget.
    _Odds(
        4,
        "controller_slow_disk",
        {"target": _Dice.controller, "seconds": _seconds(1.0, 10.0)},
    ),
    _Odds(
        3,
        "controller_disk_error",
        {
            "detail": _one_of("append", "read", "rename", "open", "full"),
            "target": _Dice.controller,
            "seconds": _seconds(0.5, 4.0),
            "amount": _one_of(1.0, 0.5, 0.1),
        },
    ),
    _Odds(
        4,
        "controller_power_cut",
        {
            "detail": _perhaps(0.4, "torn"),
            "target": _Dice.controller,
            "seconds": _seconds(0.1, 8.0),
        },
    ),
    _hostile(3, "hostile_frames", "truncated", "oversized", "garbage"),
    _hostile(2, "hostile_names", "fetch", "offsets", "metadata"),
    _hostile(2, "hostile_parked"),
    _hostile(3, "slow_client", "slow", "never"),
    _Odds(3, "swizzle", {"seconds": _seconds(3.0, 12.0), "amount": _number(1 << 30)}),
    _Odds(
        4,
        "disk_error",
        {
            "detail": _one_of("append", "sync", "read", "rename", "open", "full"),
            "target": _Dice.node,
            "other": _log_directory,
            "seconds": _seconds(0.5, 6.0),
            "amount": _one_of(1.0, 1.0, 0.2),
        },
    ),
    _on_node(3, "slow_disk", 1.0, 10.0),
    _Odds(2, "wipe", {"target": _Dice.broker, "seconds": _seconds(0.1, 8.0)}),
    _Odds(
        2,
        "power_cut_all",
        {
            "target": _one_of("brokers", "controllers", "all"),
            "seconds": _seconds(0.5, 4.0),
            "detail": _perhaps(0.5, "torn"),
        },
    ),
    _on_node(2, "clock_step", 0.0, 0.0),
    _on_node(2, "clock_drift", 2.0, 20.0),
    _Odds(2, "unregister_broker", {"target": _Dice.broker, "seconds": _seconds(0.5, 8.0)}),
    _VOTERS,
    _admin(3, "create_topic"),
    _admin(2, "delete_topic"),
    _admin(2, "recreate_topic"),
    _admin(3, "recreate_behind_job"),
    _admin(1, "create_partitions"),
    _admin(1, "throttle"),
    _admin(2, "set_min_isr"),
    _admin(2, "set_unclean"),
    _admin(3, "elect_preferred"),
    _admin(1, "elect_unclean"),
    _admin(5, "reassign"),
    _admin(3, "cancel_reassign"),
    _admin(3, "delete_records"),
)


def draw_events(draw: random.Random, plan: Plan) -> tuple[Event, ...]:
    """Bursts of faults with calm between them; at least three events."""
    dice = _Dice(draw, plan)
    table = [each for each in _ODDS if plan.dynamic or each is not _VOTERS]
    table += _VOTES if plan.controllers >= 3 else ()
    events: list[Event] = []
    at = FIRST_S + draw.uniform(0.0, 4.0)
    while at < plan.seconds - 2.0:
        for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 4))):
            odds = draw.choices(table, [each.weight for each in table])[0]
            when = min(at + draw.uniform(0.0, draw.choice((0.2, 2.0, 5.0))), plan.seconds - 1.0)
            events.append(odds.make(dice, round(when, 3)))
        at += draw.uniform(2.0, 18.0)
    while len(events) < FAULTS_MIN:
        events.append(_ODDS[0].make(dice, round(draw.uniform(FIRST_S, plan.seconds - 2.0), 3)))
    return tuple(sorted(events, key=lambda event: event.at))
