"""Small work for many, each at a time of its own: a few of them in each turn of the loop.

Owns their timers, and who is due. Thousands may be written in one turn, or hear of other settings
in one, and would be due together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final, Generic, TypeVar

_TIMER_S_MAX: Final = 86_400 * 365  # no timer goes off in 300 million years

K = TypeVar("K")  # can be hashed


class TimedTurns(Generic[K]):
    """`work` is done for each that is due, `in_a_turn` of them in one turn.

    At most one timer for each: the first time that was said counts.
    """

    __slots__ = ("_due", "_in_a_turn", "_timers", "_turn", "_work")

    def __init__(self, work: Callable[[K], None], *, in_a_turn: int) -> None:
        self._work = work
        self._in_a_turn = in_a_turn
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._due: dict[K, None] = {}  # their time has come
        self._turn: asyncio.Handle | None = None

    def __len__(self) -> int:
        """How many are due, or will be."""
        return len(self._timers.keys() | self._due.keys())

    def add(self, key: K, delay_ms: int) -> None:
        """Let it be due after a while, unless a time is said already."""
        if key not in self._timers:
            delay_s = min(delay_ms / 1000, _TIMER_S_MAX)
            self._timers[key] = asyncio.get_running_loop().call_later(delay_s, self._timed, key)

    def now(self, key: K) -> None:
        """Let it be due: its turn comes soon, and it has one however often this is said."""
        self._due[key] = None
        self._schedule()

    def forget(self, key: K) -> None:
        """It is gone, or has to say anew when it is due."""
        self._due.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def clear(self) -> None:
        """Forget all."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._due.clear()

    def _timed(self, key: K) -> None:
        del self._timers[key]
        self.now(key)

    def _take_turn(self) -> None:
        self._turn = None
        for key in [*islice(self._due, self._in_a_turn)]:
            del self._due[key]
            self._work(key)
        self._schedule()

    def _schedule(self) -> None:
        if self._due and self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)
