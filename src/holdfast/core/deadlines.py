"""What is due when: many deadlines, of which the earliest is wanted. Knows no clock.

Sessions are put off again and again and seldom run out. So a deadline that moves to a later time
costs no more than a store: its place in the heap is made good when its old time comes.
"""

from __future__ import annotations

import heapq
from typing import Final, Generic, TypeVar

NEVER_MS: Final = 2**63 - 1
"""A deadline that does not come."""

# Places in the heap beyond two for each deadline, before those that mean nothing are thrown out.
_SPARE: Final = 16

K = TypeVar("K")


class Deadlines(Generic[K]):
    """At most one deadline for each key. Equal times come in the order in which they were set."""

    __slots__ = ("_count", "_due_ms", "_heap", "_queued_ms")

    def __init__(self) -> None:
        self._due_ms: dict[K, int] = {}
        self._queued_ms: dict[K, int] = {}  # where the key stands in the heap: never behind its due
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._due_ms)

    def __contains__(self, key: K) -> bool:
        return key in self._due_ms

    def set(self, key: K, at_ms: int) -> None:
        """Let the key be due at this time, and at no other."""
        queued_ms = self._queued_ms.get(key)
        self._due_ms[key] = at_ms
        if queued_ms is None or at_ms < queued_ms:
            self._push(key, at_ms)

    def bring_forward(self, key: K, at_ms: int) -> None:
        """Let the key be due at this time, unless it is earlier anyway."""
        due_ms = self._due_ms.get(key)
        if due_ms is None or at_ms < due_ms:
            self.set(key, at_ms)

    def cancel(self, key: K) -> None:
        if self._due_ms.pop(key, None) is not None:
            del self._queued_ms[key]
            self._tidy()

    @property
    def next_ms(self) -> int:
        """The earliest deadline, or `NEVER_MS`."""
        while self._heap:
            at_ms, _, key = self._heap[0]
            if self._queued_ms.get(key) != at_ms:  # it was cancelled, or has an earlier place
                heapq.heappop(self._heap)
            elif self._due_ms[key] > at_ms:  # it was put off
                heapq.heappop(self._heap)
                self._push(key, self._due_ms[key])
            else:
                return at_ms
        return NEVER_MS

    def take(self, now_ms: int) -> K | None:
        """Take out the key that is due first; None when none is due by now."""
        if self.next_ms > now_ms or not self._heap:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._due_ms[key], self._queued_ms[key]
        return key

    def _push(self, key: K, at_ms: int) -> None:
        self._queued_ms[key] = at_ms
        self._count += 1
        heapq.heappush(self._heap, (at_ms, self._count, key))
        self._tidy()

    def _tidy(self) -> None:
        """Throw out the places that mean nothing when they are more than the others."""
        if len(self._heap) <= 2 * len(self._due_ms) + _SPARE:
            return
        kept: dict[K, tuple[int, int, K]] = {}
        for place in self._heap:
            if self._queued_ms.get(place[2]) == place[0]:
                kept[place[2]] = place
        self._heap = list(kept.values())
        heapq.heapify(self._heap)
