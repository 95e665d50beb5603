"""Goal: whatever brokers do, and in whatever order, no decision breaks what keeps records safe.

Method: random lives of a cluster; after every batch of records the invariants of KAFKA.md 4.1 and
5.3 are asked of every partition. Unclean election is off: whoever leads was in the ISR before.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.core.control_kit import Cluster

from holdfast.core.elections import balance, elect_leaderless
from holdfast.core.image import NO_LEADER, Partition
from holdfast.core.leadership import elect_leaders
from holdfast.core.state import Decision
from holdfast.wire.messages.elect_leaders import ElectLeadersRequest

NODES = st.integers(0, 3)
PARTITIONS = ([0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 0, 1])


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster().start(0, 1, 2, 3)
        self.cluster.create("t", *PARTITIONS)
        self.before: list[Partition] = list(self.cluster.state.image.partitions())

    @rule(node=NODES)
    def die(self, node: int) -> None:
        if node in self.cluster.alive:
            self.cluster.die(node)

    @rule(milliseconds=st.sampled_from([1, 500, 1500, 3500]))
    def pass_time(self, milliseconds: int) -> None:
        until = self.cluster.now_ms + milliseconds
        while self.cluster.now_ms < until:
            self.cluster.now_ms = min(until, self.cluster.now_ms + 500)
            for node in self.cluster.alive:
                self.cluster.beat(node)
                self.check()
            self.cluster.sweep()

    @rule(node=NODES)
    def start(self, node: int) -> None:
        if node in self.cluster.alive:
            return
        self.cluster.incarnations[node] += 1
        if self.cluster.register(node).error_code == 0:
            self.cluster.alive[node] = None
        else:
            self.cluster.incarnations[node] -= 1

    @rule(node=NODES)
    def wake_a_stopped_one(self, node: int) -> None:
        """SIGCONT: the same incarnation goes on."""
        self.cluster.alive[node] = None
        self.cluster.beat(node)

    @rule(node=NODES)
    def leave(self, node: int) -> None:
        if node in self.cluster.alive:
            answer = self.cluster.beat(node, want_shut_down=True)
            if answer.should_shut_down:
                del self.cluster.alive[node]

    @rule(index=NODES, isr=st.lists(NODES, min_size=1, max_size=3, unique=True), requester=NODES)
    def alter(self, index: int, isr: list[int], requester: int) -> None:
        self.cluster.alter(requester, "t", index, isr)

    @rule(index=NODES, data=st.data())
    def join(self, index: int, data: st.DataObject) -> None:
        """The leader takes a replica in, as it does all the time."""
        partition = self.cluster.partition("t", index)
        node = data.draw(st.sampled_from(partition.replicas))
        isr = list(dict.fromkeys([*partition.isr, node]))
        self.cluster.alter(partition.leader, "t", index, isr)

    @rule()
    def prefer(self) -> None:
        self.cluster.decide(elect_leaders, ElectLeadersRequest(topic_partitions=None))

    @rule()
    def sweep(self) -> None:
        self.cluster.apply(Decision(None, list(elect_leaderless(self.cluster.state))))
        self.check()
        self.cluster.apply(Decision(None, list(balance(self.cluster.state))))

    @rule()
    def another_controller(self) -> None:
        self.cluster.state.activate(self.cluster.now_ms)

    @invariant()
    def check(self) -> None:
        image = self.cluster.state.image
        now = list(image.partitions())
        for was, is_ in zip(self.before, now, strict=True):
            assert is_.isr, "an empty ISR"
            assert set(is_.isr) <= set(is_.replicas)
            assert len(set(is_.isr)) == len(is_.isr)
            assert is_.partition_epoch >= was.partition_epoch
            assert is_.leader_epoch >= was.leader_epoch
            if is_ != was:
                assert is_.partition_epoch > was.partition_epoch
            if is_.leader != was.leader:
                assert is_.leader_epoch > was.leader_epoch
            if is_.leader not in (was.leader, NO_LEADER):
                assert is_.leader in was.isr, "elected from outside the ISR"
            if is_.leader == NO_LEADER:
                assert not any(image.is_active(node) for node in is_.isr), "somebody could lead"
                continue
            assert is_.leader in is_.isr
            for node in is_.isr:
                assert image.is_active(node), "only the last member may be away"
        self.before = now


Life.TestCase.settings = settings(
    derandomize=True,
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.generate],  # shrinking takes minutes; a failure prints its steps anyway
    suppress_health_check=list(HealthCheck),
)
TestLife = pytest.mark.slow(Life.TestCase)
