"""The waiting room: the one place where a broker's requests wait for what becomes of partitions.

Owns the queues by partition and the deadlines. Whoever registers a wait checks again afterwards;
whoever changes what is waited for wakes the key. It never decides whether a wait is over: the wait
itself does.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from holdfast.runtime.ports import Clock, never

DEADLINE_STEP_MS = 50  # acks=all deadlines are rounded up to this, and share one timer a step


class Wait(Protocol):
    """A request that is parked until one of its keys is woken and it says that it is done."""

    def try_complete(self) -> bool:
        """Answer if it can be answered now. True when it is over, and then never asked again."""

    def expire(self) -> None:
        """Answer with what there is: the deadline has passed."""


class OffsetWait(Protocol):
    """A request that waits for the high watermark of several partitions (acks=all)."""

    def settle(self, part: int) -> None:
        """Settle one of its partitions: its offset was reached, or its leadership is over.

        The last one answers the request.
        """

    @property
    def finished(self) -> bool: ...

    def expire(self) -> None: ...


class OffsetQueue:
    """Who waits for one partition's high watermark, the least offset first."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, OffsetWait, int]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, required: int, wait: OffsetWait, part: int) -> None:
        """Call `wait.settle(part)` once the high watermark is at `required`, or all are let go."""
        self._order += 1
        heapq.heappush(self._heap, (required, self._order, wait, part))

    def release(self, high_watermark: int) -> None:
        """Settle everybody whose offset has been reached."""
        heap = self._heap
        while heap and heap[0][0] <= high_watermark:
            _, _, wait, part = heapq.heappop(heap)
            if not wait.finished:
                wait.settle(part)

    def release_all(self) -> None:
        """Settle everybody: the leader is lost, the replica is stopped, or its disk is offline."""
        waiting, self._heap = self._heap, []
        for _, _, wait, part in sorted(waiting, key=lambda entry: entry[:2]):
            if not wait.finished:
                wait.settle(part)

    def drop_finished(self) -> None:
        """Forget those that have expired, so that a stalled partition does not collect them."""
        self._heap = [entry for entry in self._heap if not entry[2].finished]
        heapq.heapify(self._heap)


@dataclass(slots=True, eq=False)
class _Parked:
    wait: Wait
    keys: tuple[Hashable, ...]
    is_over: bool = False
    timer: asyncio.TimerHandle | None = None


class WaitingRoom:
    """Waits by key, asked once per turn of the loop, however much was touched in it.

    A wait looks at all that it waits for. To ask it once for each of its keys would cost the square
    of their number when a request, or the loss of a broker, touches all of them.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        provoke: Callable[[str], bool] = never,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._provoke = provoke
        self._parked: dict[Hashable, dict[_Parked, None]] = {}
        self._woken: dict[Hashable, None] = {}
        self._deadlines: dict[int, dict[OffsetWait, None]] = {}

    @property
    def parked(self) -> int:
        """How many waits are registered, counted once for each of their keys (a metric)."""
        return sum(len(waits) for waits in self._parked.values())

    def park(self, wait: Wait, keys: Iterable[Hashable], timeout_ms: int) -> Callable[[], None]:
        """Register a wait, then check again: what it waits for may have happened meanwhile.

        Returns what forgets it, for when nobody is there any more who could be answered.
        """
        parked = _Parked(wait, tuple(keys))
        for key in parked.keys:
            self._parked.setdefault(key, {})[parked] = None
        if wait.try_complete():
            self._forget(parked)
        else:
            if self._provoke("wait.expires-at-once"):
                timeout_ms = 0
            parked.timer = self._loop.call_later(timeout_ms / 1000, self._expire, parked)
        return partial(self._forget, parked)

    def wake(self, key: Hashable) -> None:
        """Something changed under `key`: its waits are asked before the loop sleeps again."""
        if key not in self._parked:
            return
        if not self._woken:
            self._loop.call_soon(self._ask_woken)
        self._woken[key] = None

    def _ask_woken(self) -> None:
        woken, self._woken = self._woken, {}
        if self._provoke("waits.in-reverse"):
            woken = dict(reversed(woken.items()))
        waits = dict.fromkeys(parked for key in woken for parked in self._parked.get(key, ()))
        asked = 0
        try:
            for parked in waits:
                asked += 1
                # It may have been answered by what another one's answer has brought about.
                if not parked.is_over and parked.wait.try_complete():
                    self._forget(parked)
        finally:
            # A mistake in one wait must not cost the others their turn.
            for parked in list(waits)[asked:]:
                self.wake(parked.keys[0])

    def _expire(self, parked: _Parked) -> None:
        parked.timer = None
        self._forget(parked)
        parked.wait.expire()

    def _forget(self, parked: _Parked) -> None:
        parked.is_over = True
        if parked.timer is not None:
            parked.timer.cancel()
        for key in parked.keys:
            waits = self._parked.get(key)
            if waits is not None:
                waits.pop(parked, None)
                if not waits:
                    del self._parked[key]

    # -- deadlines of acks=all: many, coarse, nearly all met ------------------------------------

    def expire_after(self, wait: OffsetWait, timeout_ms: int) -> int:
        """Call `wait.expire()` after `timeout_ms`, at most a step late. Returns the step."""
        if self._provoke("acks.expire-early"):
            timeout_ms = 0
        step = (self._clock.monotonic_ms() + timeout_ms) // DEADLINE_STEP_MS + 1
        waits = self._deadlines.get(step)
        if waits is None:
            waits = self._deadlines[step] = {}
            self._loop.call_later(
                (step * DEADLINE_STEP_MS - self._clock.monotonic_ms()) / 1000,
                self._expire_step,
                step,
            )
        waits[wait] = None
        return step

    def keep(self, wait: OffsetWait, step: int) -> None:
        """The wait was answered in time: forget its deadline."""
        self._deadlines.get(step, {}).pop(wait, None)

    def _expire_step(self, step: int) -> None:
        for wait in self._deadlines.pop(step, {}):
            if not wait.finished:
                wait.expire()

    def close(self) -> None:
        """Answer everything that waits with what there is: the node stops."""
        for waits in list(self._parked.values()):
            for parked in list(waits):
                if parked in waits:
                    self._forget(parked)
                    parked.wait.expire()
        for step in list(self._deadlines):
            self._expire_step(step)
