"""The offsets that groups have committed in one shard.

Owns them by group and topic, and which groups have offsets of a topic, so that what becomes of a
deleted topic costs what it touches. There may be millions, so each is kept as a plain tuple: the
interpreter's collector looks at those no more, and at each of any other kind.

Rules: committed-offsets.md#what-is-kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from holdfast.wire.records.offset_records import CommittedOffset, OffsetKey

_OFFSET_OVERHEAD_BYTES: Final = 256  # what an offset takes here beside its metadata, about

_METADATA: Final = 2

Kept: TypeAlias = tuple[int, int, str, int, int, bytes]
"""The fields of a `CommittedOffset`, of which `CommittedOffset._make` makes one."""

TopicOffsets: TypeAlias = Mapping[int, Kept]


class OffsetStore:
    """All of a shard's committed offsets."""

    __slots__ = ("_by_group", "_groups_of_topic", "_names", "bytes", "count")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0  # what they take in memory, about
        self._by_group: dict[str, dict[str, dict[int, Kept]]] = {}
        self._groups_of_topic: dict[str, dict[str, None]] = {}
        self._names: dict[str, str] = {}  # each topic's name once, however many groups read it

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        kept = self._by_group.get(group_id, {}).get(topic, {}).get(partition)
        return None if kept is None else CommittedOffset._make(kept)

    def offsets_of(self, group_id: str, topic: str) -> TopicOffsets:
        """Return a group's offsets of a topic, by partition."""
        return self._by_group.get(group_id, {}).get(topic, {})

    def has_any(self, group_id: str) -> bool:
        return group_id in self._by_group

    def topics_of(self, group_id: str) -> Iterator[tuple[str, TopicOffsets]]:
        """Go through a group's offsets by topic. Nothing may change meanwhile."""
        return iter(self._by_group.get(group_id, {}).items())

    def keys_of_topic(self, topic: str, topic_id: bytes) -> Iterator[OffsetKey]:
        """Go through the offsets of a topic, of whichever groups. Nothing may change meanwhile.

        Not those that are known to be of another topic, which had the name before or has it now.
        """
        for group_id in self._groups_of_topic.get(topic, {}):
            for partition, kept in self._by_group[group_id][topic].items():
                if CommittedOffset._make(kept).is_of(topic_id):
                    yield OffsetKey(group_id, topic, partition)

    def keys_of_group(self, group_id: str) -> Iterator[OffsetKey]:
        """Go through the offsets of a group. Nothing may change meanwhile."""
        for topic, partitions in self.topics_of(group_id):
            for partition in partitions:
                yield OffsetKey(group_id, topic, partition)

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        topic = self._names.setdefault(topic, topic)
        topics = self._by_group.setdefault(group_id, {})
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
            self._groups_of_topic.setdefault(topic, {})[group_id] = None
        before = partitions.get(partition)
        partitions[partition] = committed[:]
        if before is None:
            self.count += 1
            self.bytes += bytes_of_offset(committed.metadata)
        else:
            self.bytes += len(committed.metadata) - len(before[_METADATA])

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        if topics is None or partitions is None or partition not in partitions:
            return
        self.bytes -= bytes_of_offset(partitions.pop(partition)[_METADATA])
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

    def put_away(self) -> Iterator[None]:
        """Let go of all offsets, one a step: nobody may ask for them any more."""
        while self._by_group:
            _, topics = self._by_group.popitem()
            while topics:
                _, partitions = topics.popitem()
                while partitions:
                    partitions.popitem()
                    yield


def bytes_of_offset(metadata: str) -> int:
    """Return what an offset with this metadata takes in memory, about."""
    return len(metadata) + _OFFSET_OVERHEAD_BYTES
