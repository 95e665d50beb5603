"""Offsets of topics that were deleted go too, whichever groups they are of.

A topic is meant by its id: another one may have its name by the time that its turn comes.

Rules: committed-offsets.md#deleted-topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from holdfast.core.deadlines import NEVER_MS
from holdfast.core.group.offsets.offset_store import OffsetStore
from holdfast.core.group.offsets.tombstone_batch import TombstoneBatch
from holdfast.core.log_machine import Decision

RETRY_MS: Final = 5000  # after the log did not take them

DeletedTopic: TypeAlias = tuple[str, bytes]
"""A name, and the id of the topic that had it."""


class DeletedTopics:
    """The topics whose offsets are to be removed."""

    __slots__ = ("_store", "_topics", "deadline_ms")

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._topics: dict[DeletedTopic, None] = {}
        self.deadline_ms = NEVER_MS

    @property
    def topics(self) -> list[DeletedTopic]:
        return list(self._topics)

    def add(self, topics: Iterable[DeletedTopic], now_ms: int) -> None:
        self._topics.update(dict.fromkeys(topics))
        if self._topics:
            self.deadline_ms = now_ms

    def due(self, decision: Decision, now_ms: int) -> None:
        """Append tombstones for as many offsets as make one batch."""
        batch = TombstoneBatch(decision)
        done: list[DeletedTopic] = []
        for topic in self._topics:
            if not all(map(batch.add, self._store.keys_of_topic(*topic))):
                break  # this one is not done
            done.append(topic)
        for topic in done:
            del self._topics[topic]
        self.deadline_ms = now_ms if self._topics else NEVER_MS
        if decision.records:
            decision.once_refused(lambda _: self._retry(done, now_ms))

    def _retry(self, topics: Iterable[DeletedTopic], now_ms: int) -> None:
        self.add(topics, now_ms)
        self.deadline_ms = now_ms + RETRY_MS
