"""What is done again and again, for thousands of things a few at a time.

Owns the timers. Knows nothing of what is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.runtime.ports import T

SLICE: Final = 20  # things that are looked at before others get the loop


class Periodic:
    """Timers by name, until `stop`."""

    def __init__(self) -> None:
        self.timers: dict[str, asyncio.TimerHandle] = {}

    def every(
        self, name: str, interval_ms: int, work: Callable[[], None], *, first_ms: int | None = None
    ) -> None:
        """Call `work` every so often. A name has one timer."""
        loop = asyncio.get_running_loop()

        def run() -> None:
            self.timers[name] = loop.call_later(interval_ms / 1000, run)
            work()

        delay_ms = interval_ms if first_ms is None else first_ms
        self.timers[name] = loop.call_later(delay_ms / 1000, run)

    def in_slices(self, name: str, things: Sequence[T], work: Callable[[T], None]) -> None:
        """Do `work` for each, a few at a time, so that the loop never stands still."""
        loop = asyncio.get_running_loop()
        if name in self.timers:
            return  # the last round is not over

        def go_on(first: int) -> None:
            for thing in things[first : first + SLICE]:
                work(thing)
            if first + SLICE < len(things):
                self.timers[name] = loop.call_later(0, go_on, first + SLICE)
            else:
                self.timers.pop(name, None)

        go_on(0)

    def stop(self) -> None:
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()
