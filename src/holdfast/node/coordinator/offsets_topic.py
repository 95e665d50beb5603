"""`__consumer_offsets`: made when a coordinator is first looked for.

The controller makes it, by an ordinary CreateTopics of this broker's own. It has as many replicas
as there are brokers, up to `offsets.topic.replication.factor`; where that key is set, exactly so
many, and until there are as many brokers nobody has a coordinator. Where it is not set, fewer are
taken only once no other broker has come for a while: the first consumer of a new cluster may be
there before most of the brokers, and what it begins with is for good.

Rules: group-records.md#the-topic.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from holdfast.node.coordinator.coordinator_settings import (
    offsets_topic_partitions,
    offsets_topic_replication_factor,
    offsets_topic_segment_bytes,
)
from holdfast.node.door.seldom import Seldom
from holdfast.wire.errors import ErrorCode, error_code
from holdfast.wire.groups.group_partition import group_partition

if TYPE_CHECKING:
    from holdfast.core.metadata.image import Topic
    from holdfast.node.coordinator.surroundings import Surroundings

logger = logging.getLogger("holdfast.groups")

GROUP_OFFSETS: Final = "__consumer_offsets"
VERSION: Final = 7
REPLICATION_FACTOR: Final = "offsets.topic.replication.factor"
ALONE_MS: Final = 5000  # how long nobody may have come before there are fewer replicas


class OffsetsTopic:
    """The topic, and that it is being made."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._is_under_way = False
        self._not_made = Seldom(logger)
        self._brokers = 0  # so many there are, as far as was looked,
        self._brokers_since_ms = 0  # and since then

    @property
    def partition_count(self) -> int:
        """How many shards there are: as many as will be, where the topic is not there yet."""
        topic = self.find()
        if topic is not None and topic.partitions:
            return len(topic.partitions)
        return offsets_topic_partitions(self._around.settings())

    def partition_of(self, group_id: str) -> int:
        """Return the partition in which a group lives."""
        return group_partition(group_id, self.partition_count)

    def find(self) -> Topic | None:
        return self._around.image.topics.get(GROUP_OFFSETS)

    def make(self) -> None:
        """Have the topic made, unless it is there or on its way. Nobody waits for it."""
        if self._is_under_way or self.find() is not None:
            return
        replicas = self._replicas()
        if replicas is None:
            return
        from holdfast.wire.messages.create_topics import CreateTopicsRequest, new_topic

        self._is_under_way = True
        settings = self._around.settings()
        topic = new_topic(
            GROUP_OFFSETS,
            offsets_topic_partitions(settings),
            replicas,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(offsets_topic_segment_bytes(settings)),
            },
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=settings.request_timeout_ms)
        answer = self._around.ask_controller(request, VERSION)
        answer.add_done_callback(self._answered)

    def _replicas(self) -> int | None:
        """Return how many replicas it is to have; None: other brokers may be on their way."""
        settings = self._around.settings()
        wanted = offsets_topic_replication_factor(settings)
        brokers = len(self._around.image.brokers)
        if REPLICATION_FACTOR in settings.properties or brokers >= wanted:
            return wanted
        now_ms = self._around.runtime.clock.monotonic_ms()
        if brokers != self._brokers:
            self._brokers, self._brokers_since_ms = brokers, now_ms
        return max(1, brokers) if now_ms - self._brokers_since_ms >= ALONE_MS else None

    def _answered(self, done: asyncio.Future[Any]) -> None:
        self._is_under_way = False
        if done.cancelled():
            return
        failure = done.exception()
        if failure is not None:
            self._not_made.warning("%s is not made: %s", GROUP_OFFSETS, failure)
            return
        for topic in done.result().topics:
            code = error_code(topic.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._not_made.warning(
                    "%s is not made: %s %s", GROUP_OFFSETS, code.name, topic.error_message
                )
