"""How topics are shown: byte for byte as kafka-topics --describe does. Pure.

Rules: tools.md#describing-topics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from holdfast.clients.topic_descriptions import Partition, Topic
from holdfast.wire.administration import ConfigEntry

MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which partitions or topics to leave out; at most one of them is true."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False
    with_overrides: bool = False

    @property
    def count(self) -> int:
        return sum(astuple(self))

    @property
    def of_partitions(self) -> bool:
        """True if single partitions are picked: then topics have no line of their own."""
        return self.count > 0 and not self.with_overrides

    def pick(self, partition: Partition, *, min_isr: int | None, live: Collection[int]) -> bool:
        """Say whether a partition is to be shown."""
        if self.under_replicated:
            return len(partition.isr) < partition.replication_factor
        if self.unavailable:
            return partition.leader not in live
        if self.under_min_isr:
            return min_isr is not None and len(partition.isr) < min_isr
        if self.at_min_isr:
            return min_isr is not None and len(partition.isr) == min_isr
        return not self.with_overrides


def describe(
    topics: Sequence[Topic],
    configs: Mapping[str, Sequence[ConfigEntry]],
    live: Collection[int],
    filters: Filters,
) -> Iterator[str]:
    """Yield the lines of kafka-topics --describe, separated by tabs."""
    for topic in topics:
        entries = configs.get(topic.name, ())
        overrides = [f"{entry.name}={entry.value}" for entry in entries if not entry.is_default]
        if not filters.of_partitions and (overrides or not filters.with_overrides):
            yield _header(topic, overrides)
        min_isr = _min_isr(entries)
        for partition in topic.partitions:
            if filters.pick(partition, min_isr=min_isr, live=live):
                yield _line(topic.name, partition)


def _header(topic: Topic, overrides: Sequence[str]) -> str:
    factor = topic.partitions[0].replication_factor if topic.partitions else 0
    fields = [f"Topic: {topic.name}"]
    if topic.topic_id:
        fields.append(f"TopicId: {topic.topic_id}")
    fields += [
        f"PartitionCount: {len(topic.partitions)}",
        f"ReplicationFactor: {factor}",
        f"Configs: {','.join(overrides)}",
    ]
    return "\t".join(fields)


def _line(topic: str, partition: Partition) -> str:
    leader = "none" if partition.leader < 0 else str(partition.leader)
    moving = [
        f"Adding Replicas: {_ids(partition.adding)}",
        f"Removing Replicas: {_ids(partition.removing)}",
    ]
    return "\t".join(
        [
            f"\tTopic: {topic}",
            f"Partition: {partition.index}",
            f"Leader: {leader}",
            f"Replicas: {_ids(partition.replicas)}",
            f"Isr: {_ids(partition.isr)}",
            *(moving if partition.is_moving else ()),
            f"Elr: {_ids(partition.elr)}",
            f"LastKnownElr: {_ids(partition.last_known_elr)}",
        ]
    )


def _ids(nodes: Sequence[int] | None) -> str:
    return "N/A" if nodes is None else ",".join(map(str, nodes))


def _min_isr(entries: Sequence[ConfigEntry]) -> int | None:
    for entry in entries:
        if entry.name == MIN_ISR and entry.value is not None:
            return int(entry.value)
    return None


def to_json(
    topics: Sequence[Topic],
    configs: Mapping[str, Sequence[ConfigEntry]],
    live: Collection[int],
    filters: Filters,
) -> list[dict[str, Any]]:
    """Return the same for machines; a topic of which nothing is picked is left out."""
    found: list[dict[str, Any]] = []
    for topic in topics:
        entries = configs.get(topic.name, ())
        overrides = {entry.name: entry.value for entry in entries if not entry.is_default}
        min_isr = _min_isr(entries)
        picked = [
            partition
            for partition in topic.partitions
            if filters.with_overrides or filters.pick(partition, min_isr=min_isr, live=live)
        ]
        if (filters.with_overrides and not overrides) or (filters.of_partitions and not picked):
            continue
        found.append(
            {
                "name": topic.name,
                "topic_id": topic.topic_id or None,
                "internal": topic.internal,
                "partition_count": len(topic.partitions),
                "replication_factor": (
                    topic.partitions[0].replication_factor if topic.partitions else 0
                ),
                "configs": overrides,
                "partitions": [_partition_json(partition) for partition in picked],
            }
        )
    return found


def _partition_json(partition: Partition) -> dict[str, Any]:
    return {
        "partition": partition.index,
        "leader": None if partition.leader < 0 else partition.leader,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "elr": partition.elr,
        "last_known_elr": partition.last_known_elr,
        "adding": partition.adding,
        "removing": partition.removing,
    }
