"""A flag on which one loop waits, with a bound.

Owns nothing but the flag. It stands in for `asyncio.wait_for(event.wait(), seconds)`, which makes a
task each time and, before Python 3.12, can swallow the cancellation of who waits.
"""

from __future__ import annotations

import asyncio


class Nudge:
    """Set by anybody, waited for by one."""

    __slots__ = ("_waiter", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake who waits now, or who waits next."""
        self.is_set = True
        self._settle()

    def clear(self) -> None:
        self.is_set = False

    async def wait(self, seconds: float | None = None) -> bool:
        """Return once it is set, or after so many seconds. True if it is set."""
        assert self._waiter is None, "one loop waits on a nudge"
        if self.is_set:
            return True
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, self._settle)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
        return self.is_set

    def _settle(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
