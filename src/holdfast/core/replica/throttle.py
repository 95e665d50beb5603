"""Throttled replication: how many bytes a second may move, and which replicas it concerns (KIP-73).

Owns the arithmetic of one quota. Who has to wait is for those who fetch and serve: a replica that
is in sync never waits, though its bytes count, so that the sum stays below the quota.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import Final, NamedTuple

from holdfast.config.topic import TopicSettings

NO_QUOTA: Final = (1 << 63) - 1  # Kafka's default of both rates
ALL_REPLICAS: Final = "*"
_WINDOW_MS: Final = 1_000
_WINDOWS_MAX: Final = 11  # Kafka's replication.quota.window.num


def is_throttled(replicas: Container[str], partition: int, node: int) -> bool:
    """Whether a topic's list of throttled replicas names this one; `*` names them all."""
    return ALL_REPLICAS in replicas or f"{partition}:{node}" in replicas


class Throttled(NamedTuple):
    """Whether one replica's part in replication is throttled, in each role."""

    as_leader: bool
    as_follower: bool

    @classmethod
    def of(cls, settings: TopicSettings, partition: int, node: int) -> Throttled:
        """Return what a topic's settings say of one replica."""
        return cls(
            is_throttled(settings.leader_replication_throttled_replicas, partition, node),
            is_throttled(settings.follower_replication_throttled_replicas, partition, node),
        )


class Quota:
    """Bytes a second, measured over the last eleven seconds at most. Times are monotonic ms."""

    __slots__ = ("_samples", "_total", "bytes_per_second")

    def __init__(self, bytes_per_second: int = NO_QUOTA) -> None:
        self.bytes_per_second = bytes_per_second
        self._samples: deque[tuple[int, int]] = deque()  # start of a window, bytes in it
        self._total = 0

    def record(self, size: int, now_ms: int) -> None:
        """Count bytes that have moved."""
        if self.bytes_per_second == NO_QUOTA or not size:
            return
        self._forget_old(now_ms)  # nobody may ever ask, when all that is throttled is in sync
        samples = self._samples
        if samples and now_ms - samples[-1][0] < _WINDOW_MS:
            start, before = samples.pop()
            samples.append((start, before + size))
        else:
            samples.append((now_ms, size))
        self._total += size

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether what is throttled has to wait."""
        return self.wait_ms(now_ms) > 0

    def wait_ms(self, now_ms: int) -> int:
        """How long nothing may move until the rate is below the quota; 0: it is."""
        if self.bytes_per_second == NO_QUOTA:
            self._forget()
            return 0
        self._forget_old(now_ms)
        samples = self._samples
        if not samples:
            return 0
        elapsed_ms = max(_WINDOW_MS, now_ms - samples[0][0])
        if self._total * 1000 <= self.bytes_per_second * elapsed_ms:
            return 0
        # Either the average falls below the quota with time, or the oldest window is forgotten.
        forgotten_ms = samples[0][0] + _WINDOWS_MAX * _WINDOW_MS - now_ms
        if not self.bytes_per_second:
            return max(1, forgotten_ms)
        needed_ms = self._total * 1000 // self.bytes_per_second + 1
        return max(1, min(needed_ms - (now_ms - samples[0][0]), forgotten_ms))

    def _forget_old(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= _WINDOWS_MAX * _WINDOW_MS:
            self._total -= samples.popleft()[1]

    def _forget(self) -> None:
        self._samples.clear()
        self._total = 0
