"""What ConsumerGroupDescribe tells of one group.

Rules: consumer-groups.md#describe.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.group.assignors import NOTHING, Partitions
from holdfast.core.group.consumer.consumer_core import ConsumerCore
from holdfast.core.group.consumer.consumer_member import ConsumerMember
from holdfast.core.group.consumer.consumer_target import preferred_assignor
from holdfast.core.group.consumer.consumer_topics import KnownTopics
from holdfast.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeTopicPartitions,
)

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


def describe(core: ConsumerCore) -> ConsumerGroupDescribedGroup:
    """Return the group's content; members by their ids."""
    state, topics = core.state, core.around.topics
    return ConsumerGroupDescribedGroup(
        group_id=state.group_id,
        group_state=state.state.value,
        group_epoch=state.epoch,
        assignment_epoch=state.assignment_epoch,
        assignor_name=preferred_assignor(state, core.settings.assignors),
        members=[
            _member(state.members[member_id], state.targets.get(member_id, NOTHING), topics)
            for member_id in sorted(state.members)
        ],
    )


def _member(
    member: ConsumerMember, target: Partitions, topics: KnownTopics
) -> ConsumerGroupDescribeMember:
    return ConsumerGroupDescribeMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.pattern,
        assignment=_named(_held(member), topics),
        target_assignment=_named(target, topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _held(member: ConsumerMember) -> Partitions:
    """Return what nobody else may have yet: what a member has, and what it has yet to give up."""
    held = dict(member.assigned)
    for topic_id, numbers in member.revoking.items():
        held[topic_id] = tuple(sorted((*held.get(topic_id, ()), *numbers)))
    return held


def _named(partitions: Partitions, topics: KnownTopics) -> ConsumerGroupDescribeAssignment:
    """Return partitions with the names of their topics. Those of deleted topics are left out."""
    return ConsumerGroupDescribeAssignment(
        topic_partitions=[
            ConsumerGroupDescribeTopicPartitions(
                topic_id=topic_id, topic_name=topic.name, partitions=list(partitions[topic_id])
            )
            for topic_id in sorted(partitions)
            if (topic := topics.with_id(topic_id)) is not None
        ]
    )
