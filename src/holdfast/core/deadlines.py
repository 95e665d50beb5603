"""What is due when: many deadlines, of which the earliest is wanted. Knows no clock.

Sessions are put off again and again and seldom run out. So a deadline that moves to a later time
costs no more than a store: its place in the heap is made good when its old time comes.
"""

from __future__ import annotations

import heapq
from typing import Final, Generic, TypeVar

NEVER_MS: Final = 2**63 - 1
"""A deadline that does not come."""

# Places in the heap beyond two for each deadline, before those that mean nothing are thrown out,
_SPARE: Final = 16
_STEP: Final = 8  # so many with each deadline that is set or cancelled: thousands at once take long

K = TypeVar("K")


class Deadlines(Generic[K]):
    """At most one deadline for each key. Equal times come in the order in which they were set."""

    __slots__ = ("_count", "_due_ms", "_heap", "_old", "_places")

    def __init__(self) -> None:
        self._due_ms: dict[K, int] = {}
        # Where each key stands in the heap: never behind its due. Other places mean nothing.
        self._places: dict[K, tuple[int, int, K]] = {}
        self._heap: list[tuple[int, int, K]] = []
        # Another heap, which is looked through from its end: what counts of it goes into the first.
        self._old: list[tuple[int, int, K]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._due_ms)

    def __contains__(self, key: K) -> bool:
        return key in self._due_ms

    def set(self, key: K, at_ms: int) -> None:
        """Let the key be due at this time, and at no other."""
        place = self._places.get(key)
        self._due_ms[key] = at_ms
        if place is None or at_ms < place[0]:
            self._put(key, at_ms)
            self._tidy()

    def bring_forward(self, key: K, at_ms: int) -> None:
        """Let the key be due at this time, unless it is earlier anyway."""
        due_ms = self._due_ms.get(key)
        if due_ms is None or at_ms < due_ms:
            self.set(key, at_ms)

    def cancel(self, key: K) -> None:
        if self._due_ms.pop(key, None) is not None:
            del self._places[key]
            self._tidy()

    @property
    def next_ms(self) -> int:
        """The earliest deadline, or `NEVER_MS`."""
        return min(*self._firsts())[0]

    @property
    def wake_ms(self) -> int:
        """No later than the earliest deadline, and cheap; `NEVER_MS` if there is none.

        It is the old time of one that was put off, until somebody comes then, `take`s none, and
        looks again.
        """
        if not self._due_ms:
            return NEVER_MS
        heap, old = self._heap, self._old
        if not old:
            return heap[0][0]
        return min(heap[0][0], old[0][0]) if heap else old[0][0]

    def take(self, now_ms: int) -> K | None:
        """Take out the key that is due first; None when none is due by now."""
        first, old = self._firsts()
        if not self._due_ms or min(first, old)[0] > now_ms:
            return None
        _, _, key = heapq.heappop(self._heap if first < old else self._old)
        del self._due_ms[key], self._places[key]
        return key

    def _firsts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return when the first of each heap is due, and its number."""
        old = self._first(self._old)  # before the other one, into which it may put some
        return self._first(self._heap), old

    def _first(self, heap: list[tuple[int, int, K]]) -> tuple[int, int]:
        """Return the same of one heap; what counts for nothing is thrown out before."""
        while heap:
            place = heap[0]
            at_ms, number, key = place
            if self._places.get(key) is not place:  # it was cancelled, or has another place
                heapq.heappop(heap)
            elif self._due_ms[key] > at_ms:  # it was put off
                heapq.heappop(heap)
                self._put(key, self._due_ms[key])
            else:
                return at_ms, number
        return NEVER_MS, 0

    def _put(self, key: K, at_ms: int) -> None:
        self._count += 1
        place = self._places[key] = (at_ms, self._count, key)
        heapq.heappush(self._heap, place)

    def _tidy(self) -> None:
        """Throw out the places that mean nothing when they are more than the others, by steps."""
        if not self._old and len(self._heap) > 2 * len(self._due_ms) + _SPARE:
            self._old, self._heap = self._heap, []
        for _ in range(min(_STEP, len(self._old))):
            place = self._old.pop()  # of a heap without its end a heap is left
            if self._places.get(place[2]) is place:
                heapq.heappush(self._heap, place)
