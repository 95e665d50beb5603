"""Says in the history which partitions belong to a run, and what of them may go.

Whoever configures retention or deletes records writes it down here first: without such an event the
judge calls whatever is gone lost. It asks the cluster for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.clients.workload.recorder import Recorder
from holdfast.config.key import ConfigError
from holdfast.config.topic import TopicSettings
from holdfast.judge.history import (
    Compaction,
    DeleteRecords,
    DeletionRefused,
    Expected,
    Retention,
)
from holdfast.lab.parameters import LabError

# What lets records go, as a topic's configs and a node's begin.
GOING = ("retention.", "cleanup.policy", "log.retention.", "log.cleanup.policy")


class Allowed:
    """What was configured of each topic."""

    def __init__(self, recorder: Recorder, node_config: Mapping[str, str]) -> None:
        self._recorder = recorder
        self._node_config = node_config
        self._topics: dict[str, tuple[int, dict[str, str]]] = {}  # partitions, configs
        self._compacted: dict[str, None] = {}  # topics that are, or ever were
        self._going = set[str]()  # topics of which something may ever have gone

    def expect(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Say that a topic is about to be made so, and is to be judged. LabError: it can't be."""
        self._topics[topic] = (partitions, dict(configs))
        for partition in range(partitions):
            self._recorder.record(Expected, topic=topic, partition=partition)
        self._write(topic, configs)

    def change(self, topic: str, configs: Mapping[str, str]) -> bool:
        """Say that a topic is about to get these configs.

        Each broker hears of it at a moment of its own, so whatever was allowed before still is.
        Return whether the new ones allow less: then `settled` must say when all have heard of them.
        """
        partitions, before = self._topics[topic]
        after = {**before, **configs}
        self._topics[topic] = (partitions, after)
        self._write(topic, before, after)
        return self._limits(topic, before, after) != self._limits(topic, after) or (
            self._is_compacted(topic, before) and not self._is_compacted(topic, after)
        )

    def settled(self, topic: str) -> None:
        """Say that every broker has a topic's configs: what only those before allowed is over."""
        self._write(topic, self._topics[topic][1])

    def delete(self, topic: str, partition: int, offset: int) -> None:
        """Say that everything before an offset is about to be deleted."""
        self._going.add(topic)
        self._recorder.record(DeleteRecords, topic=topic, partition=partition, offset=offset)
        self._recorder.flush()

    def refused(self, topic: str, partition: int, offset: int) -> None:
        """Say that what `delete` has said was refused, for certain."""
        self._recorder.record(DeletionRefused, topic=topic, partition=partition, offset=offset)
        self._recorder.flush()

    def compacts(self, topic: str) -> bool:
        """Whether each replica of a topic may lack records that later ones have replaced."""
        return topic in self._compacted

    def _is_compacted(self, topic: str, configs: Mapping[str, str]) -> bool:
        return "compact" in self._resolved(topic, configs).cleanup_policy

    def keeps_all(self, topic: str) -> bool:
        """Whether nobody has ever let anything of a topic go, within the time of a run."""
        return topic not in self._going and not any(
            key.startswith(GOING) for key in self._node_config
        )

    def has_create_time(self, topic: str) -> bool:
        """Whether a topic's records keep the timestamps that their producers gave them."""
        _, configs = self._topics.get(topic, (0, {}))
        return self._resolved(topic, configs).message_timestamp_type == "CreateTime"

    def _write(self, topic: str, *policies: Mapping[str, str]) -> None:
        """Write for each partition what any of these configs lets go."""
        if any(key.startswith(GOING) for configs in policies for key in configs):
            self._going.add(topic)
        is_on = any(self._is_compacted(topic, configs) for configs in policies)
        if is_on:
            self._compacted[topic] = None
        retention_ms, retention_bytes = self._limits(topic, *policies)
        for partition in range(self._topics[topic][0]):
            self._recorder.record(
                Retention,
                topic=topic,
                partition=partition,
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
            )
            if topic in self._compacted:
                self._recorder.record(Compaction, topic=topic, partition=partition, is_on=is_on)
        self._recorder.flush()

    def _limits(self, topic: str, *policies: Mapping[str, str]) -> tuple[int | None, int | None]:
        """Return the least age and the least size that any of these configs lets go; None: none."""
        settings = [self._resolved(topic, configs) for configs in policies]
        delete = [each for each in settings if "delete" in each.cleanup_policy]
        return (
            min((each.retention_ms for each in delete if each.retention_ms >= 0), default=None),
            min((s.retention_bytes for s in delete if s.retention_bytes >= 0), default=None),
        )

    def _resolved(self, topic: str, configs: Mapping[str, str]) -> TopicSettings:
        try:
            return TopicSettings.resolve(configs, static=self._node_config)
        except ConfigError as error:
            raise LabError(f"topic {topic} can't have these configs: {error}") from error
