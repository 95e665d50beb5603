"""When a slowed link lets a packet go: latency, jitter, rate and reordering, from a seed. Pure."""

from __future__ import annotations

import random
from typing import Final

from holdfast.cluster.network.link_table import Slow

BACKLOG_US_MAX: Final = 1_000_000  # of packets that wait for their rate
BACKLOG_BYTES_MIN: Final = 256 << 10  # which always may: several of the largest packets
WAITING_BYTES_MAX: Final = 64 << 20  # of one link, whatever they wait for
ALL_WAITING_BYTES_MAX: Final = 256 << 20  # of all links together
PACKET_BYTES: Final = 256  # beside its own that a packet takes while it waits: objects, a slot
# Jitter goes from one drawn value to the next in so many times its bound: by half a microsecond in
# one at most. So who comes later leaves later, and nobody is held up behind another.
_LEG: Final = 4


class Room:
    """Memory for what waits, of all links that share it."""

    def __init__(self) -> None:
        self.left_bytes = ALL_WAITING_BYTES_MAX


class Sharer:
    """One of those who share links and lose nothing: what they have waiting."""

    def __init__(self) -> None:
        self.waiting_bytes = 0


class SlowLink:
    """One direction between two places. Times are microseconds of whatever clock is asked by.

    `room`: what it shares with others; without it all is its own.
    """

    def __init__(self, how: Slow, seed: str, room: Room | None = None) -> None:
        self.how = how
        self._room = Room() if room is None else room
        self.dropped = 0  # for want of room
        self._random = random.Random(seed)  # noqa: S311 - to be made again, not to be secret
        self._free_us = 0  # when the rate lets the next packet begin
        self._rest = 0  # beyond that, in parts of a microsecond of which `rate` are a whole one
        self._leg_begins_us: int | None = None  # None: nobody has come yet
        self._jitters_us = (0, 0)  # at the leg's begin and at its end
        self._waiting_bytes = 0

    def admit(self, now_us: int, size: int, sharer: Sharer | None = None) -> int | None:
        """Return when a packet that comes now leaves; None: there is no room for it.

        `sharer`: whose packet it is; whoever has none waiting finds room for one in any case.
        """
        begins = max(now_us, self._free_us) if self.how.rate else now_us
        if self.is_full_for(size, sharer) or begins - now_us > self._backlog_us_max():
            self.dropped += 1
            return None
        self._take(size + PACKET_BYTES, sharer)
        passed = self._pass(begins, size) if self.how.rate else now_us
        if self.how.reorder and self._random.randrange(10_000) < self.how.reorder:
            return passed
        return passed + self.how.latency_us + self._jitter_us(passed)

    def is_full_for(self, size: int, sharer: Sharer | None) -> bool:
        """Return whether there is no room for a packet.

        Of what is shared nobody has more than is left for all others, be it a link or a sharer of
        one: what a relay can't pass on leaves only when the other side takes it. Many who take
        nothing leave next to nothing, and even then each of the others goes on packet by packet.
        """
        held = size + PACKET_BYTES
        most = min(WAITING_BYTES_MAX, self._room.left_bytes)
        left = most - self._waiting_bytes
        if sharer is None:
            return held > left
        return sharer.waiting_bytes > 0 and held > left - sharer.waiting_bytes

    def _take(self, held: int, sharer: Sharer | None) -> None:
        self._waiting_bytes += held
        self._room.left_bytes -= held
        if sharer is not None:
            sharer.waiting_bytes += held

    def _pass(self, begins_us: int, size: int) -> int:
        """Return when a packet that begins then has passed the rate."""
        rest = self._rest if begins_us == self._free_us else 0
        # Whole microseconds alone would let small packets pass too soon.
        whole_us, self._rest = divmod(size * 1_000_000 + rest, self.how.rate)
        self._free_us = begins_us + whole_us
        return self._free_us

    def _jitter_us(self, at_us: int) -> int:
        """Return how much more than the latency a packet takes. Moments never go back.

        It changes slowly: were it drawn anew for each packet, then of packets that come close upon
        each other only the slowest would take what was drawn, and all others wait behind it.
        """
        most_us = self.how.jitter_us
        if not most_us:
            return 0
        leg_us = _LEG * most_us
        begins_us, (first_us, last_us) = self._leg_begins_us, self._jitters_us
        if begins_us is None or at_us >= begins_us + 2 * leg_us:  # a leg or more without a packet
            begins_us, first_us, last_us = at_us, self._draw_us(), self._draw_us()
        elif at_us >= begins_us + leg_us:
            begins_us, first_us, last_us = begins_us + leg_us, last_us, self._draw_us()
        self._leg_begins_us, self._jitters_us = begins_us, (first_us, last_us)
        return first_us + (last_us - first_us) * (at_us - begins_us) // leg_us

    def _draw_us(self) -> int:
        return self._random.randint(-self.how.jitter_us, self.how.jitter_us)

    def lets_in_us(self) -> int:
        """Return from when on the rate lets in a packet, as far as it is known by now."""
        return self._free_us - self._backlog_us_max()

    def _backlog_us_max(self) -> int:
        floor_us = BACKLOG_BYTES_MIN * 1_000_000 // self.how.rate if self.how.rate else 0
        return max(BACKLOG_US_MAX, floor_us)

    def left(self, size: int, sharer: Sharer | None = None) -> None:
        """Note that a packet has left."""
        self._take(-(size + PACKET_BYTES), sharer)
        assert self._waiting_bytes >= 0
        assert sharer is None or sharer.waiting_bytes >= 0
