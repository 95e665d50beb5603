"""How late the loop's timers come: so long one callback held up all others, or nobody ran it.

Owns one timer that always runs, and the worst of its last minute.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from holdfast.runtime.ports import Clock

INTERVAL_MS: Final = 100
WINDOW_MS: Final = 60_000


class LoopLag:
    """Of one loop; one for each process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # When, and how late: each less late than the one before it, or that one would be forgotten.
        self._worst: deque[tuple[int, int]] = deque()
        self._due_ms = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look; needs a running loop."""
        self._due_ms = self._clock.monotonic_ms() + INTERVAL_MS
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_MS / 1000, self._came)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def worst_ms(self) -> int:
        """Return how late the timer came at worst in the last minute, in ms."""
        self._forget(self._clock.monotonic_ms())
        return self._worst[0][1] if self._worst else 0

    def _came(self) -> None:
        now_ms = self._clock.monotonic_ms()
        late_ms, worst = now_ms - self._due_ms, self._worst
        if late_ms > 0:
            while worst and worst[-1][1] <= late_ms:
                worst.pop()
            worst.append((now_ms, late_ms))
        self._forget(now_ms)
        self.start()

    def _forget(self, now_ms: int) -> None:
        worst = self._worst
        while worst and worst[0][0] <= now_ms - WINDOW_MS:
            worst.popleft()
