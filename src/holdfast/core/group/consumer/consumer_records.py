"""The records that a group of the consumer protocol writes, beside those of `consumer_member`.

Owns the order of tombstones: what a member has goes first, then its target, then itself. Whoever
reads the log in that order never sees a member that is gone and still owns something.

Rules: consumer-groups.md#tombstones.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.group.assignors import Partitions
from holdfast.core.group.consumer.consumer_member import (
    ConsumerMember,
    current_record,
    metadata_record,
)
from holdfast.core.group.consumer.consumer_patterns import ResolvedPattern
from holdfast.core.log_machine import KeyedRecord
from holdfast.wire.records.group_tables import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TargetTopicPartitions,
)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> KeyedRecord:
    """Return the record of a group epoch, and of the topics that it was made for."""
    return (
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> KeyedRecord:
    """Return the record of what a member shall have in the end."""
    listed = [
        TargetTopicPartitions(topic_id=topic_id, partitions=list(target[topic_id]))
        for topic_id in sorted(target)
    ]
    return (
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=listed),
    )


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> KeyedRecord:
    """Return the record that says for which group epoch the targets were made, and when."""
    return (
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=now_ms
        ),
    )


def pattern_record(group_id: str, pattern: str, resolved: ResolvedPattern) -> KeyedRecord:
    """Return the record of the topics that a pattern matched."""
    return (
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern),
        ConsumerGroupRegularExpressionValue(
            topics=list(resolved.topics), version=resolved.version, timestamp=resolved.at_ms
        ),
    )


def pattern_tombstone(group_id: str, pattern: str) -> KeyedRecord:
    """Return what removes a pattern that nobody subscribes to any more."""
    return (ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), None)


def old_metadata_tombstone(group_id: str) -> KeyedRecord:
    """Return what removes the description of topics that Kafka before 4.1 wrote."""
    return (ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[KeyedRecord]:
    """Return what removes one member."""
    return [
        _current_tombstone(group_id, member_id),
        _target_tombstone(group_id, member_id),
        _metadata_tombstone(group_id, member_id),
    ]


def replacement_records(
    group_id: str, old_id: str, member: ConsumerMember, target: Partitions
) -> list[KeyedRecord]:
    """Return what puts a member into the place of another, with all that this one had."""
    return [
        *member_tombstones(group_id, old_id),
        metadata_record(group_id, member),
        target_record(group_id, member.member_id, target),
        current_record(group_id, member),
    ]


def group_tombstones(
    group_id: str, member_ids: Iterable[str], patterns: Iterable[str]
) -> list[KeyedRecord]:
    """Return what removes a group with its members and patterns."""
    ids = list(member_ids)
    return [
        *(_current_tombstone(group_id, member_id) for member_id in ids),
        *(_target_tombstone(group_id, member_id) for member_id in ids),
        (ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(_metadata_tombstone(group_id, member_id) for member_id in ids),
        *(pattern_tombstone(group_id, pattern) for pattern in patterns),
        old_metadata_tombstone(group_id),
        (ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def _current_tombstone(group_id: str, member_id: str) -> KeyedRecord:
    return (ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)


def _target_tombstone(group_id: str, member_id: str) -> KeyedRecord:
    return (ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)


def _metadata_tombstone(group_id: str, member_id: str) -> KeyedRecord:
    return (ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)
