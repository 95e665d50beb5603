"""What the log says of one group of the consumer protocol, and what follows from that at once.

Owns the meaning of each of its records: `replay` alone changes what is here. It decides nothing.
It refuses nothing either: what compaction has left is taken as it comes, the later record wins.

What is counted (subscribers of a topic, members that have arrived) is kept by what changes, so that
no question needs a look at all members.

Rules: consumer-groups.md#records, consumer-groups.md#one-owner, consumer-groups.md#states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, ClassVar, Final

from holdfast.core.group.assignors import NOTHING, Partitions
from holdfast.core.group.consumer.consumer_member import (
    FIRST_EPOCH,
    LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    partitions_of,
    told_bytes,
)
from holdfast.core.group.consumer.consumer_patterns import ResolvedPattern
from holdfast.core.group.consumer.consumer_topics import TopicIndex
from holdfast.wire.records.group_tables import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from holdfast.wire.schema import Struct

NO_ASSIGNMENT_EPOCH: Final = -1  # the group is about to go


class GroupState(Enum):
    """The states as ListGroups and ConsumerGroupDescribe spell them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerState:
    """One group, up to the last record that was replayed."""

    __slots__ = (
        "_arrived",
        "_index",
        "_owners",
        "_shared_topics",
        "assigned_ms",
        "assignment_epoch",
        "assignor_votes",
        "changes",
        "classic_count",
        "classic_protocols",
        "epoch",
        "group_id",
        "has_old_metadata",
        "is_gone",
        "members",
        "metadata_hash",
        "pattern_users",
        "patterns",
        "static_ids",
        "targets",
        "told_bytes",
        "topic_users",
    )

    def __init__(self, group_id: str, index: TopicIndex) -> None:
        self.group_id = group_id
        self._index = index
        self.changes = 0  # of the topics that are subscribed to, and of whether there are members
        self.is_gone = False  # its last record was replayed
        self._begin()

    def _begin(self) -> None:
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        self.has_old_metadata = False
        # -- what follows from the members
        self.static_ids: dict[str, str] = {}  # instance id to member id
        self.topic_users: Counter[str] = Counter()  # members by name, and patterns that match
        self.pattern_users: Counter[str] = Counter()
        self.assignor_votes: Counter[str] = Counter()
        self.told_bytes = 0
        self.classic_count = 0
        self.classic_protocols: Counter[str] = Counter()
        self._arrived: Counter[int] = Counter()  # members that are stable, by their epoch
        self._owners: dict[bytes, dict[int, str]] = {}
        self._shared_topics: dict[tuple[str, ...], tuple[tuple[str, ...], int]] = {}

    # -- what is asked of it ---------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        if self.is_gone:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if self._arrived[self.assignment_epoch] < len(self.members):
            return GroupState.RECONCILING
        return GroupState.STABLE

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member with this instance id."""
        if instance_id is None:
            return None
        member_id = self.static_ids.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def owner(self, topic_id: bytes, index: int) -> str | None:
        """Return the member that has a partition, or has yet to give it up; None: it is free."""
        return self._owners.get(topic_id, {}).get(index)

    def target_of(self, member: ConsumerMember) -> Partitions:
        """Return what a member shall have: a static one what its instance was to have before."""
        member_id = member.member_id
        if member.instance_id is not None:
            member_id = self.static_ids.get(member.instance_id, member_id)
        return self.targets.get(member_id, NOTHING)

    def topics_of_pattern(self, pattern: str) -> tuple[str, ...]:
        """Return what a pattern matched; nothing while that isn't known."""
        resolved = self.patterns.get(pattern)
        return () if resolved is None else resolved.topics

    def names_after(
        self,
        *,
        gone: Iterable[ConsumerMember] = (),
        come: ConsumerMember | None = None,
        patterns: Iterable[tuple[str, tuple[str, ...]]] = (),
    ) -> list[str]:
        """Return the topics that are subscribed to after a change that is not replayed yet.

        `patterns` are those that will match something else from then on.
        """
        users = self.topic_users.copy()
        for member in gone:
            users.subtract(member.topics)
        if come is not None:
            users.update(come.topics)
        for pattern, topics in patterns:
            users.subtract(self.topics_of_pattern(pattern))
            users.update(topics)
        return [name for name, count in users.items() if count > 0]

    # -- the records -----------------------------------------------------------------------------

    def replay(self, key: Struct, value: Struct | None) -> None:
        """Make true what a record says."""
        self.REPLAY[type(key)](self, key, value)

    def _replay_group(self, _key: Any, value: Any) -> None:
        if value is None:
            self._clear()
            return
        self.is_gone = False
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def _replay_old_metadata(self, _key: Any, value: Any) -> None:
        self.has_old_metadata = value is not None

    def _replay_member(self, key: Any, value: Any) -> None:
        before = self.members.get(key.member_id)
        if value is None:
            if before is not None:
                self._put(before, None)
            return
        member = before or ConsumerMember(member_id=key.member_id)
        self._put(before, member.told(value))

    def _replay_current(self, key: Any, value: Any) -> None:
        before = self.members.get(key.member_id)
        if value is not None:
            self._put(before, (before or ConsumerMember(member_id=key.member_id)).has(value))
        elif before is not None:
            self._put(before, before.left(LEAVE_EPOCH))

    def _replay_target(self, key: Any, value: Any) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = partitions_of(value.topic_partitions)

    def _replay_target_epoch(self, _key: Any, value: Any) -> None:
        if value is None:
            self.assignment_epoch = NO_ASSIGNMENT_EPOCH
            return
        self.assignment_epoch = value.assignment_epoch
        self.assigned_ms = value.assignment_timestamp

    def _replay_pattern(self, key: Any, value: Any) -> None:
        pattern = key.regular_expression
        for name in self.topics_of_pattern(pattern):
            self._unsubscribe(name)
        if value is None:
            self.patterns.pop(pattern, None)
            return
        topics = tuple(value.topics)
        self.patterns[pattern] = ResolvedPattern(topics, value.version, value.timestamp)
        for name in topics:
            self._subscribe(name)

    # -- what follows ----------------------------------------------------------------------------

    def _put(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """Put a member in, in its new form, or take it out; and count anew what concerns it."""
        if before is None or after is None:
            self.changes += 1
        if after is None:
            self._unshare_topics(before)
        else:
            after = self._share_topics(before, after)
        self._count_told(before, after)
        self._count_owned(before, after)
        for member, sign in ((before, -1), (after, 1)):
            if member is not None:
                self._count(member, sign)
        if before is not None:
            # It may be another instance from now on, of which it needs the name alone.
            instance_id = before.instance_id
            if instance_id is not None and self.static_ids.get(instance_id) == before.member_id:
                del self.static_ids[instance_id]
        if after is not None:
            self.members[after.member_id] = after
            if after.instance_id is not None:
                self.static_ids[after.instance_id] = after.member_id
        elif before is not None:
            del self.members[before.member_id]

    def _count(self, member: ConsumerMember, sign: int) -> None:
        if member.state is MemberState.STABLE:
            _add(self._arrived, member.epoch, sign)
        if member.pattern:
            _add(self.pattern_users, member.pattern, sign)
        if member.assignor is not None:
            _add(self.assignor_votes, member.assignor, sign)
        if member.classic is not None:
            self.classic_count += sign
            for protocol in member.classic.supported_protocols:
                _add(self.classic_protocols, protocol.name, sign)

    def _count_told(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """Count what a member tells of itself; most records are not about that."""
        had = () if before is None else before.topics
        has = () if after is None else after.topics
        if (
            before is None
            or after is None
            or had is not has
            or before.pattern != after.pattern
            or before.classic is not after.classic
        ):
            self.told_bytes += 0 if after is None else told_bytes(after)
            self.told_bytes -= 0 if before is None else told_bytes(before)
        if had is has:
            return
        for name in has:  # first, so that what stays is not taken out of the index and put back
            self._subscribe(name)
        for name in had:
            self._unsubscribe(name)

    def _count_owned(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """Hand over what a member has. It is let go only by who has it."""
        if (
            before is not None
            and after is not None
            and before.assigned is after.assigned
            and before.revoking is after.revoking
        ):
            return
        if before is not None:
            for partitions in (before.assigned, before.revoking):
                self._release(before.member_id, partitions)
        if after is not None:
            for partitions in (after.assigned, after.revoking):
                for topic_id, numbers in partitions.items():
                    owners = self._owners.setdefault(topic_id, {})
                    owners.update(dict.fromkeys(numbers, after.member_id))

    def _release(self, member_id: str, partitions: Partitions) -> None:
        for topic_id, numbers in partitions.items():
            owners = self._owners.get(topic_id, {})
            for index in numbers:
                if owners.get(index) == member_id:
                    del owners[index]
            if not owners:
                self._owners.pop(topic_id, None)

    def _share_topics(self, before: ConsumerMember | None, after: ConsumerMember) -> ConsumerMember:
        """Let members with the same subscription have one list of names, not one each."""
        if before is not None and before.topics == after.topics:
            topics = before.topics
        else:
            topics, users = self._shared_topics.get(after.topics, (after.topics, 0))
            self._shared_topics[topics] = (topics, users + 1)
            self._unshare_topics(before)
        return after if topics is after.topics else replace(after, topics=topics)

    def _unshare_topics(self, member: ConsumerMember | None) -> None:
        if member is None:
            return
        topics, users = self._shared_topics[member.topics]
        if users == 1:
            del self._shared_topics[topics]
        else:
            self._shared_topics[topics] = (topics, users - 1)

    def _subscribe(self, name: str) -> None:
        if not self.topic_users[name]:
            self._index.subscribe(self.group_id, name)
            self.changes += 1
        self.topic_users[name] += 1

    def _unsubscribe(self, name: str) -> None:
        _add(self.topic_users, name, -1)
        if not self.topic_users[name]:
            self._index.unsubscribe(self.group_id, name)
            self.changes += 1

    def _clear(self) -> None:
        """Forget everything: the group is no more."""
        for name in list(self.topic_users):
            self._index.unsubscribe(self.group_id, name)
        self._begin()
        self.is_gone = True
        self.changes += 1

    REPLAY: ClassVar[Mapping[type[Struct], Callable[[ConsumerState, Any, Any], None]]] = {
        ConsumerGroupMetadataKey: _replay_group,
        ConsumerGroupPartitionMetadataKey: _replay_old_metadata,
        ConsumerGroupMemberMetadataKey: _replay_member,
        ConsumerGroupTargetAssignmentMetadataKey: _replay_target_epoch,
        ConsumerGroupTargetAssignmentMemberKey: _replay_target,
        ConsumerGroupCurrentMemberAssignmentKey: _replay_current,
        ConsumerGroupRegularExpressionKey: _replay_pattern,
    }
    """What each record does, by its key."""


def _add(counts: Counter[Any], what: Any, number: int) -> None:
    """Count on, and keep nothing for what is not there."""
    counts[what] += number
    assert counts[what] >= 0, "less than nothing"
    if not counts[what]:
        del counts[what]


RECORD_KEYS: Final = tuple(ConsumerState.REPLAY)
"""The keys of the records that make a group of this kind."""
