"""Goal: while a group changes over, up and back, no partition is with two of its members.

Method: random lives of a group that consumers of both protocols come to and go from. While it is
one of the consumer protocol, what a member may be reading is held against what the group takes it
to have. In the calm it ends as the kind that its members make it, and all is handed out.

Rules: consumer-groups.md#upgrade, consumer-groups.md#downgrade, consumer-groups.md#classic-members.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.group.classic_client import ClassicConsumer
from tests.group.consumer_client import Consumer, Held
from tests.group.consumer_kit import Coordinator, durable

from holdfast.core.group.consumer.consumer_group import ConsumerGroup

WHO = st.integers(0, 3)
SUBSCRIPTIONS = st.sampled_from([["a"], ["a", "b"], ["b"]])
SESSION_MS = 45_000
BEAT_MS = 5_000
ROUNDS = 12  # in which everybody does its next thing: an eager member takes three for one rebalance


class MixedLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator()
        self.coordinator.create("a", 4)
        self.coordinator.create("b", 1)
        self.consumers: list[Consumer | ClassicConsumer] = [
            Consumer(self.coordinator, "m"),
            Consumer(self.coordinator, "n"),
            ClassicConsumer(self.coordinator, "c"),
            ClassicConsumer(self.coordinator, "d"),
        ]

    @rule(who=WHO, topics=SUBSCRIPTIONS)
    def start(self, who: int, topics: list[str]) -> None:
        if not self.consumers[who].is_running:
            self.consumers[who].start(*topics)
            self.consumers[who].beat()

    @rule(who=WHO)
    def beat(self, who: int) -> None:
        if self.consumers[who].is_running:
            self.consumers[who].beat()

    @rule(who=WHO)
    def revoke(self, who: int) -> None:
        self.consumers[who].revoke()

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
                consumer.held = set()

    @rule()
    def grow(self) -> None:
        count = self.coordinator.topics.by_name["a"].partition_count
        if count < 8:
            self.coordinator.grow("a", count + 1)

    # --------------------------------------------------------------------------------------------

    def group(self) -> ConsumerGroup | None:
        found = self.coordinator.shard._groups.get("g")
        return found if isinstance(found, ConsumerGroup) else None

    @invariant()
    def no_partition_is_with_two(self) -> None:
        group = self.group()
        seen: Held = set()
        for consumer in self.consumers:
            if group is not None and consumer.is_member:
                assert seen.isdisjoint(consumer.held)
                seen |= consumer.held
                for topic_id, index in consumer.held:
                    assert group.state.owner(topic_id, index) == consumer.member_id

    @invariant()
    def the_log_has_it_all(self) -> None:
        group = self.group()
        if group is not None:
            assert durable(self.coordinator.loaded_group()) == durable(group)

    @precondition(lambda self: any(consumer.is_running for consumer in self.consumers))
    @rule()
    def calm_down(self) -> None:
        for _ in range(3 * SESSION_MS // BEAT_MS + ROUNDS):
            for consumer in self.consumers:
                if consumer.is_running:
                    consumer.beat()
                    consumer.revoke()
            self.coordinator.advance(BEAT_MS)
        running = [consumer for consumer in self.consumers if consumer.is_running]
        is_mixed = any(isinstance(consumer, Consumer) for consumer in running)
        found = self.coordinator.shard._groups.get("g")
        assert found is not None
        assert (found.kind, found.state_name) == ("consumer" if is_mixed else "classic", "Stable")
        self.all_is_handed_out(running)

    def all_is_handed_out(self, running: list[Consumer | ClassicConsumer]) -> None:
        topics = self.coordinator.topics.by_name
        wanted = {name for consumer in running for name in consumer.topics}
        held = sorted(each for consumer in running for each in consumer.held)
        counts = {name: topics[name].partition_count for name in wanted}
        if any(isinstance(consumer, Consumer) for consumer in running):
            assert held == sorted(
                (topics[name].topic_id, index) for name in wanted for index in range(counts[name])
            )
        else:  # a leader that does not look at topics again when one has grown
            assert len(held) == len(set(held))


TestMixedLife = pytest.mark.slow(MixedLife.TestCase)
TestMixedLife.settings = settings(
    max_examples=50,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
