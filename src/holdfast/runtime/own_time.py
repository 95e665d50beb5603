"""How long something kept others from the loop: not how long the process stood still meanwhile.

Whoever rests behind what took long must not go by the clock alone. A process that stood still
(SIGSTOP, a machine that was suspended) would find that a request took seconds, and leave others
without an answer for twice as long once all is well. Nor by the processor alone: who waits for a
disk keeps others from the loop as well. So what took no processor counts up to a tenth of a second.
"""

from __future__ import annotations

from time import thread_time
from typing import Final

FRESH_S: Final = 0.005
WAIT_S: Final = 0.1  # a disk may take so long; behind that it is a standstill


class OwnTime:
    """Of what one thread does; asked often, it looks at its processor time seldom.

    To look costs ten times what the clock of the loop does, so what was looked at stays good for
    five milliseconds: `took` may be too much by so much, and never by more.
    """

    __slots__ = ("_looked_at", "_spent")

    def __init__(self) -> None:
        self._looked_at = float("-inf")
        self._spent = 0.0

    def begin(self, now: float) -> float:
        """Something begins that may take long, at `now`, which is returned. In seconds."""
        if now - self._looked_at > FRESH_S:
            self._looked_at = now
            self._spent = thread_time()
        return now

    def took(self, began: float, now: float) -> float:
        """Return for how many seconds of those between it kept others from the loop.

        `began` is not before the last `begin`.
        """
        return min(now - began, max(WAIT_S, thread_time() - self._spent))
