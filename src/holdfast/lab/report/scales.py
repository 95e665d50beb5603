"""Axes: where they end, from values to places on a drawing, and where ticks stand. Arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

# An axis that ends at a peak so many times the usual value would show that peak and nothing else.
FLATTENS = 5.0
ROUND = (1, 1.5, 2, 3, 4, 5, 8, 10)


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps [low, high] to [start, end], straight or by the logarithm."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = (math.log10(max(each, 1e-9)) for each in (value, low, high))
        if high <= low:
            return self.start
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return self.start + share * (self.end - self.start)


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round values from `low` to `high`, steps of 1, 2 or 5, about so many."""
    if high <= low or about < 1:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 9) for index in range(first, last + 1)]


def round_up(value: float) -> float:
    """The next round value: where an axis may end."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in ROUND if factor * power >= value * (1 - 1e-12))


def axis_end(usual: Iterable[float], greatest: float) -> float:
    """Where a straight axis from 0 ends: above `greatest`, or far below it.

    Below only where that value would flatten all the rest: a backlog that comes in at once, say.
    Whoever draws on such an axis names what stands out of it (`peaks_above`).
    """
    ordered = sorted(value for value in usual if value > 0)
    if not ordered:
        return round_up(greatest)
    typical = ordered[int(len(ordered) * 0.9)]
    if greatest <= typical * FLATTENS:
        return round_up(greatest)
    return round_up(typical * 2.2)


def decades(low: float, high: float) -> list[float]:
    """Powers of ten from `low` or below it to `high` or above it; two at least."""
    assert 0 < low <= high, (low, high)
    first = math.floor(math.log10(low) + 1e-9)
    last = max(first + 1, math.ceil(math.log10(high) - 1e-9))
    return [10.0**power for power in range(first, last + 1)]


def number(value: float) -> str:
    """A value for people: thousands set apart, no digits that mean nothing."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:,.2f}".rstrip("0").rstrip(".")


def duration(ms: float) -> str:
    """A time for people: milliseconds below a second, then seconds, then minutes."""
    if ms < 1:
        return f"{ms:.2f} ms"
    if ms < 10:
        return f"{ms:.1f} ms"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.2f} s" if ms < 10_000 else f"{ms / 1000:.1f} s"
    return f"{int(ms // 60_000)} min {ms % 60_000 / 1000:.0f} s"
