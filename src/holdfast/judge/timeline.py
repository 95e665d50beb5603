"""What happened to the cluster: faults, leaders, in-sync replicas, notes, each over time.

One fold over a history. Times are monotonic milliseconds, as in the events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.judge.groups.history import ConsumerFault
from holdfast.judge.history import (
    Event,
    Fault,
    IsrChange,
    LeaderChange,
    LeaderClaim,
    LinkChange,
    Note,
    PartitionEvent,
)

DOWN_ACTIONS = frozenset({"KILL", "STOP", "exit"})  # after TERM a node serves on until it exits
CUT = "CUT"  # a node is cut from others, as the detail says; also of a link
HEAL = "HEAL"  # its links are whole again
WHOLE = "WHOLE"  # of a link with which nothing is wrong
HURTS = (DOWN_ACTIONS | {"TERM", CUT}) - {"exit"}  # done to a node; an exit is what TERM leads to
BACK_ACTIONS = frozenset({"start", "CONT"})  # a node that is down is so no longer
UP_ACTIONS = BACK_ACTIONS | {HEAL}
DISK = "DISK"  # neither: a node that is dead loses a part of what it held

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Span:
    """[begin_ms, end_ms) in which `leader` led; -1 where nobody did or could.

    `epoch` is the one that the metadata named meanwhile.
    """

    begin_ms: float
    end_ms: float
    leader: int
    epoch: int


@dataclass(slots=True, kw_only=True)
class Timeline:
    """The cluster's side of a run. Feed it every event, in order, then ask."""

    begin_ms: float = 0.0
    end_ms: float = 0.0
    begin_wall_ms: int = 0
    faults: list[Fault] = field(default_factory=list)
    consumer_faults: list[ConsumerFault] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    leaders: dict[TopicPartition, list[LeaderChange]] = field(default_factory=dict)
    isrs: dict[TopicPartition, list[IsrChange]] = field(default_factory=dict)
    claims: dict[TopicPartition, list[LeaderClaim]] = field(default_factory=dict)
    links: list[LinkChange] = field(default_factory=list)
    started: bool = False

    def reach(self, event: Event) -> None:
        """Let the run last until this event at least."""
        self.end_ms = max(self.end_ms, event.at_ms)
        if not self.started:
            self.started = True
            self.begin_ms = event.at_ms
            self.begin_wall_ms = event.wall_ms

    def feed(self, event: Event) -> None:
        """Take in what happened to the cluster; anything else is of no interest here."""
        if isinstance(event, Fault):
            self.faults.append(event)
        elif isinstance(event, LeaderChange):
            self.leaders.setdefault((event.topic, event.partition), []).append(event)
        elif isinstance(event, IsrChange):
            self.isrs.setdefault((event.topic, event.partition), []).append(event)
        elif isinstance(event, LeaderClaim):
            self.claims.setdefault((event.topic, event.partition), []).append(event)
        elif isinstance(event, LinkChange):
            self.links.append(event)
        elif isinstance(event, Note):
            self.notes.append(event)
        elif isinstance(event, ConsumerFault):
            self.consumer_faults.append(event)

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        return sorted(self.leaders.keys() | self.isrs.keys())

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Everyone who ever held it: in the order of its first list, then as they came."""
        seen = (node for change in self.isrs.get(partition, ()) for node in change.replicas)
        return tuple(dict.fromkeys(seen))

    def spans(self, partition: TopicPartition) -> list[Span]:
        """Who led, and where nobody could: no leader named, or the named one was down.

        Metadata name a dead leader until its session ends, so the moment of the fault counts, not
        that of the announcement.
        """
        moments: list[tuple[float, int, Event]] = [
            (event.at_ms, order, event)
            for order, event in enumerate([*self.leaders.get(partition, ()), *self.faults])
        ]
        moments.sort(key=lambda moment: moment[:2])
        spans: list[Span] = []
        down: set[int] = set()
        named, named_epoch = -1, -1
        since: float | None = None
        leading, epoch = -1, -1
        for at_ms, _order, event in moments:
            if isinstance(event, LeaderChange):
                named, named_epoch = event.leader, event.epoch
            elif isinstance(event, Fault):
                if event.action in DOWN_ACTIONS:
                    down.add(event.node)
                elif event.action in BACK_ACTIONS:
                    down.discard(event.node)
            now_leading = -1 if named in down else named
            if since is None:
                if isinstance(event, LeaderChange):
                    since, leading, epoch = at_ms, now_leading, named_epoch
                continue
            if now_leading != leading or isinstance(event, LeaderChange):
                if at_ms > since:
                    spans.append(Span(since, at_ms, leading, epoch))
                since, leading, epoch = at_ms, now_leading, named_epoch
        if since is not None and self.end_ms > since:
            spans.append(Span(since, self.end_ms, leading, epoch))
        return spans

    def leaderless(self, partition: TopicPartition) -> list[tuple[float, float]]:
        """Stretches without a working leader, joined where they touch."""
        joined: list[tuple[float, float]] = []
        for span in self.spans(partition):
            if span.leader >= 0:
                continue
            if joined and joined[-1][1] == span.begin_ms:
                joined[-1] = (joined[-1][0], span.end_ms)
            else:
                joined.append((span.begin_ms, span.end_ms))
        return joined

    def claimed(self, partition: TopicPartition, node: int) -> list[Span]:
        """When a broker that was asked alone took itself for the leader."""
        spans: list[Span] = []
        told = [claim for claim in self.claims.get(partition, ()) if claim.node == node]
        for claim, following in zip(told, [*told, None][1:], strict=True):
            if claim.leader == node:
                end_ms = following.at_ms if following is not None else self.end_ms
                spans.append(Span(claim.at_ms, end_ms, node, claim.epoch))
        return spans

    def moments(self) -> list[Event]:
        """Everything that happened to the cluster, for printing: in order of time."""
        changes: list[PartitionEvent] = [
            change
            for table in (self.leaders, self.isrs)
            for each in table.values()
            for change in each[1:]  # the first is the state at the beginning
        ]
        claims = [claim for each in self.claims.values() for claim in each]
        told = [*self.faults, *self.consumer_faults, *self.notes, *changes, *claims]
        return sorted(told, key=lambda event: event.at_ms)
