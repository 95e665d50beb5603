"""How many bytes stood behind a log's beginning: for certain, and at most.

Retention by size takes a record when enough stands behind it. What replicas' files hold is certain.
What was sent and stands nowhere may have stood there, too, and been truncated later, or never have
been written at all: so it can make a loss undecided, and excuses none.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from math import inf

from holdfast.judge.deliveries import WholeRead
from holdfast.judge.replicas import ReplicaFiles
from holdfast.judge.sends import Fate, Sends

BATCH_OVERHEAD = 128  # bytes, at most, that a record of its own batch takes beside its value


class Sizes:
    """The bytes of one partition, as its files and its sends show them."""

    def __init__(self, sends: Sends, whole: WholeRead | None) -> None:
        self._sends = sends
        self._whole = whole
        self._standing: tuple[bytearray, dict[int, int]] | None = None
        self._acknowledged: tuple[array[int], array[int]] | None = None

    def in_files(
        self, replicas: Sequence[ReplicaFiles], begin: int, until_ms: float
    ) -> tuple[int, int]:
        """How much of the largest replica stands from `begin` on and was sent before a moment.

        For certain, and at most: of some batches nobody knows when they were sent.
        """
        found = [self._in_file(replica, begin, until_ms) for replica in replicas]
        return (
            max((certain for certain, _ in found), default=0),
            max((possible for _, possible in found), default=0),
        )

    def _in_file(self, replica: ReplicaFiles, begin: int, until_ms: float) -> tuple[int, int]:
        certain = possible = 0
        for first, last, size in replica.stored(begin):
            sent_ms = -inf if until_ms == inf else self._sent_ms(first, last)
            certain += size if sent_ms is not None and sent_ms < until_ms else 0
            possible += size if sent_ms is None or sent_ms < until_ms else 0
        return certain, possible

    def in_doubt(self, begin: int, until_ms: float, is_due: Callable[[int], bool]) -> int:
        """How much, at most, was sent before a moment and stood behind `begin` besides.

        `is_due`: whether a record may be gone for another reason than the size. What no offset was
        told of may have stood before `begin`, and what is gone there without a reason excuses
        nothing.
        """
        sends, total = self._sends, 0
        stands, earliest = self._standing_rows()
        for row, fate in enumerate(sends.fates):
            if stands[row] or fate == Fate.REFUSED or sends.sent_ms[row] >= until_ms:
                continue
            offset = sends.offsets[row]
            if fate != Fate.ACKNOWLEDGED:
                is_behind = True
            elif offset < 0:
                first = earliest.get(sends.processes[row])
                is_behind = (first is not None and row > first) or is_due(row)
            else:
                is_behind = offset >= begin and self._whole is not None
            total += sends.sizes[row] + BATCH_OVERHEAD if is_behind else 0
        return total

    def _standing_rows(self) -> tuple[bytearray, dict[int, int]]:
        """Which rows stand in the log, and the first of each process that does."""
        if self._standing is None:
            stands = bytearray(len(self._sends))
            first: dict[int, int] = {}
            codes = () if self._whole is None else self._whole.log.codes
            for row in sorted(code for code in codes if code >= 0):
                stands[row] = 1
                first.setdefault(self._sends.processes[row], row)
            self._standing = stands, first
        return self._standing

    def _sent_ms(self, first: int, last: int) -> float | None:
        """When the first known record in [first, last] was sent; None: none is known."""
        row = next(self._known(first, last), None)
        return None if row is None else self._sends.sent_ms[row]

    def _known(self, first: int, last: int) -> Iterator[int]:
        """Yield the rows of what stands in [first, last]; without a whole read, as acknowledged."""
        if self._whole is not None:
            log = self._whole.log
            for place in range(log.place(first), log.place(last + 1)):
                if log.codes[place] >= 0:
                    yield log.codes[place]
            return
        if self._acknowledged is None:
            sends = self._sends
            placed = sorted(
                (offset, row) for row, offset in enumerate(sends.offsets) if offset >= 0
            )
            self._acknowledged = (
                array("q", [o for o, _ in placed]),
                array("q", [r for _, r in placed]),
            )
        offsets, rows = self._acknowledged
        yield from rows[bisect_left(offsets, first) : bisect_left(offsets, last + 1)]
