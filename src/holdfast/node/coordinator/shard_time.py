"""The time of one shard: the wall clock's when it began, and even from then on.

Sessions must not run out because somebody has set the clock, and what is kept of the time of a
commit must be the wall's. So a shard whose time is too far from the wall's is loaded anew.
"""

from __future__ import annotations

from typing import Final

from holdfast.runtime.ports import Clock

APART_MS_MAX: Final = 60_000
"""How far a shard's time may be from the wall's: nothing expires that is as young as that."""


class ShardTime:
    """Milliseconds since 1970 that go on evenly."""

    __slots__ = ("_ahead_ms", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = clock.wall_ms() - clock.monotonic_ms()

    def now_ms(self) -> int:
        return self._clock.monotonic_ms() + self._ahead_ms

    @property
    def is_wrong(self) -> bool:
        """Whether the clock was set, and much."""
        return abs(self._clock.wall_ms() - self.now_ms()) > APART_MS_MAX
