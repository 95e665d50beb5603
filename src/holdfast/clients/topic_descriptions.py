"""Topics and their partitions as any Kafka describes them: leaders, replicas, who is in sync.

Owns the asking, page by page, and what older clusters tell. Asks once each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.clients.blocking_driver import Driver, DriverError, UnsupportedError
from holdfast.wire.administration import Move, TopicPartition, refuse
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from holdfast.wire.messages.metadata import MetadataRequest
from holdfast.wire.uuids import NULL_UUID, uuid_text

PAGES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition; leader -1: none; ELR None: the broker doesn't tell.

    While it is being moved, `replicas` holds those `adding` and those `removing`, too.
    """

    index: int
    leader: int
    replicas: list[int]
    isr: list[int]
    elr: list[int] | None = None
    last_known_elr: list[int] | None = None
    adding: list[int] = field(default_factory=list)
    removing: list[int] = field(default_factory=list)

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def replication_factor(self) -> int:
        """How many replicas it has when none are being added, as Kafka counts."""
        return len(self.replicas) - len(self.adding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic as metadata shows it; the id in Kafka's text form, "" when there is none."""

    name: str
    topic_id: str
    internal: bool
    partitions: list[Partition] = field(default_factory=list)


def topic_names(driver: Driver) -> dict[str, bool]:
    """All topics by name, sorted; true for internal ones."""
    found = driver.send(MetadataRequest(topics=None, allow_auto_topic_creation=False)).topics
    return dict(sorted((topic.name or "", topic.is_internal) for topic in found))


def described(driver: Driver, names: Sequence[str]) -> list[Topic]:
    """Describe topics, sorted by name; those that aren't there are left out."""
    if not names:
        return []
    try:
        return _pages(driver, sorted(names))
    except UnsupportedError:
        return _from_metadata(driver, sorted(names))


def note_moves(topics: Sequence[Topic], moves: Mapping[TopicPartition, Move]) -> None:
    """Say of each partition whether it is being moved."""
    for topic in topics:
        for position, partition in enumerate(topic.partitions):
            move = moves.get((topic.name, partition.index))
            if move is not None:
                topic.partitions[position] = replace(
                    partition, adding=move.adding, removing=move.removing
                )


def _pages(driver: Driver, names: Sequence[str]) -> list[Topic]:
    """Ask DescribeTopicPartitions, page by page; a topic may go on in the next page."""
    found: dict[str, Topic] = {}
    cursor = None
    for _ in range(PAGES_MAX):
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], cursor=cursor
        )
        response = driver.send(request)
        for topic in response.topics:
            if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                refuse(topic, "describing", f"topic {topic.name}")
                known = found.setdefault(topic.name, _topic(topic))
                known.partitions.extend(
                    replace(
                        _partition(partition),
                        elr=partition.eligible_leader_replicas or [],
                        last_known_elr=partition.last_known_elr or [],
                    )
                    for partition in topic.partitions
                )
        cursor = response.next_cursor
        if cursor is None:
            return list(found.values())
        names = [name for name in names if name >= cursor.topic_name]
    raise DriverError(f"the description of the topics doesn't end after {PAGES_MAX} pages")


def _from_metadata(driver: Driver, names: Sequence[str]) -> list[Topic]:
    topics: list[Topic] = []
    for topic in sorted(driver.metadata(names).topics, key=lambda found: found.name or ""):
        if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            described = _topic(topic)
            described.partitions.extend(
                map(_partition, sorted(topic.partitions, key=lambda found: found.partition_index))
            )
            topics.append(described)
    return topics


def _topic(topic: Any) -> Topic:
    return Topic(
        name=topic.name,
        topic_id="" if topic.topic_id == NULL_UUID else uuid_text(topic.topic_id),
        internal=topic.is_internal,
    )


def _partition(partition: Any) -> Partition:
    return Partition(
        index=partition.partition_index,
        leader=partition.leader_id,
        replicas=partition.replica_nodes,
        isr=partition.isr_nodes,
    )
