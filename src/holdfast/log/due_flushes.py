"""Which replicas of a log directory are to be forced to disk, and when (flush.messages, flush.ms).

Owns their timers, and who is due now. Thousands of replicas are written in one turn of the loop, or
hear of other settings in one: they go a few in each turn, and what is appended to one of them until
then goes with it.

Rules: log.md#forced-to-disk.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Final, Protocol

SLICE: Final = 20  # replicas whose flushes are begun in one turn
_TIMER_S_MAX: Final = 86_400 * 365  # no timer goes off in 300 million years


class Flushable(Protocol):
    """A replica."""

    def flush_in_background(self) -> None:
        """Begin to flush what is appended, if that has not begun; nothing waits for it."""


class DueFlushes:
    """At most one timer for each replica: the first time that was said counts."""

    __slots__ = ("_due", "_timers", "_turn")

    def __init__(self) -> None:
        self._timers: dict[Flushable, asyncio.TimerHandle] = {}
        self._due: dict[Flushable, None] = {}  # their time has come
        self._turn: asyncio.Handle | None = None

    def add(self, replica: Flushable, delay_ms: int) -> None:
        """Have it flushed after a while, unless that is said already."""
        if replica not in self._timers:
            delay_s = min(delay_ms / 1000, _TIMER_S_MAX)
            self._timers[replica] = asyncio.get_running_loop().call_later(
                delay_s, self._timed, replica
            )

    def now(self, replica: Flushable) -> None:
        """Have it flushed when it is its turn."""
        self._due[replica] = None
        self._schedule()

    def forget(self, replica: Flushable) -> None:
        """It is gone, or has to say anew when it is due."""
        self._due.pop(replica, None)
        timer = self._timers.pop(replica, None)
        if timer is not None:
            timer.cancel()

    def clear(self) -> None:
        """Nothing is flushed here any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._due.clear()

    def _timed(self, replica: Flushable) -> None:
        del self._timers[replica]
        self.now(replica)

    def _take_turn(self) -> None:
        self._turn = None
        for replica in [*islice(self._due, SLICE)]:
            del self._due[replica]
            replica.flush_in_background()
        self._schedule()

    def _schedule(self) -> None:
        if self._due and self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)
