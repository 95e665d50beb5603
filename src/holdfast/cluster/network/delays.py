"""When a slowed link lets a packet go: latency, jitter, rate and reordering, from a seed. Pure."""

from __future__ import annotations

import random
from typing import Final

from holdfast.cluster.network.link_table import Slow

BACKLOG_US_MAX: Final = 1_000_000  # of packets that wait for their rate
BACKLOG_BYTES_MIN: Final = 256 << 10  # which always may: several of the largest packets
WAITING_BYTES_MAX: Final = 64 << 20  # of one link, whatever they wait for


class SlowLink:
    """One direction between two places. Times are microseconds of whatever clock is asked by."""

    def __init__(self, how: Slow, seed: str) -> None:
        self.how = how
        self.dropped = 0  # for want of room
        self._random = random.Random(seed)  # noqa: S311 - to be made again, not to be secret
        self._free_us = 0  # when the rate lets the next packet begin
        self._last_us = 0  # when the last one in order leaves
        self._waiting_bytes = 0

    def admit(self, now_us: int, size: int) -> int | None:
        """Return when a packet that comes now leaves; None: there is no room for it."""
        begins = max(now_us, self._free_us) if self.how.rate else now_us
        if self._waiting_bytes + size > WAITING_BYTES_MAX or self._is_behind(begins - now_us):
            self.dropped += 1
            return None
        self._waiting_bytes += size
        passed = begins
        if self.how.rate:
            passed = self._free_us = begins + size * 1_000_000 // self.how.rate
        if self.how.reorder and self._random.randrange(10_000) < self.how.reorder:
            return passed
        jitter = self._random.randint(-self.how.jitter_us, self.how.jitter_us)
        self._last_us = max(self._last_us, passed + self.how.latency_us + jitter)
        return self._last_us

    def _is_behind(self, backlog_us: int) -> bool:
        floor_us = BACKLOG_BYTES_MIN * 1_000_000 // self.how.rate if self.how.rate else 0
        return backlog_us > max(BACKLOG_US_MAX, floor_us)

    def left(self, size: int) -> None:
        """Note that a packet has left."""
        self._waiting_bytes -= size
        assert self._waiting_bytes >= 0
