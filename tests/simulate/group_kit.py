"""A made-up partition of `__consumer_offsets`, and members that say what a test has them say."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from holdfast.clients.group_member.light_classic import ClassicMember
from holdfast.clients.group_member.light_consumer import ConsumerMember
from holdfast.clients.group_member.light_member import Phase
from holdfast.clients.group_member.light_member import Plan as LightPlan
from holdfast.testing.ground.loop import run
from holdfast.testing.simulation.allowances import Forgiveness, Reason
from holdfast.testing.simulation.chain import entries_of
from holdfast.testing.simulation.groups.answers import Question
from holdfast.testing.simulation.groups.attempts import Attempt
from holdfast.testing.simulation.groups.group_oracle import GroupOracle
from holdfast.testing.simulation.groups.views import View
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.metadata import Metadata, State
from holdfast.testing.simulation.plan import CLASSIC, CONSUMER, GroupPlan, MemberPlan, Plan
from holdfast.testing.simulation.truth import PartitionTruth
from holdfast.wire.batch import Record, assign, build_batch
from holdfast.wire.errors import ErrorCode
from holdfast.wire.groups.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerTopicPartitions,
    encode_assignment,
)
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest
from holdfast.wire.records.group_records import encode_key, encode_value
from holdfast.wire.records.group_tables import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    CurrentTopicPartitions,
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

TOPIC_ID = b"t" * 16
OTHER_ID = b"u" * 16
NODE = 1
OTHER_NODE = 2
SESSION_S = 4.0
GROUP = "g"


def told(story: Callable[[Kit], Coroutine[Any, Any, None]]) -> list[str]:
    """Play a story in virtual time; return the invariants that the oracle says are broken."""
    kits: list[Kit] = []

    async def main() -> None:
        kits.append(Kit())
        await story(kits[0])

    run(main)
    return kits[0].told


class Kit:
    """One partition, led by one node, of which all is told by hand."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.texts: list[str] = []
        self.keeps = True  # the oracle has seen what is committed when it was appended
        self.counts: Counter[str] = Counter()
        member = MemberPlan(protocol=CLASSIC)
        self.group = GroupPlan(
            name=GROUP,
            topics=("t",),
            session_ms=int(SESSION_S * 1000),
            rebalance_ms=8_000,
            heartbeat_ms=1_000,
            members=(member,),
        )
        config = {
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "3",
            "min.insync.replicas": "2",
        }
        plan = Plan(
            seed=0, brokers=3, controllers=1, combined=False, elr=False, config=config,
            groups=(self.group,),
        )  # fmt: skip
        self.metadata = Metadata(self._fail, self.counts, {}, lambda *_: None)
        self.make_topic("t", TOPIC_ID)
        self.oracle = GroupOracle(plan, self.metadata, self._fail, self.counts)
        self.truth = PartitionTruth("__consumer_offsets-0", self._fail, self.counts)
        self.oracle.watch(0, self.truth)
        self.elect(NODE, 0)

    def _fail(self, invariant: Invariant, text: str) -> None:
        self.told.append(invariant)
        self.texts.append(text)

    # -- the cluster -----------------------------------------------------------------------------

    def make_topic(self, name: str, topic_id: bytes) -> None:
        self.metadata.topics[topic_id] = name
        self.metadata.partitions[topic_id, 0] = State(
            replicas=(0,), isr=(0,), leader=0, leader_epoch=0, partition_epoch=0
        )

    def delete_topic(self, topic_id: bytes) -> None:
        del self.metadata.partitions[topic_id, 0]
        self.metadata.end += 1
        self.metadata.removed[topic_id] = self.metadata.end

    def elect(self, node: int, epoch: int) -> None:
        self.truth.leaders[epoch] = node
        self.oracle.elected(0, epoch, node)

    def lose(self, offset: int, epoch: int) -> None:
        """A leader of this epoch was chosen without what others wrote from an offset on."""
        self.truth.allowances.given.append(Forgiveness(epoch, offset, Reason.UNCLEAN))
        self.truth.committed.truncate(offset)

    def commit(self, *records: tuple[Any, Any]) -> int:
        """Have a batch appended and committed; return its offset."""
        base = self.truth.committed.end
        made = [
            Record(encode_key(key), None if value is None else encode_value(value), 1)
            for key, value in records
        ]
        self.commit_batch(build_batch(made))
        return base

    def commit_batch(self, batch: bytearray) -> None:
        epoch = max(self.truth.leaders)
        view = memoryview(batch)
        assign(view, self.truth.committed.end, epoch)
        (entry,) = entries_of(view)
        if self.keeps:
            self.oracle.keep(0, view)
        self.truth.committed.append(entry)
        self.truth.commits(entry)

    # -- members ---------------------------------------------------------------------------------

    def classic(self, name: str, *owned: int, epoch: int = 1, instance: str | None = None) -> View:
        """A classic member that is stable, and believes to own these partitions."""
        light = ClassicMember(LightPlan(group_id=GROUP, topics=(), instance_id=instance))
        return self._enter(light, MemberPlan(protocol=CLASSIC), name, owned, epoch)

    def consumer(self, name: str, *owned: int, epoch: int = 1, instance: str | None = None) -> View:
        """One of KIP-848."""
        light = ConsumerMember(LightPlan(group_id=GROUP, topics=(), instance_id=instance), name)
        view = self._enter(light, MemberPlan(protocol=CONSUMER), name, owned, epoch)
        view.told = frozenset((TOPIC_ID, each) for each in owned)
        return view

    def _enter(
        self,
        light: ClassicMember | ConsumerMember,
        plan: MemberPlan,
        name: str,
        owned: tuple[int, ...],
        epoch: int,
    ) -> View:
        light.member_id, light.epoch, light.phase = name, epoch, Phase.STABLE
        light.assignment = frozenset(("t", each) for each in owned)
        view = View(name, self.group, plan, light)
        view.told_well(NODE, now_s(), leads=True)
        self.oracle.enter(view)
        return view

    # -- what is asked ---------------------------------------------------------------------------

    def question(self, asked: Any = None, node: int = NODE) -> Question:
        question = self.oracle.ask(GROUP, asked or FindCoordinatorRequest(), node)
        assert question is not None
        return question

    def attempt(self, name: str, member_id: str, epoch: int, offset: int = 7) -> Attempt:
        """Somebody is about to commit."""
        attempt = Attempt(name, GROUP, "t", 0, offset, member_id, epoch)
        self.oracle.attempt(attempt)
        return attempt

    def outcome(self, attempt: Attempt, code: ErrorCode = ErrorCode.NONE, node: int = NODE) -> None:
        view = self.consumer("nobody else")
        self.oracle.outcome(view, attempt, code, self.question(node=node))
        self.oracle.leave(view)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def offset(value: int | None, name: str = "a", topic_id: bytes = TOPIC_ID) -> tuple[Any, Any]:
    key = OffsetCommitKey(group=GROUP, topic="t", partition=0)
    if value is None:
        return key, None
    return key, OffsetCommitValue(
        offset=value, metadata=name, commit_timestamp=1, topic_id=topic_id
    )


def classic_group(generation: int, **members: tuple[int, ...]) -> tuple[Any, Any]:
    """The record of a generation; of each member, what it was assigned."""
    rows = [
        GroupMetadataMember(
            member_id=name,
            client_id="c",
            client_host="/h",
            rebalance_timeout=1,
            session_timeout=1,
            subscription=b"",
            assignment=assigned(*owned),
        )
        for name, owned in members.items()
    ]
    value = GroupMetadataValue(
        protocol_type="consumer", generation=generation, protocol="range", leader=None, members=rows
    )
    return GroupMetadataKey(group=GROUP), value


def assigned(*owned: int) -> bytes:
    topics = [ConsumerTopicPartitions(topic="t", partitions=list(owned))] if owned else []
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=topics))


def consumer_group(epoch: int) -> tuple[Any, Any]:
    return ConsumerGroupMetadataKey(group_id=GROUP), ConsumerGroupMetadataValue(epoch=epoch)


def consumer_member(
    name: str,
    epoch: int,
    *owned: int,
    pending: tuple[int, ...] = (),
    instance: str | None = None,
    since: Mapping[int, int] | None = None,
) -> list[tuple[Any, Any]]:
    """The records of a member of KIP-848, and of what it has; since this epoch, or since others."""
    epochs = dict.fromkeys((*owned, *pending), epoch) | dict(since or {})
    told = ConsumerGroupMemberMetadataValue(
        instance_id=instance, rack_id=None, client_id="c", client_host="/h",
        subscribed_topic_names=["t"], subscribed_topic_regex="", server_assignor=None,
    )  # fmt: skip
    current = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=0,
        state=0,
        assigned_partitions=_listed(owned, epochs),
        partitions_pending_revocation=_listed(pending, epochs),
    )
    return [
        (ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id=name), told),
        (ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=name), current),
    ]


def gone(name: str) -> list[tuple[Any, Any]]:
    return [
        (ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=name), None),
        (ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id=name), None),
    ]


def _listed(owned: tuple[int, ...], epochs: Mapping[int, int]) -> list[CurrentTopicPartitions]:
    if not owned:
        return []
    since = [epochs[each] for each in owned]
    return [
        CurrentTopicPartitions(topic_id=TOPIC_ID, partitions=list(owned), assignment_epochs=since)
    ]
