"""A shard of groups of the consumer protocol with what stands around it: a log, a clock, topics.

Everything that is appended goes through its bytes, so that a shard that loads the log sees what a
log keeps. Answers are given at once: the log commits what it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from holdfast.core.group.any_group import Caller
from holdfast.core.group.assignors import Partitions
from holdfast.core.group.consumer.consumer_core import ConsumerSurroundings
from holdfast.core.group.consumer.consumer_group import ConsumerGroup
from holdfast.core.group.consumer.consumer_member import partitions_of
from holdfast.core.group.consumer.consumer_patterns import (
    Matches,
    PatternRefresh,
    PatternScan,
    ResolvedPattern,
)
from holdfast.core.group.consumer.consumer_settings import ConsumerGroupSettings
from holdfast.core.group.consumer_shard import ConsumerShard
from holdfast.core.group.group_settings import GroupSettings
from holdfast.core.log_machine import Answer, Decision
from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from holdfast.wire.records.group_records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

Log: TypeAlias = list[tuple[bytes, bytes | None]]

START_MS = 1_000_000
TURNS_MAX = 10_000
VERSION = 1  # of ConsumerGroupHeartbeat
GROUP = "g"


class Topic:
    """A topic that exists. Racks are those of all its partitions."""

    def __init__(self, name: str, topic_id: bytes, partitions: int, racks: Sequence[str]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_count = partitions
        self.rack_names = racks

    def racks(self, index: int) -> Sequence[str]:
        assert index < self.partition_count
        return self.rack_names


class Topics:
    """All topics, at the version that they are at."""

    def __init__(self) -> None:
        self.version = 1
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.made = 0
        self.asked: list[str] = []  # names that a group looked up

    def named(self, name: str) -> Topic | None:
        self.asked.append(name)
        return self.by_name.get(name)

    def with_id(self, topic_id: bytes) -> Topic | None:
        return self.by_id.get(topic_id)

    def create(self, name: str, partitions: int, racks: Sequence[str] = ()) -> Topic:
        self.made += 1
        topic = Topic(name, self.made.to_bytes(16), partitions, racks)
        self.by_name[name] = self.by_id[topic.topic_id] = topic
        self.version += 1
        return topic

    def delete(self, name: str) -> None:
        del self.by_id[self.by_name.pop(name).topic_id]
        self.version += 1


def match_by_prefix(pattern: str) -> Matches | Refusal:
    """Stand for RE2: `abc*` matches what begins with abc, and no other pattern is valid."""
    if not pattern.endswith("*"):
        return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, f"`{pattern}` is no good.")
    return lambda name: name.startswith(pattern[:-1])


class Coordinator:
    """One shard, and who performs what it decides."""

    def __init__(self, **settings: Any) -> None:
        self.topics = Topics()
        self.settings = ConsumerGroupSettings(**settings)
        self.log: Log = []
        self.batches: list[list[Any]] = []  # what was appended, batch by batch
        self.now_ms = START_MS
        self.refuses: ErrorCode | None = None  # what the log says instead of taking records
        self.calls = 0
        self.ids = 0
        self.held: dict[int, Any] = {}  # answers to calls that waited
        self.shard = self.new_shard()

    def new_shard(self) -> ConsumerShard:
        around = ConsumerSurroundings(self.settings, self.topics, self.new_id, match_by_prefix)
        return ConsumerShard(GroupSettings(initial_rebalance_delay_ms=0), around, self.new_id)

    def new_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    # -- the log ---------------------------------------------------------------------------------

    def perform(self, decision: Decision) -> list[Answer]:
        if self.refuses is not None and decision.records:
            return self.shard.refuse(decision, self.refuses)
        if decision.records:
            self.batches.append(list(decision.records))
        records: list[Any] = decision.records
        for key, value in records:
            self.log.append((encode_key(key), None if value is None else encode_value(value)))
        return self.shard.apply(decision)

    def compacted(self, *, tombstones: bool) -> Log:
        """Return the last record of each key, and of what is gone its tombstone, or nothing."""
        last = {key: number for number, (key, _) in enumerate(self.log)}
        return [
            (key, value)
            for number, (key, value) in enumerate(self.log)
            if last[key] == number and (tombstones or value is not None)
        ]

    def loaded(self, log: Log | None = None) -> ConsumerShard:
        """Return a shard that has loaded the log, or another one."""
        shard = self.new_shard()
        for key_bytes, value_bytes in self.log if log is None else log:
            key = decode_key(key_bytes)
            shard.replay(key, None if value_bytes is None else decode_value(key, value_bytes))
        shard.loaded(self.now_ms)
        return shard

    def loaded_group(self, log: Log | None = None) -> ConsumerGroup:
        """Return the group as a shard has it that has loaded the log, or another one."""
        found = self.loaded(log)._groups.get(GROUP)
        assert isinstance(found, ConsumerGroup)
        return found

    def fail_over(self) -> None:
        """Go on with a shard that knows nothing but the log."""
        self.shard = self.loaded()

    # -- time ------------------------------------------------------------------------------------

    def advance(self, milliseconds: int) -> None:
        """Let time pass, and do what is due on the way."""
        end_ms = self.now_ms + milliseconds
        for _ in range(TURNS_MAX):
            if self.shard.deadline_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, self.shard.deadline_ms)
            self.answer(self.perform(self.shard.due(self.now_ms)))
        raise AssertionError("there is always something due")

    # -- requests --------------------------------------------------------------------------------

    def call(self, version: int, client: str = "client") -> Caller:
        self.calls += 1
        return Caller(self.calls, version, client, "/127.0.0.1")

    def answer(self, answers: Iterable[Answer]) -> None:
        self.held.update((answer.call, answer.response) for answer in answers)

    def heartbeat(
        self, member_id: str, epoch: int, *, group: str = GROUP, version: int = VERSION, **told: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; `owned` are the partitions that it says to have, by topic id."""
        owned = told.pop("owned", None)
        listed = None if owned is None else as_listed(owned)
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=epoch, topic_partitions=listed, **told
        )
        caller = self.call(version, member_id)
        decision = self.shard.consumer_heartbeat(caller, request, self.now_ms)
        response: ConsumerGroupHeartbeatResponse = self.only(self.perform(decision), caller)
        return response

    def join(self, member_id: str, *topics: str, **told: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a first heartbeat."""
        told = {"subscribed_topic_names": list(topics), "rebalance_timeout_ms": 60_000, **told}
        return self.heartbeat(member_id, 0, owned={}, **told)

    def only(self, answers: list[Answer], caller: Caller) -> Any:
        """Return the answer to a call; others go to those who wait for them."""
        self.answer(answers)
        return self.held.pop(caller.call)

    # -- topics ----------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, racks: Sequence[str] = ()) -> bytes:
        topic = self.topics.create(name, partitions, racks)
        self.shard.topics_changed(self.topics, created=[name])
        return topic.topic_id

    def grow(self, name: str, partitions: int) -> None:
        self.topics.by_name[name].partition_count = partitions
        self.topics.version += 1
        self.shard.topics_changed(self.topics, changed=[name])

    def delete(self, name: str) -> None:
        self.topics.delete(name)
        self.shard.topics_changed(self.topics, deleted=[name])

    def resolve(self) -> list[PatternRefresh]:
        """Hold patterns to names, for all groups that ask for it. Return what they asked."""
        taken: list[PatternRefresh] = []
        while (refresh := self.shard.take_refresh()) is not None:
            taken.append(refresh)
            resolved = self.scan(refresh)
            self.perform(self.shard.patterns_resolved(refresh, resolved, self.now_ms))
        return taken

    def scan(self, refresh: PatternRefresh) -> dict[str, ResolvedPattern]:
        names: Iterable[str] | None = None
        if refresh.since is not None:
            names = self.shard.around.journal.since(refresh.since)
        scan = PatternScan(
            refresh,
            list(self.topics.by_name) if names is None else names,
            exists=self.topics.by_name.__contains__,
            compiled=match_by_prefix,
        )
        while not scan.advance(2):
            pass
        return scan.outcome(self.topics.version, self.now_ms)

    # -- what is seen ----------------------------------------------------------------------------

    def group(self, group_id: str = GROUP) -> ConsumerGroup:
        found = self.shard._groups.get(group_id)
        assert isinstance(found, ConsumerGroup)
        return found


def as_listed(partitions: Partitions) -> list[ConsumerGroupHeartbeatTopicPartitions]:
    return [
        ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=list(numbers))
        for topic_id, numbers in partitions.items()
    ]


def assigned(response: ConsumerGroupHeartbeatResponse) -> Partitions | None:
    """Return what a heartbeat's answer gives; None when it says nothing of that."""
    if response.assignment is None:
        return None
    return partitions_of(response.assignment.topic_partitions)


def durable(group: ConsumerGroup) -> dict[str, Any]:
    """Return all that the log says of a group."""
    state = group.state
    owners = {
        (topic_id, index): owner
        for topic_id, numbers in state._owners.items()
        for index, owner in numbers.items()
    }
    return {
        "epochs": (state.epoch, state.assignment_epoch, state.metadata_hash),
        "members": state.members,
        "targets": {name: dict(target) for name, target in state.targets.items()},
        "patterns": state.patterns,
        "static": state.static_ids,
        "topics": state.topic_users,
        "arrived": state._arrived,
        "owners": owners,
        "votes": state.assignor_votes,
        "classic": (state.classic_count, state.classic_protocols),
        "pattern users": state.pattern_users,
        "state": state.state,
        "told": state.told_bytes,
    }
