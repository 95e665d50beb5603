"""Records that may have expired, and whose offset, or one before it, was given to another later.

A log that has a record never gives its offset again, nor one before it. Where it did, the record
was gone by then, and not with the log's beginning: so no expiry explains that.
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
        self._rows = array(
            "i", sorted(rows, key=lambda row: (offsets[row], sends.answered_ms[row]))
        )
        self._offsets = array("q", (offsets[row] for row in self._rows))

        def later_sent(one: int, two: int) -> int:
            return two if sent_ms[two] > sent_ms[one] else one

        # Of all up to each: which one was sent last.
        self._latest = array("i", accumulate(self._rows, later_sent))

    def instead_of(self, row: int) -> int:
        """Return which one of them has a place that this one can't have kept; -1: none.

        It was acknowledged at the same offset, behind this one; or at that offset or before it,
        and sent when this one was acknowledged.
        """
        sends = self._sends
        last = bisect_right(self._offsets, sends.offsets[row]) - 1
        if self._rows[last] != row:
            return self._rows[last]
        latest = self._latest[last]
        known_ms = later(sends.answered_ms[row], sends.sent_ms[row])
        return latest if sends.sent_ms[latest] > known_ms else -1
