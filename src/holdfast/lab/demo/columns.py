"""Digests and places of a whole log, in columns: some twelve bytes an event.

What a table of millions of rows is held against has to fit beside it. Numbers come in ascending
order nearly always, and close to each other; whatever doesn't is right all the same, only slower.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from holdfast.judge.history import HistoryError

PLACES_MAX = 1 << 30  # bits for one partition; a place beyond is kept by itself


def whole(number: Any) -> int | None:
    """Return what a table's column says as a whole number; None when it is none."""
    if not isinstance(number, int | float | Decimal):
        return None
    try:
        found = int(number)
    except (ValueError, OverflowError):  # no number, or infinity
        return None
    return found if found == number else None


class Digests:
    """The digest under each of many numbers; the last one that was set."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._digests = array("I")

    def set(self, number: int, digest: str) -> None:
        """HistoryError: it is no digest."""
        try:
            value = int(digest, 16)
        except ValueError:
            raise HistoryError(f"{digest!r} is no digest") from None
        numbers = self._numbers
        if not numbers or number > numbers[-1]:
            numbers.append(number)
            self._digests.append(value)
            return
        index = bisect_left(numbers, number)
        if numbers[index] != number:
            numbers.insert(index, number)
            self._digests.insert(index, value)
        self._digests[index] = value

    def get(self, number: int) -> str | None:
        index = bisect_left(self._numbers, number)
        if index == len(self._numbers) or self._numbers[index] != number:
            return None
        return f"{self._digests[index]:08x}"

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        """Every number once, in ascending order."""
        return iter(self._numbers)


class SeenPlaces:
    """A set of partitions and offsets: a bit for each offset that a log of ours may have."""

    def __init__(self, partitions: int) -> None:
        self._bits = [bytearray() for _ in range(partitions)]
        self._others: set[tuple[Any, Any]] = set()

    def add(self, where: tuple[Any, Any]) -> bool:
        """Put a place in. False: it was there."""
        bit = self._bit(where)
        if bit is None:
            count = len(self._others)
            self._others.add(where)
            return len(self._others) > count
        bits, offset = bit
        index, mask = offset >> 3, 1 << (offset & 7)
        if index >= len(bits):
            bits.extend(bytes(index + 1 - len(bits)))
        is_new = not bits[index] & mask
        bits[index] |= mask
        return is_new

    def __contains__(self, where: tuple[Any, Any]) -> bool:
        bit = self._bit(where)
        if bit is None:
            return where in self._others
        bits, offset = bit
        index = offset >> 3
        return index < len(bits) and bool(bits[index] & 1 << (offset & 7))

    def _bit(self, where: tuple[Any, Any]) -> tuple[bytearray, int] | None:
        partition, offset = whole(where[0]), whole(where[1])
        if partition is None or not 0 <= partition < len(self._bits):
            return None
        if offset is None or not 0 <= offset < PLACES_MAX:
            return None
        return self._bits[partition], offset
