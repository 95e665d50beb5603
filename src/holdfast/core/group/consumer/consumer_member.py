"""One member of a group of the consumer protocol, as the log tells of it. A value, never changed.

Two records make a member: what it told of itself, and what it has on its way to its target.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, Protocol

from holdfast.core.group.assignors import NOTHING, Partitions, nothing
from holdfast.core.group.consumer.consumer_epochs import (
    NO_EPOCHS,
    AssignmentEpochs,
    after_move,
    epochs_of,
    no_epochs,
    only_of,
)
from holdfast.core.log_machine import KeyedRecord
from holdfast.wire.records.group_tables import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
)

JOIN_EPOCH: Final = 0
# Of a group before its first member, and of its targets: so nobody who has joined is told 0.
FIRST_EPOCH: Final = 1
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2  # a static member that means to come back
NO_EPOCH: Final = -1

MEMBER_OVERHEAD_BYTES: Final = 2048
NAME_OVERHEAD_BYTES: Final = 64


class MemberState(IntEnum):
    """Where a member is on its way to its target.

    UNREVOKED_PARTITIONS: it has to give up some first. UNRELEASED_PARTITIONS: others still have
    some that it shall get. UNKNOWN: a newer broker wrote a state that isn't known here.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, value: int) -> MemberState:
        return cls(value) if value in cls._value2member_map_ else cls.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member. `topics` are the names it subscribes to, sorted, each there once.

    `since` has the epoch in which it got each partition, both of what it has and of what it has to
    give up.
    """

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = NO_EPOCH
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assignor: str | None = None
    assigned: Partitions = field(default_factory=nothing)
    revoking: Partitions = field(default_factory=nothing)  # what it has to give up, and has not yet
    since: AssignmentEpochs = field(default_factory=no_epochs)
    classic: ClassicMemberMetadata | None = None  # there for a member of the classic protocol

    def settled(self, epoch: int) -> bool:
        """Whether the member has arrived at its target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def had_since(self, topic_id: bytes, index: int, epoch: int) -> bool:
        """Whether the member has a partition, and has had it all the time since this epoch."""
        since = self.since.get(topic_id, {}).get(index)
        return since is not None and since <= epoch

    def moved_to(self, epoch: int, state: MemberState, assigned: Partitions) -> ConsumerMember:
        """Return the member at another point of its way, with nothing left to give up."""
        return replace(
            self,
            epoch=epoch,
            previous_epoch=self.epoch,
            state=state,
            assigned=assigned,
            revoking=NOTHING,
            since=after_move(self.since, self.assigned, assigned, epoch),
        )

    def reduced_to(self, assigned: Partitions, revoking: Partitions) -> ConsumerMember:
        """Return the member in its old epoch, with a part of what it had."""
        return replace(
            self,
            previous_epoch=self.epoch,
            assigned=assigned,
            revoking=revoking,
            since=only_of(self.since, assigned, revoking),
        )

    def away(self) -> ConsumerMember:
        """Return a static member that means to come back.

        It keeps what it has, so that nobody else gets it; what it had to give up it has given up.
        """
        return replace(
            self,
            epoch=STATIC_LEAVE_EPOCH,
            revoking=NOTHING,
            since=only_of(self.since, self.assigned),
        )

    def left(self, epoch: int) -> ConsumerMember:
        """Return the member once it has gone, or is on its way out, and has nothing any more."""
        return replace(
            self,
            epoch=epoch,
            previous_epoch=epoch,
            assigned=NOTHING,
            revoking=NOTHING,
            since=NO_EPOCHS,
        )

    def told(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """Return the member after a record of what it told of itself."""
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=distinct(value.subscribed_topic_names),
            pattern=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=_classic_of(value),
        )

    def has(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """Return the member after a record of what it has."""
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=partitions_of(value.assigned_partitions),
            revoking=partitions_of(value.partitions_pending_revocation),
            since=epochs_of(
                [*value.assigned_partitions, *value.partitions_pending_revocation],
                value.member_epoch,
            ),
        )


def _classic_of(value: ConsumerGroupMemberMetadataValue) -> ClassicMemberMetadata | None:
    """Return what makes a member one of the classic protocol: it has a protocol at least.

    Rules: group-records.md#classic-metadata.
    """
    classic = value.classic_member_metadata
    return None if classic is None or not classic.supported_protocols else classic


def told_bytes(member: ConsumerMember) -> int:
    """Return what a member takes in memory by what it tells of itself, about."""
    size = MEMBER_OVERHEAD_BYTES + len(member.member_id) + len(member.pattern)
    size += len(member.instance_id or "") + len(member.rack_id or "")
    size += sum(map(len, member.topics)) + NAME_OVERHEAD_BYTES * len(member.topics)
    if member.classic is not None:
        size += sum(
            len(protocol.name) + len(protocol.metadata)
            for protocol in member.classic.supported_protocols
        )
    return size


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Return names sorted, each once."""
    return tuple(sorted(set(names)))


def metadata_record(group_id: str, member: ConsumerMember) -> KeyedRecord:
    """Return the record of what a member told of itself."""
    return (
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topics),
            subscribed_topic_regex=member.pattern,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=member.classic,
        ),
    )


def current_record(group_id: str, member: ConsumerMember) -> KeyedRecord:
    """Return the record of what a member has."""
    return (
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=int(member.state),
            assigned_partitions=_listed(member.assigned, member.since),
            partitions_pending_revocation=_listed(member.revoking, member.since),
        ),
    )


class TopicPartitions(Protocol):
    """A topic's partitions, as each message and record spells them."""

    topic_id: bytes
    partitions: list[int]


def partitions_of(listed: Sequence[TopicPartitions] | None) -> Partitions:
    """Return what a message or a record lists. A topic that is there twice counts once."""
    if not listed:
        return NOTHING
    found: dict[bytes, set[int]] = {}
    for each in listed:
        found.setdefault(bytes(each.topic_id), set()).update(each.partitions)
    return {
        topic_id: tuple(sorted(found[topic_id])) for topic_id in sorted(found) if found[topic_id]
    }


def _listed(partitions: Partitions, since: AssignmentEpochs) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=list(partitions[topic_id]),
            assignment_epochs=[since[topic_id][each] for each in partitions[topic_id]],
        )
        for topic_id in sorted(partitions)
    ]
