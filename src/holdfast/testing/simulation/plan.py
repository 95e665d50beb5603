"""What one run does, as data: the cluster, its topics, its clients, and every fault with its time.

Owns the shape and its JSON. Must never hold anything that is drawn while the run goes on: leaving
out one event must change nothing about the others, or no failing plan could be made smaller.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS
from holdfast.wire.batch_header import NO_TIMESTAMP

VERSION: Final = 1
_DAY_MS: Final = 86_400_000
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"  # KIP-848
AHEAD_MS: Final = 3_000_000  # less than message.timestamp.after.max.ms
_SIZE_MAX: Final = 64  # of a value

# What a producer's record says of the time at which it was made. None: the moment at which its
# batch is, at each attempt. Some ages are due for time retention within a run, some at once.
STAMPS: Final[Mapping[str, Callable[[random.Random, int], int | None]]] = {
    "now": lambda _draw, _now_ms: None,
    "none": lambda _draw, _now_ms: NO_TIMESTAMP,
    "past": lambda draw, now_ms: now_ms - draw.choice((3_000, 20_000, 9 * _DAY_MS)),
    "future": lambda draw, now_ms: now_ms + draw.randrange(AHEAD_MS),
    # What no client means, and some send: the beginning of time, before it, and long after. No 0:
    # beside what is negative a header with 0 says that there is none (`largest_timestamp`).
    "wild": lambda draw, now_ms: draw.choice(
        (None, 1, -2, -(1 << 40), now_ms + 2 * _DAY_MS, (1 << 62) + draw.randrange(1 << 40))
    ),
    "mixed": lambda draw, now_ms: STAMPS[draw.choice(("now", "none", "past", "future"))](
        draw, now_ms
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing done to the cluster; it brings its own end (restart, healing) with it.

    `target` says to whom: "broker:2", "controller:0", "active" (the controller that leads),
    "leader:t0/1", "follower:t0/1" (of a partition, when the time has come), or a topic.
    """

    at: float  # virtual seconds after the workload began
    kind: str  # a key of `faults.KINDS`
    target: str = ""
    other: str = ""
    seconds: float = 0.0
    amount: float = 0.0
    detail: str = ""

    def __str__(self) -> str:
        words = [f"{self.at:7.2f} s", self.kind, self.target, self.other, self.detail]
        if self.amount:
            words.append(f"amount {self.amount:g}")
        if self.seconds:
            words.append(f"for {self.seconds:.2f} s")
        return "  ".join(word for word in words if word)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.configs.get("cleanup.policy", "delete")

    @property
    def expires(self) -> bool:
        return "delete" in self.configs.get("cleanup.policy", "delete")

    @property
    def min_isr(self) -> int:
        return min(int(self.configs["min.insync.replicas"]), self.replication_factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    """One producer, of one partition."""

    topic: str
    partition: int
    acks: int  # -1, 1, 0
    idempotent: bool
    retries: bool  # a plain producer that sends again after doubt
    pause_ms: int  # on average, between an outcome and the next batch
    codec: int = 0
    stamps: str = "now"  # what its records say of their time: a key of `STAMPS`
    size_max: int = _SIZE_MAX  # of its values, beside their names
    oversized: float = 0.0  # how often a value is larger than the topic takes
    pipelined: bool = False  # with others of its topic; else with one batch in flight
    keyed: bool = False  # each record has one of a few keys
    wraps: bool = False  # its sequences begin just before they start over


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderPlan:
    """One consumer of one topic's partitions, from the beginning on, over and over."""

    topic: str
    rack: str = ""
    pause_ms: int = 300
    in_sessions: bool = False  # names what has changed, and is told what has (KIP-227)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """One process with a member of a group. When it dies it comes back, as another member."""

    protocol: str  # CLASSIC or CONSUMER
    instance: str | None = None  # `group.instance.id`
    assignor: str = ""  # what a classic member offers, or another asks for; "": any
    join_version: int | None = None  # of JoinGroup; None: the newest
    pause_ms: int = 1_000  # on average, between two looks at what it owns
    begins_s: float = 0.0
    stays_dead: bool = False  # it dies when all is healed: the others have what it had


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """A group of consumers; all of its members read the same topics.

    They may be of both protocols: then the group changes over, and back.
    """

    name: str
    topics: tuple[str, ...]
    session_ms: int
    rebalance_ms: int
    heartbeat_ms: int
    members: tuple[MemberPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All of one run."""

    seed: int
    brokers: int
    controllers: int
    combined: bool
    elr: bool
    dynamic: bool = False  # voters stand in the metadata log, and come and go
    racks: tuple[str, ...] = ()
    log_directories: int = 1
    config: Mapping[str, str] = field(default_factory=dict)  # of every node
    delay_us: tuple[int, int] = (50, 500)
    provoked: bool = False  # rare branches are taken on purpose
    shuffled: bool = False  # what is due at the same moment runs in a random order
    call_us: float = 0.0  # virtual time that each call of a node takes
    wide: int = 0  # partitions of one more topic, to which little happens
    seconds: float = 100.0  # of faults; healing and checking come on top
    topics: tuple[TopicPlan, ...] = ()
    producers: tuple[ProducerPlan, ...] = ()
    readers: tuple[ReaderPlan, ...] = ()
    groups: tuple[GroupPlan, ...] = ()
    group_topics: tuple[TopicPlan, ...] = ()  # that groups alone read, and that come and go
    broken: tuple[str, ...] = ()  # a minority that stays down while liveness is looked at
    events: tuple[Event, ...] = ()

    @property
    def offsets_topic(self) -> TopicPlan | None:
        """What groups are kept in, as the cluster makes it for itself."""
        if not self.groups:
            return None
        return TopicPlan(
            name=GROUP_OFFSETS,
            partitions=int(self.config["offsets.topic.num.partitions"]),
            replication_factor=int(self.config["offsets.topic.replication.factor"]),
            configs={
                "min.insync.replicas": self.config["min.insync.replicas"],
                "unclean.leader.election.enable": "false",
            },
        )

    def topic(self, name: str) -> TopicPlan:
        """Return a topic by its name. StopIteration: there is none in this plan."""
        known = [*self.topics, *self.group_topics]
        if self.offsets_topic is not None:
            known.append(self.offsets_topic)
        return next(topic for topic in known if topic.name == name)

    def to_json(self) -> str:
        return json.dumps({"version": VERSION, **asdict(self)}, sort_keys=True)

    def describe(self) -> list[str]:
        """Lines for a person: the configuration, then every event."""
        where = "combined" if self.combined else "dedicated"
        return [
            (
                f"seed {self.seed}: {self.brokers} brokers, "
                f"{self.controllers} {where}{', changing' if self.dynamic else ''} controllers,"
                f" eligible leader replicas {'on' if self.elr else 'off'},"
                f" {self.log_directories} log directories, racks {','.join(self.racks) or 'none'},"
                f" {self.call_us:g} us a call, {self.wide} more partitions"
            ),
            "config " + " ".join(f"{key}={value}" for key, value in self.config.items()),
            *(
                f"topic {topic.name}: {topic.partitions} partitions, RF {topic.replication_factor},"
                f" {' '.join(f'{key}={value}' for key, value in topic.configs.items())}"
                for topic in self.topics
            ),
            *(
                f"producer of {one.topic}-{one.partition}: acks={one.acks}"
                f" {'idempotent' if one.idempotent else 'plain'}, every {one.pause_ms} ms,"
                f" stamped {one.stamps}, codec {one.codec}, values up to {one.size_max}"
                f"{', wraps' if one.wraps else ''}{', pipelined' if one.pipelined else ''}"
                for one in self.producers
            ),
            *(
                f"reader of {one.topic} every {one.pause_ms} ms, rack {one.rack or 'none'}"
                f"{', in fetch sessions' if one.in_sessions else ''}"
                for one in self.readers
            ),
            *(
                f"group {group.name} of {', '.join(group.topics)}: session"
                f" {group.session_ms} ms, rebalance {group.rebalance_ms} ms, heartbeat"
                f" {group.heartbeat_ms} ms; members "
                + ", ".join(
                    f"{one.protocol} {one.instance or 'dynamic'} {one.assignor or 'any'} every"
                    f" {one.pause_ms} ms{', dead in the end' if one.stays_dead else ''}"
                    f" from {one.begins_s:g} s"
                    for one in group.members
                )
                for group in self.groups
            ),
            *([f"broken to the end: {', '.join(self.broken)}"] if self.broken else ()),
            *map(str, self.events),
        ]


def plan_from_row(row: dict[str, Any]) -> Plan:
    """Make a plan of decoded JSON. ValueError: a field is wrong."""
    try:
        return Plan(
            **{
                **row,
                "racks": tuple(row["racks"]),
                "delay_us": tuple(row["delay_us"]),
                "broken": tuple(row["broken"]),
                "topics": tuple(TopicPlan(**each) for each in row["topics"]),
                "producers": tuple(ProducerPlan(**each) for each in row["producers"]),
                "readers": tuple(ReaderPlan(**each) for each in row["readers"]),
                "groups": tuple(map(_group_from_row, row.get("groups", ()))),
                "group_topics": tuple(TopicPlan(**each) for each in row.get("group_topics", ())),
                "events": tuple(Event(**each) for each in row["events"]),
            }
        )
    except (TypeError, KeyError) as error:
        raise ValueError(f"not a plan: {error}") from None


def _group_from_row(row: dict[str, Any]) -> GroupPlan:
    members = tuple(MemberPlan(**each) for each in row["members"])
    return GroupPlan(**{**row, "topics": tuple(row["topics"]), "members": members})
