"""Goal: whatever members do, no partition is with two of them, and in the calm all is handed out.

Method: random lives of a group. Members come, beat, revoke late, lose answers, are cut off, leave,
come back as static members do; topics come, grow and go; the log refuses; the coordinator moves.
What a member may be reading is held against what the group takes it to have, after each step. And
what it may be reading it may commit, however far behind its epoch is; what another one has had
since, it may not. At the end all is quiet, and within a few heartbeats all have arrived.

Rules: consumer-groups.md#one-owner, consumer-groups.md#reconciliation, consumer-groups.md#records,
consumer-groups.md#fencing, consumer-groups.md#assignment-epochs.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.group.consumer_client import Consumer, Held
from tests.group.consumer_kit import Coordinator, Log, durable

from holdfast.core.group.any_group import Committer
from holdfast.core.group.consumer.consumer_group import ConsumerGroup
from holdfast.core.group.consumer.consumer_state import GroupState
from holdfast.wire.errors import ErrorCode

WHO = st.integers(0, 3)
SUBSCRIPTIONS = st.sampled_from([["a"], ["a", "b"], ["b", "c"], ["a", "b", "c"], []])
SESSION_MS = 45_000
BEAT_MS = 5_000
COMMIT_VERSION = 9
ROUNDS_MAX = 4  # in which everybody beats once


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator()
        self.coordinator.create("a", 4)
        self.coordinator.create("b", 1)
        self.consumers = [
            Consumer(self.coordinator, "m"),
            Consumer(self.coordinator, "n"),
            Consumer(self.coordinator, "s", instance_id="s"),
            Consumer(self.coordinator, "t", instance_id="t"),
        ]
        self.had: set[tuple[tuple[bytes, int], str, int]] = set()  # by whom, and in which epoch

    # -- what happens ----------------------------------------------------------------------------

    @rule(who=WHO, topics=SUBSCRIPTIONS)
    def start(self, who: int, topics: list[str]) -> None:
        if not self.consumers[who].is_running:
            self.consumers[who].start(*topics)
            self.consumers[who].beat()

    @rule(who=WHO, lost=st.booleans())
    def beat(self, who: int, lost: bool) -> None:
        if self.consumers[who].is_running:
            self.consumers[who].beat(lost=lost)

    @rule(who=WHO)
    def revoke(self, who: int) -> None:
        self.consumers[who].revoke()

    @rule(who=WHO, topics=SUBSCRIPTIONS)
    def subscribe(self, who: int, topics: list[str]) -> None:
        self.consumers[who].topics = topics

    @rule(who=WHO, says_so=st.booleans())
    def stop(self, who: int, says_so: bool) -> None:
        consumer = self.consumers[who]
        if consumer.is_running:
            (consumer.leave if says_so else consumer.die)()

    @rule(milliseconds=st.sampled_from([1_000, 20_000, 50_000]))
    def pass_time(self, milliseconds: int) -> None:
        self.coordinator.advance(milliseconds)
        for consumer in self.consumers:
            if self.coordinator.now_ms - consumer.heard_ms >= SESSION_MS:
                consumer.held = set()  # it knows as well as the coordinator that it is cut off

    @rule(who=WHO)
    def write_in_vain(self, who: int) -> None:
        if self.consumers[who].is_running:
            self.coordinator.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
            self.consumers[who].beat()
            self.coordinator.refuses = None

    @rule()
    def fail_over(self) -> None:
        self.coordinator.fail_over()

    @rule()
    def grow(self) -> None:
        count = self.coordinator.topics.by_name["a"].partition_count
        if count < 8:
            self.coordinator.grow("a", count + 1)

    @rule(name=st.sampled_from(["b", "c"]))
    def create_or_delete(self, name: str) -> None:
        if name in self.coordinator.topics.by_name:
            self.coordinator.delete(name)
        else:
            self.coordinator.create(name, 2)

    # -- what always holds -----------------------------------------------------------------------

    def group(self) -> ConsumerGroup | None:
        found = self.coordinator.shard._groups.get("g")
        return found if isinstance(found, ConsumerGroup) else None

    @invariant()
    def no_partition_is_with_two(self) -> None:
        seen: Held = set()
        for consumer in self.consumers:
            if consumer.is_member:
                assert seen.isdisjoint(consumer.held)
                seen |= consumer.held

    @invariant()
    def the_group_knows_what_members_hold(self) -> None:
        for consumer in self.consumers:
            if consumer.is_member:
                state = self.coordinator.group().state
                for topic_id, index in consumer.held:
                    assert state.owner(topic_id, index) == consumer.member_id

    @invariant()
    def members_commit_what_they_hold(self) -> None:
        for consumer in self.consumers:
            if consumer.is_member:
                self.had.update(
                    (partition, consumer.member_id, consumer.epoch) for partition in consumer.held
                )
                assert self.may_commit(consumer.member_id, consumer.epoch, consumer.held)

    @invariant()
    def nobody_commits_what_another_has_had_since(self) -> None:
        """Of an older epoch; with its own a member may commit anything."""
        group = self.group()
        members = {} if group is None else group.state.members
        last: dict[tuple[bytes, int], dict[str, int]] = {}
        for partition, member_id, epoch in self.had:
            known = last.setdefault(partition, {})
            known[member_id] = max(known.get(member_id, 0), epoch)
        for partition, member_id, epoch in self.had:
            if member_id in members and epoch < members[member_id].epoch:
                others = [each for who, each in last[partition].items() if who != member_id]
                if max(others, default=0) > epoch:
                    assert not self.may_commit(member_id, epoch, {partition})

    def may_commit(self, member_id: str, epoch: int, partitions: Held) -> bool:
        committer = Committer(member_id, epoch)
        code = self.coordinator.group().check_commit(committer, partitions, COMMIT_VERSION, 0)
        return code is ErrorCode.NONE

    @invariant()
    def members_have_what_they_own(self) -> None:
        group = self.group()
        if group is None:
            return
        had = [
            (topic_id, index)
            for member in group.state.members.values()
            for partitions in (member.assigned, member.revoking)
            for topic_id, numbers in partitions.items()
            for index in numbers
        ]
        assert len(had) == len(set(had))
        assert set(had) == durable(group)["owners"].keys()

    @invariant()
    def the_log_has_it_all(self) -> None:
        self.is_said_by(self.coordinator.log)

    @invariant()
    def a_compacted_log_says_the_same(self) -> None:
        self.is_said_by(self.coordinator.compacted(tombstones=True))
        self.is_said_by(self.coordinator.compacted(tombstones=False))

    def is_said_by(self, log: Log) -> None:
        group = self.group()
        if group is not None:
            assert durable(self.coordinator.loaded_group(log)) == durable(group)

    @invariant()
    def epochs_are_in_order(self) -> None:
        group = self.group()
        if group is not None:
            state = group.state
            assert state.assignment_epoch <= state.epoch
            assert all(member.epoch <= state.assignment_epoch for member in state.members.values())

    # -- the calm --------------------------------------------------------------------------------

    @precondition(lambda self: any(consumer.is_running for consumer in self.consumers))
    @rule()
    def calm_down(self) -> None:
        """Those who are cut off lose their sessions; then all arrive within a few heartbeats."""
        for _ in range(2 * SESSION_MS // BEAT_MS):
            self.everybody_beats()
            self.coordinator.advance(BEAT_MS)
        state = self.coordinator.group().state
        for _ in range(ROUNDS_MAX):
            self.everybody_beats()
        assert state.state is GroupState.STABLE
        written = len(self.coordinator.log)
        self.everybody_beats()
        assert len(self.coordinator.log) == written
        self.all_is_handed_out()

    def everybody_beats(self) -> None:
        for consumer in self.consumers:
            if consumer.is_running:
                consumer.beat()
                consumer.revoke()

    def all_is_handed_out(self) -> None:
        running = [consumer for consumer in self.consumers if consumer.is_running]
        wanted = {name for consumer in running for name in consumer.topics}
        held = [each for consumer in running for each in consumer.held]
        topics = self.coordinator.topics.by_name
        assert sorted(held) == sorted(
            (topics[name].topic_id, index)
            for name in wanted
            if name in topics
            for index in range(topics[name].partition_count)
        )


# Falsified examples are shrunk for long: a few hundred steps of each are enough to find out.
TestLife = pytest.mark.slow(Life.TestCase)
TestLife.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
