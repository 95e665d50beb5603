"""Which replicas of a log directory are to be forced to disk, and when (flush.ms).

Owns their timers. Thousands of replicas are written at one moment and are due at another one: they
go a few in each turn of the loop.

Rules: log.md#forced-to-disk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

SLICE: Final = 20  # replicas whose flushes are begun in one turn
_TIMER_S_MAX: Final = 86_400 * 365  # who waits for longer waits in several steps


class Flushable(Protocol):
    """A replica."""

    def flush_in_background(self) -> None:
        """Begin to flush what is appended, if that has not begun; nothing waits for it."""


class DueFlushes:
    """At most one deadline for each replica: the first that was said."""

    __slots__ = ("_due", "_timers", "_turn")

    def __init__(self) -> None:
        self._timers: dict[Flushable, asyncio.TimerHandle] = {}
        self._due: deque[Flushable] = deque()  # whose time has come
        self._turn: asyncio.Handle | None = None

    def add(self, replica: Flushable, delay_ms: int) -> None:
        """Have it flushed after a while, unless that is said already."""
        if replica not in self._timers:
            delay_s = min(delay_ms / 1000, _TIMER_S_MAX)
            self._timers[replica] = asyncio.get_running_loop().call_later(
                delay_s, self._is_due, replica
            )

    def forget(self, replica: Flushable) -> None:
        """It is gone, or another time is wanted."""
        timer = self._timers.pop(replica, None)
        if timer is not None:
            timer.cancel()

    def clear(self) -> None:
        """Nothing is flushed here any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._due.clear()

    def _is_due(self, replica: Flushable) -> None:
        del self._timers[replica]
        self._due.append(replica)
        self._schedule()

    def _take_turn(self) -> None:
        self._turn = None
        for _ in range(min(SLICE, len(self._due))):
            self._due.popleft().flush_in_background()
        self._schedule()

    def _schedule(self) -> None:
        if self._turn is None and self._due:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)
