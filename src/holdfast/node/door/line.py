"""Connections that have to wait for their turn, because what they ask holds up others.

Owns the order, and the rests in between. One of them goes on in each turn of the loop; after one
that took long the loop is left to others for longer than that, however many connections it is that
ask what takes long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

SLICE_S: Final = 0.0005  # of requests that came together, and of waits that were woken together
DEAR_S: Final = 0.005  # one request that takes longer is a dear one
DEAR_BYTES: Final = 64 * 1024  # one without records that has more may well be
PIECE_REST_S: Final = 0.0003  # behind a small piece of a frame: several times what one costs
REST_FACTOR: Final = 2  # how many times longer the rest is than what was before it
REST_S: Final = 0.25  # and at least so long behind a large one: of what a neighbour asks one by
# one, at a millisecond each, not one in a hundred meets it


class Waiting(Protocol):
    """A connection, as far as its turn matters."""

    def take_turn(self) -> None:
        """Go on."""


class Line:
    """Who stands in it goes on once, and is out of it then."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()
        self._rests_until = float("-inf")  # loop time, seconds
        self._is_called = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_resting(self) -> bool:
        """Whether nobody's turn comes for now."""
        return asyncio.get_running_loop().time() < self._rests_until

    def add(self, waiting: Waiting) -> None:
        self._waiting.append(waiting)
        self._call()

    def rest_after(self, seconds: float, least_s: float = 0.0) -> None:
        """Leave the loop to others: somebody has had it for so long. No rest ends sooner by it."""
        rest = max(REST_FACTOR * seconds, least_s)
        until = asyncio.get_running_loop().time() + rest
        self._rests_until = max(self._rests_until, until)

    def _call(self) -> None:
        if self._is_called or not self._waiting:
            return
        self._is_called = True
        loop = asyncio.get_running_loop()
        if self.is_resting:
            loop.call_at(self._rests_until, self._next)
        else:
            loop.call_soon(self._next)

    def _next(self) -> None:
        self._is_called = False
        if not self.is_resting:
            try:
                self._waiting.popleft().take_turn()
            finally:
                self._call()
        else:
            self._call()
