"""The offsets that groups have committed in one shard.

Owns them by group and topic, and which groups have offsets of a topic, so that what becomes of a
deleted topic costs what it touches.

Rules: committed-offsets.md#what-is-kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from holdfast.wire.records.group_tables import OffsetCommitKey, OffsetCommitValue
from holdfast.wire.uuids import NULL_UUID

NO_EXPIRY: Final = -1
_OFFSET_OVERHEAD_BYTES: Final = 256  # what an offset takes here beside its metadata, about

TopicOffsets = Mapping[int, "CommittedOffset"]


class CommittedOffset(NamedTuple):
    """Where a group goes on in one partition."""

    offset: int
    leader_epoch: int  # of the record before it; -1: not told
    metadata: str
    committed_ms: int
    expires_ms: int = NO_EXPIRY  # what the client asked for; else the broker's retention decides
    topic_id: bytes = NULL_UUID

    @classmethod
    def of_record(cls, value: OffsetCommitValue) -> CommittedOffset:
        topic_id = value.topic_id
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            NULL_UUID if topic_id == NULL_UUID else bytes(topic_id),
        )

    def is_of(self, topic_id: bytes) -> bool:
        """Return whether it may be of this topic: it is, or one of both ids is not known."""
        return self.topic_id == topic_id or NULL_UUID in (self.topic_id, topic_id)

    def to_record(self) -> OffsetCommitValue:
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.committed_ms,
            expire_timestamp=self.expires_ms,
            topic_id=self.topic_id,
        )


class OffsetStore:
    """All of a shard's committed offsets."""

    __slots__ = ("_by_group", "_groups_of_topic", "_names", "bytes", "count")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0  # what they take in memory, about
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._groups_of_topic: dict[str, dict[str, None]] = {}
        self._names: dict[str, str] = {}  # each topic's name once, however many groups read it

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._by_group.get(group_id, {}).get(topic, {}).get(partition)

    def has_any(self, group_id: str) -> bool:
        return group_id in self._by_group

    def topics_of(self, group_id: str) -> Iterator[tuple[str, TopicOffsets]]:
        """Go through a group's offsets by topic. Nothing may change meanwhile."""
        return iter(self._by_group.get(group_id, {}).items())

    def keys_of_topic(self, topic: str, topic_id: bytes) -> Iterator[OffsetCommitKey]:
        """Go through the offsets of a topic, of whichever groups. Nothing may change meanwhile.

        Not those that are known to be of another topic, which had the name before or has it now.
        """
        for group_id in self._groups_of_topic.get(topic, {}):
            for partition, committed in self._by_group[group_id][topic].items():
                if committed.is_of(topic_id):
                    yield OffsetCommitKey(group=group_id, topic=topic, partition=partition)

    def keys_of_group(self, group_id: str) -> Iterator[OffsetCommitKey]:
        """Go through the offsets of a group. Nothing may change meanwhile."""
        for topic, partitions in self.topics_of(group_id):
            for partition in partitions:
                yield OffsetCommitKey(group=group_id, topic=topic, partition=partition)

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        topic = self._names.setdefault(topic, topic)
        topics = self._by_group.setdefault(group_id, {})
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
            self._groups_of_topic.setdefault(topic, {})[group_id] = None
        before = partitions.get(partition)
        partitions[partition] = committed
        self.bytes += _bytes_of(committed)
        if before is None:
            self.count += 1
        else:
            self.bytes -= _bytes_of(before)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        if topics is None or partitions is None or partition not in partitions:
            return
        self.bytes -= _bytes_of(partitions.pop(partition))
        self.count -= 1
        if partitions:
            return
        del topics[topic]
        groups = self._groups_of_topic[topic]
        del groups[group_id]
        if not groups:
            del self._groups_of_topic[topic], self._names[topic]
        if not topics:
            del self._by_group[group_id]


def bytes_of_offset(metadata: str) -> int:
    """Return what an offset with this metadata takes in memory, about."""
    return len(metadata) + _OFFSET_OVERHEAD_BYTES


def _bytes_of(committed: CommittedOffset) -> int:
    return bytes_of_offset(committed.metadata)
