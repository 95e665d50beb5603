"""What each member of a group shall have in the end: the group's target assignment.

Rules: consumer-groups.md#target-assignment, consumer-groups.md#assignors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from holdfast.core.group.assignors import ASSIGNORS, Partitions, Subscriber
from holdfast.core.group.consumer.consumer_member import ConsumerMember
from holdfast.core.group.consumer.consumer_records import target_epoch_record, target_record
from holdfast.core.group.consumer.consumer_state import ConsumerState
from holdfast.core.group.consumer.consumer_topics import KnownTopics
from holdfast.core.log_machine import KeyedRecord


def preferred_assignor(
    state: ConsumerState,
    configured: Sequence[str],
    before: ConsumerMember | None = None,
    after: ConsumerMember | None = None,
) -> str:
    """Return the assignor that most members ask for, once `before` has become `after`.

    Where as many ask for another one the first that is configured wins, and where nobody asks the
    first of all.
    """
    votes = Counter(state.assignor_votes)
    if before is not None and before.assignor is not None:
        votes[before.assignor] -= 1
    if after is not None and after.assignor is not None:
        votes[after.assignor] += 1
    return max(configured, key=lambda name: votes[name])


class Subscriptions:
    """Which existing topics a member subscribes to; looked up once for all who ask the same."""

    __slots__ = ("_ids", "_known", "_state", "sizes")

    def __init__(self, state: ConsumerState, topics: KnownTopics) -> None:
        self.sizes: dict[bytes, int] = {}  # partitions of each topic that anybody asked for
        self._state = state
        self._known = topics
        self._ids: dict[tuple[tuple[str, ...], str], frozenset[bytes]] = {}

    def of(self, member: ConsumerMember) -> frozenset[bytes]:
        """Return the ids of what a member asks by name, and of what its pattern matched."""
        asked = (member.topics, member.pattern)
        found = self._ids.get(asked)
        if found is None:
            names = (*member.topics, *self._state.topics_of_pattern(member.pattern))
            topics = [topic for name in names if (topic := self._known.named(name)) is not None]
            found = frozenset(topic.topic_id for topic in topics)
            self._ids[asked] = found
            self.sizes.update((topic.topic_id, topic.partition_count) for topic in topics)
        return found


def next_targets(
    state: ConsumerState,
    topics: KnownTopics,
    assignor: str,
    after: ConsumerMember | None = None,
) -> dict[str, Partitions]:
    """Return the targets of all members, `after` among them in its new form.

    A static member that comes back with another id takes the place of what its instance was.
    """
    members = dict(state.members)
    if after is not None:
        replaced = state.static_member(after.instance_id)
        if replaced is not None:
            members.pop(replaced.member_id, None)
        members[after.member_id] = after
    subscriptions = Subscriptions(state, topics)
    subscribers = [
        Subscriber(
            member_id=member.member_id,
            topics=subscriptions.of(member),
            target=state.target_of(member),
            instance_id=member.instance_id,
        )
        for member in members.values()
    ]
    return ASSIGNORS[assignor](subscribers, subscriptions.sizes)


def target_records(
    state: ConsumerState, targets: Mapping[str, Partitions], epoch: int, now_ms: int
) -> list[KeyedRecord]:
    """Return the records of what has changed in the targets, and of the epoch they are for."""
    changed = [
        target_record(state.group_id, member_id, targets[member_id])
        for member_id in sorted(targets)
        if targets[member_id] != state.targets.get(member_id)
    ]
    return [*changed, target_epoch_record(state.group_id, epoch, now_ms)]
