"""The worker port in virtual time: a job runs whole, at a moment drawn from the seed.

Owns the order of jobs in a lane. Must never run a job of a process that is dead.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from holdfast.runtime.ports import T, WorkerFullError, never
from holdfast.runtime.tasks import outcome_of, settle
from holdfast.testing.ground.loop import VirtualLoop

JOB_US = (20, 3_000)  # bounds of a job's time on a healthy disk
_QUEUE_MAX = 100_000
_SLOW = 100  # times as long as others takes a job that is slow on purpose
_SLOW_MAX_S = 3.0  # however slow the disk is besides: what comes behind waits, too


class MemoryWorker:
    """Each job takes as long as the seed says; those of a lane begin one after another."""

    def __init__(
        self,
        seed: int | str = 0,
        *,
        delay_us: tuple[int, int] = JOB_US,
        queue_max: int = _QUEUE_MAX,
        fold: Callable[..., None] = lambda *_: None,
        provoke: Callable[[str], bool] = never,
    ) -> None:
        self._draw = random.Random(f"worker/{seed}")
        self.delay_us = delay_us  # bounds of a job's time; may change at any time
        self._queue_max = queue_max
        self.busy = False  # in the middle of a job
        self._waiting = 0
        self._free_at: dict[str, float] = {}  # for each lane when its last job ends
        self._lanes: dict[str, deque[tuple[Callable[[], Any], asyncio.Future[Any]]]] = {}
        self._fold = fold
        self._provoke = provoke

    def submit(self, job: Callable[[], T], *, lane: str = "") -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._waiting >= self._queue_max:
            future.set_exception(
                WorkerFullError(f"{self._waiting} jobs wait already: the disk can't keep up")
            )
            return future
        self._waiting += 1
        length = self._draw.randint(*self.delay_us) / 1e6
        if self._provoke("job.slow"):
            length = max(length, min(length * _SLOW, _SLOW_MAX_S))
        if not lane:
            loop.call_later(length, self._perform, job, lane, future)
            return future
        # Each timer runs the lane's oldest job: the heap of timers keeps no order among equals.
        ends = max(loop.time(), self._free_at.get(lane, 0.0)) + length
        self._free_at[lane] = ends
        self._lanes.setdefault(lane, deque()).append((job, future))
        loop.call_at(ends, self._perform_next, lane)
        return future

    def _perform_next(self, lane: str) -> None:
        job, future = self._lanes[lane].popleft()
        self._perform(job, lane, future)

    def _perform(self, job: Callable[[], Any], lane: str, future: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        self._fold("job", lane)
        self.busy = True
        outcome = VirtualLoop.running().aside(lambda: outcome_of(job))
        self.busy = False
        settle(future, *outcome)
