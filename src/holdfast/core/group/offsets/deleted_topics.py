"""Offsets of topics that were deleted go too, whichever groups they are of.

Rules: committed-offsets.md#deleted-topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.core.deadlines import NEVER_MS
from holdfast.core.group.offsets.offset_store import OffsetStore
from holdfast.core.group.offsets.tombstone_batch import TombstoneBatch
from holdfast.core.log_machine import Decision

RETRY_MS: Final = 5000  # after the log did not take them


class DeletedTopics:
    """The names of topics whose offsets are to be removed."""

    __slots__ = ("_names", "_store", "deadline_ms")

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._names: dict[str, None] = {}
        self.deadline_ms = NEVER_MS

    def add(self, names: Iterable[str], now_ms: int) -> None:
        self._names.update(dict.fromkeys(names))
        if self._names:
            self.deadline_ms = now_ms

    def due(self, decision: Decision, now_ms: int) -> None:
        """Append tombstones for as many offsets as make one batch."""
        batch = TombstoneBatch(decision)
        done: list[str] = []
        for name in self._names:
            if not all(map(batch.add, self._store.keys_of_topic(name))):
                break  # this one is not done
            done.append(name)
        for name in done:
            del self._names[name]
        self.deadline_ms = now_ms if self._names else NEVER_MS
        if decision.records:
            decision.once_refused(lambda _: self._retry(done, now_ms))

    def _retry(self, names: Iterable[str], now_ms: int) -> None:
        self.add(names, now_ms)
        self.deadline_ms = now_ms + RETRY_MS
