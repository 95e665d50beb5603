"""Goal: whatever brokers do, and in whatever order, no decision breaks what keeps records safe.

Method: random lives of a cluster, with and without eligible leader replicas; after every batch of
records the invariants are asked of every partition. Unclean election is off: whoever leads was in
the ISR before, or eligible, or is marked as what may have lost.
Rules: replication.md#invariants, elections.md#order, elections.md#eligible-leader-replicas.

In the lives with eligible replicas a model of the logs goes along: what is committed, by the
leader's rule (all of the ISR have it, and the ISR is not short), and how far each replica has got.
Whoever is elected without being marked has all that was committed. Seen to fail: without `lost` in
`brokers.register`, without clearing when min.insync.replicas changes, and with `_eligible` not
asking whether the ISR is short.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.core.control_kit import Cluster

from holdfast.core.controller.asked_elections import elect_leaders
from holdfast.core.controller.broker_sessions import expire_sessions
from holdfast.core.controller.config_changes import incremental_alter_configs
from holdfast.core.controller.decisions import Decision
from holdfast.core.controller.elections import balance, elect_leaderless
from holdfast.core.metadata.image import NO_LEADER, Partition, RecoveryState
from holdfast.wire.messages.elect_leaders import ElectLeadersRequest
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

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


class Eligible(RuleBasedStateMachine):
    """Lives with eligible leader replicas, and how far each replica's log has got in them."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(elr=True, min_insync_replicas=2).start(0, 1, 2, 3)
        self.cluster.create("t", *PARTITIONS)
        self.before: list[Partition] = list(self.cluster.state.image.partitions())
        self.ends = [dict.fromkeys(replicas, 0) for replicas in PARTITIONS]
        self.committed = [0] * len(PARTITIONS)

    @rule(node=NODES)
    def die(self, node: int) -> None:
        """A power cut: of what it had written only a part is on its disk."""
        if node in self.cluster.alive:
            self.cluster.die(node)
            for ends in self.ends:
                if node in ends:
                    ends[node] //= 2

    @rule(node=NODES)
    def leave(self, node: int) -> None:
        if node not in self.cluster.alive:
            return
        if self.cluster.beat(node, want_shut_down=True).should_shut_down:
            del self.cluster.alive[node]
            self.cluster.clean[node] = self.cluster.epoch(node)
        self.check()

    @rule(node=NODES)
    def start(self, node: int) -> None:
        if node in self.cluster.alive:
            return
        self.cluster.incarnations[node] += 1
        proof = self.cluster.clean.get(node, -1)
        if self.cluster.register(node, previous_broker_epoch=proof).error_code == 0:
            self.cluster.alive[node] = None
            self.cluster.clean.pop(node, None)
        else:
            self.cluster.incarnations[node] -= 1
        self.check()

    @rule(milliseconds=st.sampled_from([1, 500, 1500, 3500]))
    def pass_time(self, milliseconds: int) -> None:
        until = self.cluster.now_ms + milliseconds
        while self.cluster.now_ms < until:
            self.cluster.now_ms = min(until, self.cluster.now_ms + 500)
            for node in self.cluster.alive:
                self.cluster.beat(node)
                self.check()
            while (decision := expire_sessions(self.cluster.state, self.cluster.now_ms)).records:
                self.cluster.apply(decision)
                self.check()

    @rule(index=NODES, count=st.integers(1, 4))
    def write(self, index: int, count: int) -> None:
        """The leader appends; nobody has it yet."""
        partition = self.cluster.partition("t", index)
        if partition.leader in self.cluster.alive:
            self.ends[index][partition.leader] += count

    @rule(index=NODES, node=NODES)
    def fetch(self, index: int, node: int) -> None:
        """A follower gets all that its leader has; what can be committed then, is."""
        partition = self.cluster.partition("t", index)
        leader, ends = partition.leader, self.ends[index]
        if node not in ends or not {node, leader} <= self.cluster.alive.keys():
            return
        ends[node] = ends[leader]
        self.commit(index)

    def commit(self, index: int) -> None:
        partition = self.cluster.partition("t", index)
        leads = partition.leader in self.cluster.alive
        least = min(self.cluster.state.min_insync("t"), len(partition.replicas))
        if leads and len(partition.isr) >= least:
            high_watermark = min(self.ends[index][node] for node in partition.isr)
            self.committed[index] = max(self.committed[index], high_watermark)

    @rule(index=NODES, node=NODES)
    def join(self, index: int, node: int) -> None:
        partition = self.cluster.partition("t", index)
        ends = self.ends[index]
        if partition.leader not in self.cluster.alive or node not in ends:
            return
        if node in self.cluster.alive and ends[node] >= self.committed[index]:
            isr = list(dict.fromkeys([*partition.isr, node]))
            self.cluster.alter(partition.leader, "t", index, isr, leader_recovery_state=0)
            self.commit(index)

    @rule(index=NODES, node=NODES)
    def shrink(self, index: int, node: int) -> None:
        partition = self.cluster.partition("t", index)
        if partition.leader in self.cluster.alive and node != partition.leader:
            isr = [each for each in partition.isr if each != node]
            self.cluster.alter(partition.leader, "t", index, isr, leader_recovery_state=0)
            self.commit(index)

    @rule(index=NODES, dying=st.permutations(range(4)), back=st.permutations(range(4)))
    def all_lose_power(self, index: int, dying: list[int], back: list[int]) -> None:
        """One after the other, with everything committed; and back in another order."""
        self.write(index, 4)
        for node in self.cluster.partition("t", index).isr:
            self.fetch(index, node)
        for node in dying:
            self.die(node)
            self.pass_time(3500)
        for node in back:
            self.start(node)
            self.pass_time(500)

    @rule(value=st.sampled_from(["1", "2", "3"]))
    def configure(self, value: str) -> None:
        change = AlterableConfig(name="min.insync.replicas", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        self.cluster.decide(incremental_alter_configs, request)
        for index in range(len(PARTITIONS)):
            self.commit(index)

    @rule()
    def prefer(self) -> None:
        self.cluster.decide(elect_leaders, ElectLeadersRequest(topic_partitions=None))

    @rule()
    def another_controller(self) -> None:
        self.cluster.state.activate(self.cluster.now_ms)

    @invariant()
    def check(self) -> None:
        image = self.cluster.state.image
        least = min(self.cluster.state.min_insync("t"), 3)
        now = list(image.partitions())
        for index, (was, is_) in enumerate(zip(self.before, now, strict=True)):
            assert not set(is_.isr) & set(is_.elr), "eligible although in sync"
            assert {*is_.isr, *is_.elr} <= set(is_.replicas)
            assert len(is_.isr) < least or not is_.elr, "eligible although the ISR is not short"
            assert all(image.is_active(node) for node in is_.isr), "somebody in the ISR is away"
            if is_.leader == NO_LEADER:
                assert not is_.isr
                assert not any(image.is_active(node) for node in is_.elr), "somebody could lead"
                continue
            assert is_.leader in is_.isr
            assert not is_.last_known_elr
            if is_.leader != was.leader:
                assert is_.leader_epoch > was.leader_epoch
                self.elected(index, was, is_)
        self.before = now

    def elected(self, index: int, was: Partition, now: Partition) -> None:
        ends = self.ends[index]
        if now.leader in self.cluster.alive and now.recovery_state is RecoveryState.RECOVERED:
            assert now.leader in {*was.isr, *was.elr}
            assert ends[now.leader] >= self.committed[index], "it lacks what was committed"
        if now.recovery_state is RecoveryState.RECOVERING:
            assert was.last_known_elr == (now.leader,)
            self.committed[index] = min(self.committed[index], ends[now.leader])
        for node in ends:  # the others truncate to what their leader has
            ends[node] = min(ends[node], ends[now.leader])


Eligible.TestCase.settings = Life.TestCase.settings
TestEligible = pytest.mark.slow(Eligible.TestCase)
