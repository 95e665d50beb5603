"""Records that may have expired, and whose offset, or one before it, was given to another later.

A log that has a record never gives its offset again, nor one before it. Of two for which that
happened one is gone, and not with the log's beginning: so no expiry explains it. Which one it is
the acknowledgements alone can't tell; the one that was sent first is named. (A leader that was cut
off without knowing it may have given the later one its place, with acks=1.)
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from holdfast.judge.history import later
from holdfast.judge.sends import Sends


class GivenAgain:
    """What acknowledgements before the log's beginning say of each other."""

    def __init__(self, sends: Sends, rows: Iterable[int]) -> None:
        """`rows`, in their order: what was acknowledged with an offset, and may have expired.

        What is lost in any case shows nothing: it may be the one that had to give way.
        """
        offsets, sent_ms = sends.offsets, sends.sent_ms
        self._sends = sends
        in_order = sorted(rows, key=lambda row: (offsets[row], sent_ms[row]))
        self._offsets = array("q", (offsets[row] for row in in_order))

        def later_sent(one: int, two: int) -> int:
            return two if sent_ms[two] > sent_ms[one] else one

        # Of all up to each: which one was sent last.
        self._latest = array("i", accumulate(in_order, later_sent))
        # Who has gone for certain takes nobody's place.
        self._left = array("i", (row for row in in_order if self._sent_after(row) < 0))
        self._left_offsets = array("q", (offsets[row] for row in self._left))

    def instead_of(self, row: int) -> int:
        """Return which one of them has a place that this one can't have kept; -1: none.

        It was acknowledged at that offset or before it and sent when this one was acknowledged;
        or, of those for which there is no such one, at the same offset, and sent no earlier.
        """
        other = self._sent_after(row)
        if other >= 0:
            return other
        holder = self._left[bisect_right(self._left_offsets, self._sends.offsets[row]) - 1]
        return holder if holder != row else -1

    def is_after(self, later_row: int, row: int) -> bool:
        """Whether one was certainly sent when the other had been acknowledged."""
        sends = self._sends
        return sends.sent_ms[later_row] > later(sends.answered_ms[row], sends.sent_ms[row])

    def _sent_after(self, row: int) -> int:
        latest = self._latest[bisect_right(self._offsets, self._sends.offsets[row]) - 1]
        return latest if self.is_after(latest, row) else -1
