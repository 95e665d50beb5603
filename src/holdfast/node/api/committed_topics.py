"""Topics that a request about committed offsets names: which are known, and may be used.

Not an API of its own.

Rules: committed-offsets.md#topics-and-partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from holdfast.node.broker.broker import Broker
from holdfast.node.door.api_table import READ_TOPIC
from holdfast.node.door.request_context import RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.uuids import NULL_UUID


class AskedPartition(Protocol):
    partition_index: int


P = TypeVar("P", bound=AskedPartition)


class AskedTopic(Protocol[P]):
    name: str
    partitions: list[P]


@dataclass(slots=True)
class Sorted(Generic[P]):
    """One topic of a request."""

    name: str
    topic_id: bytes = NULL_UUID
    known: list[P] = field(default_factory=list)
    refused: list[tuple[int, ErrorCode]] = field(default_factory=list)


def sort_topics(
    broker: Broker, context: RequestContext, topics: Iterable[AskedTopic[P]], *, by_id: bool = False
) -> list[Sorted[P]]:
    """Tell partitions that exist, and may be read, from the others, each with the reason."""
    return [_sort(broker, context, topic, by_id=by_id) for topic in topics]


class AnsweredTopic(Protocol[P]):
    name: str
    partitions: list[P]


T = TypeVar("T", bound=AnsweredTopic[Any])


def join_topics(decided: list[T], refused: Iterable[T]) -> list[T]:
    """Put what was decided of a topic, and what was refused before, into one entry.

    A topic that is not there has no name, or one of which nothing was decided.
    """
    entries = {each.name: each for each in decided}
    for each in refused:
        entry = entries.get(each.name)
        if entry is None:
            decided.append(each)
        else:
            entry.partitions += each.partitions
    return decided


def _sort(
    broker: Broker, context: RequestContext, topic: AskedTopic[P], *, by_id: bool
) -> Sorted[P]:
    image = broker.image
    if by_id:
        topic_id = bytes(topic.topic_id)  # type: ignore[attr-defined]
        known = image.topics_by_id.get(topic_id)
        if known is None:
            return _all(topic, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
    else:
        known = image.topics.get(topic.name)
        topic_id = NULL_UUID
    name = topic.name if known is None else known.name
    if refusal(context, name, READ_TOPIC) is not None:
        return _all(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic_id)
    if known is None:
        return _all(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic_id)
    found: Sorted[P] = Sorted(name, topic_id)
    for partition in topic.partitions:
        if known.partition(partition.partition_index) is None:
            found.refused.append((partition.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            found.known.append(partition)
    return found


def _all(topic: AskedTopic[P], code: ErrorCode, topic_id: bytes) -> Sorted[P]:
    refused = [(partition.partition_index, code) for partition in topic.partitions]
    return Sorted(topic.name, topic_id, refused=refused)
