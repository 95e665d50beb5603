"""Links between hosts: how long a segment takes, whether it is lost, how much gets through.

Owns what happens below TCP, as TCP shows it: a lost segment comes later and holds up all behind
it, after too many losses the connection is given up; copies only cost room on the link. It must
never lose or reorder bytes of a connection that lives.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

RETRANSMIT_S = 0.2  # the least retransmission time-out of Linux; doubles with every loss
RETRANSMIT_MAX_S = 120.0
GIVE_UP_S = 924.6  # tcp_retries2 = 15: how long Linux goes on sending what nobody acknowledges
_FAST_CHANCE = 0.5  # a loss is seen by what follows it: sent again after a round trip


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How a link behaves. Chances are for each segment."""

    delay_us: tuple[int, int] = (50, 500)  # bounds of one way
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0  # a segment takes up to `reorder_us` longer; what overtook it waits for it
    reorder_us: int = 20_000
    bytes_per_s: int | None = None  # shared by all connections of the link

    def __post_init__(self) -> None:
        assert 0 <= self.delay_us[0] <= self.delay_us[1], "a delay's bounds are in order"
        assert 0 <= self.loss < 1, "a link that loses everything is cut"
        assert self.bytes_per_s is None or self.bytes_per_s > 0, (
            "a link that lets nothing through is cut"
        )


@dataclass(slots=True)
class Link:
    """From one host to another."""

    weather: Weather | None = None  # None: as the fabric has it everywhere
    cut: bool = False
    clogged_until_s: float = 0.0
    free_at_s: float = 0.0  # when a throttled link has sent all that it was given
    held: list[Callable[[], None]] = field(default_factory=list)  # what waits for a cut to end

    def transit_s(
        self, weather: Weather, now_s: float, size: int, draw: random.Random, give_up_s: float
    ) -> float | None:
        """Seconds until a segment of `size` bytes arrives. None: the sender's TCP gives up."""
        low, high = weather.delay_us
        # One draw for the usual case: this runs for every segment of every run.
        delay_s = (low + (high - low) * draw.random()) / 1e6
        copies = 1
        if weather.loss:
            waited_s = 0.0
            timeout_s = RETRANSMIT_S
            while draw.random() < weather.loss:
                copies += 1
                if copies == 2 and draw.random() < _FAST_CHANCE:
                    waited_s += 2 * delay_s
                else:
                    waited_s += timeout_s
                    timeout_s = min(2 * timeout_s, RETRANSMIT_MAX_S)
                if waited_s > give_up_s:
                    return None
            delay_s += waited_s
        if weather.duplicate and draw.random() < weather.duplicate:
            copies += 1
        if weather.reorder and draw.random() < weather.reorder:
            delay_s += draw.random() * weather.reorder_us / 1e6
        if weather.bytes_per_s is not None:
            self.free_at_s = max(now_s, self.free_at_s) + copies * size / weather.bytes_per_s
            delay_s += self.free_at_s - now_s
        return max(delay_s, self.clogged_until_s - now_s)
