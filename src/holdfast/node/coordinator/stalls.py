"""Whether this process has stood still: heartbeats may lie unread in its sockets then.

A process that was stopped, or starved, for longer than a session would end the sessions of members
that are well. So for a while after that nothing is due: what lies in the sockets is read first.

Rules: classic-groups.md#sessions.
"""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast.runtime.ports import Clock

INTERVAL_MS: Final = 250
LATE_MS: Final = 500  # a timer that is later than this says that the process stood still,
GRACE_MS: Final = 1000  # so long it may read what it was sent,
GRACES_MAX: Final = 3  # and so often one after the other: a slow process must end sessions, too


class Stalls:
    """One timer that always runs, and how long ago it was far too late."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._graces = 0
        self._until_ms = 0
        self._set()

    @property
    def grace_ms(self) -> int:
        """How long nothing is due yet; 0: what is due may be done."""
        now_ms = self._clock.monotonic_ms()
        if now_ms > self._due_ms + LATE_MS:
            self._note(now_ms)  # our timer has yet to come
        return max(0, self._until_ms - now_ms)

    def close(self) -> None:
        self._timer.cancel()

    def _set(self) -> None:
        self._due_ms = self._clock.monotonic_ms() + INTERVAL_MS
        self._timer = self._loop.call_later(INTERVAL_MS / 1000, self._came)

    def _came(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms > self._due_ms + LATE_MS:
            self._note(now_ms)
        elif now_ms >= self._until_ms:
            self._graces = 0
        self._set()

    def _note(self, now_ms: int) -> None:
        self._due_ms = now_ms + INTERVAL_MS  # told once
        if self._graces < GRACES_MAX:
            self._graces += 1
            self._until_ms = now_ms + GRACE_MS
