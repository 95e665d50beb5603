"""Between topic ids, which groups of the consumer protocol go by, and names, which the classic
protocol embeds in its bytes.

Rules: group-records.md#embedded-consumer-protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.core.group.assignors import NOTHING, Partitions
from holdfast.core.group.consumer.consumer_member import ConsumerMember
from holdfast.core.group.consumer.consumer_topics import KnownTopics
from holdfast.wire.groups.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    encode_assignment,
)

_VERSION_BYTES: Final = 2


def owned_partitions(subscription: ConsumerProtocolSubscription, topics: KnownTopics) -> Partitions:
    """Return what a member says that it still has."""
    return named_partitions(subscription.owned_partitions, topics)


def named_partitions(listed: Iterable[ConsumerTopicPartitions], topics: KnownTopics) -> Partitions:
    """Return partitions by topic id. Those of topics that aren't there are left out."""
    found: dict[bytes, set[int]] = {}
    for each in listed:
        topic = topics.named(each.topic)
        if topic is not None:
            found.setdefault(topic.topic_id, set()).update(each.partitions)
    if not found:
        return NOTHING
    return {
        topic_id: tuple(sorted(found[topic_id])) for topic_id in sorted(found) if found[topic_id]
    }


def assignment_bytes(
    partitions: Partitions, member: ConsumerMember, topics: KnownTopics, protocol: str | None = None
) -> bytes:
    """Return an assignment as the classic protocol embeds it.

    It has the version in which the member wrote its subscription, for that protocol or its first.
    """
    assert member.classic is not None, "it speaks the classic protocol"
    protocols = member.classic.supported_protocols
    metadata = next(
        (each.metadata for each in protocols if each.name == protocol), protocols[0].metadata
    )
    assigned = [
        ConsumerTopicPartitions(topic=topic.name, partitions=list(partitions[topic_id]))
        for topic_id in sorted(partitions)
        if (topic := topics.with_id(topic_id)) is not None
    ]
    version = int.from_bytes(metadata[:_VERSION_BYTES], signed=True)
    return encode_assignment(
        ConsumerProtocolAssignment(assigned_partitions=assigned),
        max(0, min(version, ConsumerProtocolAssignment.MAX_VERSION)),
    )
