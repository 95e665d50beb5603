"""What the records of one partition of `__consumer_offsets` say, by a reader of its own.

Owns what each record means, and no rule: what must hold of it is for others. It shares the codec
with the nodes, and nothing of what they make of the records.

Rules: group-records.md#frame, committed-offsets.md#what-is-kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from holdfast.wire.batch import read_records
from holdfast.wire.groups.consumer_protocol import decode_assignment
from holdfast.wire.records.group_records import decode_key, decode_value
from holdfast.wire.records.group_tables import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    GroupKey,
    GroupMetadataKey,
    GroupValue,
    OffsetCommitKey,
)

Fact: TypeAlias = tuple[str, ...] | tuple[str, str, str, int]
"""What something is known of; its first word says what kind that is."""
Named: TypeAlias = frozenset[tuple[str, int]]
"""Partitions, by the names of their topics."""
Held: TypeAlias = frozenset[tuple[bytes, int]]
"""The same by their ids."""
Epochs: TypeAlias = Mapping[tuple[bytes, int], int]
"""An epoch for each."""

_JOINS = 0  # the epoch of a member that has just taken the place of a static one
NO_EPOCH = -1  # of a member of which the log says only that it is there


class Committed(NamedTuple):
    """Where a group goes on in a partition."""

    offset: int
    metadata: str
    topic_id: bytes


class ClassicMember(NamedTuple):
    instance: str | None
    assigned: Named


class ClassicGroup(NamedTuple):
    generation: int
    members: Mapping[str, ClassicMember]


class Member(NamedTuple):
    """One of KIP-848, as the log has it.

    `since`: in which epoch it got each partition, by what it was recorded to have before; `told`:
    the same, as the last record says.
    """

    epoch: int
    assigned: Held
    pending: Held  # what it has yet to give up
    instance: str | None
    since: Epochs
    told: Epochs

    @property
    def has(self) -> Held:
        return self.assigned | self.pending

    def may_commit(self, partition: tuple[bytes, int], epoch: int) -> bool:
        """Whether a commit in this epoch is its own: nobody else can have had that since."""
        if epoch >= self.epoch:
            return epoch == self.epoch
        return partition in self.since and self.since[partition] <= epoch


def offset_of(group: str, topic: str, partition: int) -> Fact:
    return "offset", group, topic, partition


def classic_of(group: str) -> Fact:
    return "classic", group


def epoch_of(group: str) -> Fact:
    return "epoch", group


def member_of(group: str, member: str) -> Fact:
    return "member", group, member


def records_in(batch: bytes | memoryview) -> Iterator[tuple[GroupKey, GroupValue | None]]:
    """Read one batch. WireError: it can't be read."""
    for record in read_records(batch):
        key = decode_key(record.key or b"")
        yield key, None if record.value is None else decode_value(key, record.value)


class ShardState:
    """All that is so, up to the last record that was taken in."""

    def __init__(self) -> None:
        self.facts: dict[Fact, Any] = {}
        self.members: dict[str, dict[str, Member]] = {}  # of KIP-848, by group
        self._left: dict[str, dict[tuple[bytes, int], int]] = {}  # what was had before, and since

    def apply(self, key: GroupKey, value: Any) -> Fact | None:
        """Make true what a record says; return what that is about. None: nothing we look at."""
        fact: Fact | None = None
        found: Any = None
        if isinstance(key, OffsetCommitKey):
            fact = offset_of(key.group, key.topic, key.partition)
            if value is not None:
                found = Committed(value.offset, value.metadata, bytes(value.topic_id))
        elif isinstance(key, GroupMetadataKey):
            fact = classic_of(key.group)
            found = None if value is None else _classic(value)
        elif isinstance(key, ConsumerGroupMetadataKey):
            fact = epoch_of(key.group_id)
            found = None if value is None else value.epoch
        elif isinstance(key, ConsumerGroupMemberMetadataKey):
            fact = member_of(key.group_id, key.member_id)
            if value is not None:
                before = self.facts.get(fact) or _NOBODY
                found = before._replace(instance=value.instance_id)
            self._enter(key.group_id, key.member_id, found)
        elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            fact = member_of(key.group_id, key.member_id)
            found = self._current(key.group_id, self.facts.get(fact), value)
            self._enter(key.group_id, key.member_id, found)
        if fact is None:
            return None
        if found is None:
            self.facts.pop(fact, None)
        else:
            self.facts[fact] = found
        return fact

    def _enter(self, group: str, member: str, found: Member | None) -> None:
        members = self.members.setdefault(group, {})
        if found is None:
            members.pop(member, None)
        else:
            members[member] = found

    def _current(self, group: str, before: Member | None, value: Any) -> Member | None:
        """Return a member after a record of what it has; None: it is not there."""
        if value is None:
            if before is None:
                return None
            self._left.setdefault(group, {}).update(before.since)
            return _NOBODY._replace(instance=before.instance)
        before = before or _NOBODY
        assigned = held(value.assigned_partitions)
        pending = held(value.partitions_pending_revocation)
        epoch = value.member_epoch
        since = {each: before.since.get(each, epoch) for each in pending}
        # What it had to give up and has again it got anew.
        since |= {each: before.since[each] for each in assigned & before.assigned}
        for each in assigned - before.assigned:
            since[each] = epoch
            if epoch == _JOINS:
                since[each] = self._left.get(group, {}).get(each, epoch)
        told = epochs_told(value.assigned_partitions)
        told |= epochs_told(value.partitions_pending_revocation)
        return Member(epoch, assigned, pending, before.instance, since, told)

    def offsets(self) -> dict[Fact, int]:
        """Return what is committed, and nothing else."""
        return {fact: each.offset for fact, each in self.facts.items() if fact[0] == "offset"}


_NOBODY = Member(NO_EPOCH, frozenset(), frozenset(), None, {}, {})


def epochs_told(topics: Any) -> dict[tuple[bytes, int], int]:
    """Return the epochs that a record has beside partitions; of some of them, if there are less."""
    return {
        (bytes(each.topic_id), n): epoch
        for each in topics
        for n, epoch in zip(each.partitions, each.assignment_epochs or (), strict=False)
    }


def held(topics: Any) -> Held:
    """Return what a list of topics has, as messages and records write it."""
    return frozenset((bytes(each.topic_id), n) for each in topics for n in each.partitions)


def _classic(value: Any) -> ClassicGroup:
    members = {
        each.member_id: ClassicMember(each.group_instance_id, named(each.assignment))
        for each in value.members
    }
    return ClassicGroup(value.generation, members)


def named(assignment: bytes | memoryview) -> Named:
    """Return what a leader assigned. WireError: it is damaged."""
    if not assignment:
        return frozenset()
    assigned = decode_assignment(assignment).assigned_partitions
    return frozenset((topic.topic, n) for topic in assigned for n in topic.partitions)
