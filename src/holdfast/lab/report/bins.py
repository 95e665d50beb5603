"""Points put together to what a drawing can show, and the peaks that its axis leaves out.

A bin keeps the lowest and the highest of its points beside their mean: a mean alone hides a peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from holdfast.judge.series import Point

BINS_MAX = 220
BIN_MS_MIN = 250.0
LINES_MAX = 6  # more partitions are drawn as one line, their sum
NEAR_MS = 1000.0  # what stands out of the axis for a while is one peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What one line is drawn from: its name, and its rate in each point."""

    name: str
    of: Callable[[Point], float]


@dataclass(frozen=True, slots=True)
class Reach:
    """One bin of one rate."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Several points together. `rates` as they were asked for; latencies are the worst of a kind.

    Of p50 it is the median of the points' medians.
    """

    at_ms: float
    rates: tuple[Reach, ...]
    p50: float | None
    p99: float | None
    worst: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The highest point of a stretch in which a line stood out of the axis, and whose it was."""

    name: str
    at_ms: float
    value: float


def rates_of(points: Iterable[Point]) -> list[Rate]:
    """Acknowledged events: one rate a partition, or one of all where they are too many."""
    keys = sorted({key for point in points for key in point.acknowledged})
    if not keys or len(keys) > LINES_MAX:
        name = f"all {len(keys)} partitions" if keys else "all partitions"
        return [Rate(name=name, of=lambda point: sum(point.acknowledged.values()))]
    one_topic = len({topic for topic, _ in keys}) == 1

    def rate_of(key: tuple[str, int]) -> Callable[[Point], float]:
        return lambda point: point.acknowledged.get(key, 0.0)

    return [
        Rate(name=f"P{key[1]}" if one_topic else f"{key[0]}-{key[1]}", of=rate_of(key))
        for key in keys
    ]


def bins_of(
    points: Sequence[Point], width_ms: float, rates: Sequence[Rate]
) -> tuple[list[Bin], float]:
    """Return at most BINS_MAX bins, none shorter than BIN_MS_MIN, and how wide each is."""
    size = max(1, round(BIN_MS_MIN / width_ms), -(-len(points) // BINS_MAX))
    bins = []
    for begin in range(0, len(points), size):
        group = points[begin : begin + size]
        medians = sorted(p.latency_ms_p50 for p in group if p.latency_ms_p50 is not None)
        bins.append(
            Bin(
                at_ms=group[0].at_ms + (len(group) - 1) / 2 * width_ms,
                rates=tuple(_reach([rate.of(point) for point in group]) for rate in rates),
                p50=medians[len(medians) // 2] if medians else None,
                p99=_greatest(point.latency_ms_p99 for point in group),
                worst=_greatest(point.latency_ms_max for point in group),
            )
        )
    return bins, size * width_ms


def _reach(values: Sequence[float]) -> Reach:
    return Reach(sum(values) / len(values), min(values), max(values))


def _greatest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def highest(points: Iterable[Point], rates: Sequence[Rate]) -> Peak | None:
    """The highest point of all; None when there is nothing but zeros."""
    found: Peak | None = None
    for point in points:
        for rate in rates:
            value = rate.of(point)
            if value > (found.value if found else 0.0):
                found = Peak(name=rate.name, at_ms=point.at_ms, value=value)
    return found


def peaks_above(points: Sequence[Point], rates: Sequence[Rate], top: float) -> list[Peak]:
    """Everything that stands out of an axis that ends at `top`: the highest first."""
    peaks: list[Peak] = []
    for rate in rates:
        latest_ms = float("-inf")
        for point in points:
            value = rate.of(point)
            if value <= top:
                continue
            peak = Peak(name=rate.name, at_ms=point.at_ms, value=value)
            if point.at_ms - latest_ms > NEAR_MS:
                peaks.append(peak)
            elif value > peaks[-1].value:
                peaks[-1] = peak
            latest_ms = point.at_ms
    return sorted(peaks, key=lambda peak: -peak.value)
