"""Rates and latencies over time, and availability: folds with a fixed bound on memory.

Buckets start narrow and double in width whenever there would be more than BUCKETS_MAX.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil

from holdfast.judge.history import Acknowledged, Event, Refused, Send
from holdfast.judge.verdict import Availability

BUCKET_MS = 100.0
BUCKETS_MAX = 2048
LATENCIES_MAX = 200_000  # kept for percentiles; past it every second one is dropped
PARTITIONS_MAX = 4096
ROUNDING = 1e-6  # of a share times a count, where both are exact
REST_MS = 1000.0  # who was refused and sends nothing for longer is at rest; a retry comes sooner

# A send or its outcome: which kind, when, when the record was sent, and where to.
Step = tuple[type[Event], float, float, tuple[str, int]]


def percentile(ordered: Sequence[float], share: float) -> float:
    """Nearest rank of an already ordered sequence; 0.0 when it is empty."""
    if not ordered:
        return 0.0
    rank = ceil(share * len(ordered) - ROUNDING)
    return ordered[max(0, min(len(ordered), rank) - 1)]


class Sample:
    """Latencies, thinned evenly once there are too many; the greatest is always exact."""

    def __init__(self, size_max: int = LATENCIES_MAX) -> None:
        self._values = array("f")
        self._size_max = size_max
        self._step = 1
        self._seen = 0
        self.greatest = 0.0

    def add(self, value: float) -> None:
        if value > self.greatest:  # noqa: PLR1730 - called for every record, three times
            self.greatest = value
        self._seen += 1
        if self._step > 1 and self._seen % self._step:
            return
        self._values.append(value)
        if len(self._values) >= self._size_max:
            self._thin()

    def _thin(self) -> None:
        while len(self._values) >= self._size_max:
            self._values = self._values[::2]
            self._step *= 2

    def merge(self, other: Sample) -> None:
        """Take in what another one holds: each value of either stands for as many then."""
        self.greatest = max(self.greatest, other.greatest)
        self._seen += other._seen
        step = max(self._step, other._step)
        self._values = self._one_of(step) + other._one_of(step)
        self._step = step
        self._thin()

    def _one_of(self, step: int) -> array[float]:
        return self._values[:: step // self._step]

    def ordered(self) -> list[float]:
        return sorted(self._values)


@dataclass(slots=True)
class Bucket:
    """One slice of time. Keys of `acknowledged` are (topic, partition)."""

    sent: int = 0
    refused: int = 0
    unknown: int = 0
    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    latencies: Sample = field(default_factory=lambda: Sample(2048))

    def absorb(self, other: Bucket) -> None:
        self.sent += other.sent
        self.refused += other.refused
        self.unknown += other.unknown
        for key, count in other.acknowledged.items():
            self.acknowledged[key] = self.acknowledged.get(key, 0) + count
        self.latencies.merge(other.latencies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One bucket, closed. Rates are events a second; latencies None where nothing was answered."""

    at_ms: float  # the middle of the bucket, monotonic
    sent: float
    refused: float
    unknown: float
    acknowledged: dict[tuple[str, int], float]
    latency_ms_p50: float | None
    latency_ms_p99: float | None
    latency_ms_max: float | None


class Series:
    """Rates and latencies over time, all partitions. A latency stands where its send was."""

    def __init__(self) -> None:
        self.width_ms = BUCKET_MS
        self._begin_ms: float | None = None
        self._buckets: dict[int, Bucket] = {}

    def _bucket(self, at_ms: float) -> tuple[Bucket, float, float]:
        """Return the bucket of a moment, and from when until when it reaches."""
        if self._begin_ms is None:
            self._begin_ms = at_ms
        begin_ms, index = self._begin_ms, int((at_ms - self._begin_ms) // self.width_ms)
        # That is rounded otherwise than the ends of a bucket, and those decide. One step is enough,
        # where a clock can still tell them apart.
        if at_ms >= begin_ms + (index + 1) * self.width_ms:
            index += 1
        elif at_ms < begin_ms + index * self.width_ms:
            index -= 1
        bucket = self._buckets.get(index)
        if bucket is None:
            while index >= BUCKETS_MAX:
                self._widen()
                index //= 2
            bucket = self._buckets.setdefault(index, Bucket())
        return (
            bucket,
            begin_ms + index * self.width_ms,
            begin_ms + (index + 1) * self.width_ms,
        )

    def _widen(self) -> None:
        self.width_ms *= 2
        wide: dict[int, Bucket] = {}
        for index in sorted(self._buckets):
            wide.setdefault(index // 2, Bucket()).absorb(self._buckets[index])
        self._buckets = wide

    def take(self, steps: Iterable[Step]) -> None:
        """Count what follows on what was taken before."""
        # The next one is nearly always of the same bucket: what it covers is at hand. So is what
        # that of the latest latency covers.
        bucket = older = Bucket()
        begin_ms = end_ms = older_begin_ms = older_end_ms = 0.0
        for kind, at_ms, sent_ms, key in steps:
            if not begin_ms <= at_ms < end_ms:
                width_ms = self.width_ms
                bucket, begin_ms, end_ms = self._bucket(at_ms)
                if self.width_ms != width_ms:  # the other one is gone
                    older_begin_ms = older_end_ms = 0.0
            if kind is Send:
                bucket.sent += 1
            elif kind is Acknowledged:
                counted = bucket.acknowledged
                assert len(counted) <= PARTITIONS_MAX
                counted[key] = counted.get(key, 0) + 1
                if not older_begin_ms <= sent_ms < older_end_ms:
                    width_ms = self.width_ms
                    older, older_begin_ms, older_end_ms = self._bucket(sent_ms)
                    if self.width_ms != width_ms:
                        begin_ms = end_ms = 0.0
                older.latencies.add(at_ms - sent_ms)
            elif kind is Refused:
                bucket.refused += 1
            else:
                bucket.unknown += 1

    def points(self) -> list[Point]:
        """Every bucket from the first to the last, empty ones included."""
        if self._begin_ms is None:
            return []
        second = 1000.0 / self.width_ms
        points = []
        empty = Bucket()
        for index in range(max(self._buckets) + 1):
            bucket = self._buckets.get(index, empty)
            ordered = bucket.latencies.ordered()
            points.append(
                Point(
                    at_ms=self._begin_ms + (index + 0.5) * self.width_ms,
                    sent=bucket.sent * second,
                    refused=bucket.refused * second,
                    unknown=bucket.unknown * second,
                    acknowledged={key: n * second for key, n in bucket.acknowledged.items()},
                    latency_ms_p50=percentile(ordered, 0.5) if ordered else None,
                    latency_ms_p99=percentile(ordered, 0.99) if ordered else None,
                    latency_ms_max=bucket.latencies.greatest if ordered else None,
                )
            )
        return points


class AvailabilityFold:
    """Share acknowledged and the longest gap of one partition, or of all together.

    A gap begins with an acknowledgement that leaves records waiting, or with the first send after
    one that left none, so a producer at rest makes no gap. A refusal does not end it, unless the
    producer rests then.
    """

    def __init__(self) -> None:
        self._sent = 0
        self._acknowledged = 0
        self._outstanding = 0
        self._waiting_since: float | None = None
        self._gap_ms = 0.0
        self._gap_at_ms = 0.0
        self._last_ms = 0.0
        self._latencies = Sample()

    def take(self, steps: Iterable[Step]) -> None:
        """Take in what follows on what was taken before."""
        outstanding, since, last_ms = self._outstanding, self._waiting_since, self._last_ms
        for kind, at_ms, sent_ms, _ in steps:
            if kind is Send:
                if not outstanding and at_ms - last_ms > REST_MS:
                    self._close_gap(since, last_ms)
                    since = None
                outstanding += 1
                self._sent += 1
                if since is None:
                    since = at_ms
            else:
                outstanding -= 1
                assert outstanding >= 0, "an outcome without its send"
                if kind is Acknowledged:
                    self._acknowledged += 1
                    if since is not None and at_ms - since > self._gap_ms:
                        self._close_gap(since, at_ms)
                    since = at_ms if outstanding else None
                    self._latencies.add(at_ms - sent_ms)
            last_ms = at_ms
        self._outstanding, self._waiting_since, self._last_ms = outstanding, since, last_ms

    def _close_gap(self, since: float | None, at_ms: float) -> None:
        if since is not None and at_ms - since > self._gap_ms:
            self._gap_ms, self._gap_at_ms = at_ms - since, since

    def finish(self) -> Availability:
        self._close_gap(self._waiting_since, self._last_ms)
        ordered = self._latencies.ordered()
        return Availability(
            sent=self._sent,
            acknowledged=self._acknowledged,
            gap_ms_longest=self._gap_ms,
            gap_at_ms=self._gap_at_ms,
            latency_ms_p50=percentile(ordered, 0.5),
            latency_ms_p99=percentile(ordered, 0.99),
            latency_ms_max=self._latencies.greatest,
        )
