"""Sets of offsets as ranges: what was acknowledged, read, processed. A log without holes is one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from holdfast.judge.sends import HistoryTooLargeError

RANGES_MAX = 200_000
Range = tuple[int, int]  # [begin, end)


class Ranges:
    """Offsets, in ranges that neither touch nor overlap, in their order."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        self.end = 0  # behind the highest; 0: there is none

    def __iter__(self) -> Iterator[Range]:
        return zip(self._begins, self._ends, strict=True)

    def __len__(self) -> int:
        """Return how many ranges there are."""
        return len(self._begins)

    def __contains__(self, offset: int) -> bool:
        place = bisect_right(self._begins, offset) - 1
        return place >= 0 and offset < self._ends[place]

    def add(self, offset: int) -> bool:
        """Add an offset. False: it was there."""
        ends = self._ends
        if offset == self.end and ends:
            self.end = ends[-1] = offset + 1
            return True
        begins = self._begins
        place = bisect_right(begins, offset)  # of the first range behind it
        if place and offset < ends[place - 1]:
            return False
        joins_left = place > 0 and ends[place - 1] == offset
        joins_right = place < len(begins) and begins[place] == offset + 1
        if joins_left and joins_right:
            ends[place - 1] = ends[place]
            del begins[place], ends[place]
        elif joins_left:
            ends[place - 1] = offset + 1
        elif joins_right:
            begins[place] = offset
        else:
            if len(begins) >= RANGES_MAX:
                raise HistoryTooLargeError(f"more than {RANGES_MAX} holes between offsets")
            begins.insert(place, offset)
            ends.insert(place, offset + 1)
        self.end = ends[-1]
        return True

    def within(self, low: int, high: int) -> Iterator[Range]:
        """Yield what of it is in [low, high)."""
        place = max(0, bisect_right(self._begins, low) - 1)
        while place < len(self._begins) and self._begins[place] < high:
            begin, end = max(low, self._begins[place]), min(high, self._ends[place])
            if begin < end:
                yield begin, end
            place += 1


def without(ranges: Iterable[Range], other: Ranges) -> Iterator[Range]:
    """Yield what of these is not in the other set."""
    for begin, end in ranges:
        low = begin
        for hole_begin, hole_end in other.within(begin, end):
            if low < hole_begin:
                yield low, hole_begin
            low = hole_end
        if low < end:
            yield low, end
