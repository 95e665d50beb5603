"""What the worker port promises, asked of the threads and of the one in virtual time."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast.runtime.ports import Runtime, WorkerFullError
from holdfast.runtime.real import RealWorker
from holdfast.testing.ground.worker import MemoryWorker


def test_jobs_of_a_lane_run_in_order(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        ran: dict[str, list[int]] = {"a": [], "b": []}

        def job(lane: str, number: int) -> int:
            ran[lane].append(number)
            return number

        futures = [
            runtime.worker.submit(lambda lane=lane, n=n: job(lane, n), lane=lane)  # type: ignore[misc]
            for n in range(200)
            for lane in ran
        ]
        assert await asyncio.gather(*futures) == [n for n in range(200) for _ in ran]
        assert ran == {"a": list(range(200)), "b": list(range(200))}

    world.run(main)


def test_failure_is_the_future_s_and_the_lane_goes_on(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        def fail() -> None:
            raise OSError("the disk")

        failed = runtime.worker.submit(fail, lane="a")
        after = runtime.worker.submit(lambda: 7, lane="a")
        with pytest.raises(OSError, match="the disk"):
            await failed
        assert await after == 7

    world.run(main)


def test_who_stops_waiting_disturbs_nobody(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        ran: list[int] = []
        first = runtime.worker.submit(lambda: ran.append(1), lane="a")
        first.cancel()
        await runtime.worker.submit(lambda: ran.append(2), lane="a")
        assert ran == [1, 2], "what was submitted runs: a sync may not be skipped"

    world.run(main)


def test_answers_come_on_the_loop_later(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        future = runtime.worker.submit(int)
        assert not future.done()
        assert await future == 0

    world.run(main)


@pytest.mark.parametrize("kind", ["real", "memory"])
def test_queue_is_bounded_by_a_named_error(kind: str, world: Any) -> None:
    async def main(_: Runtime) -> None:
        gate = threading.Event()
        worker = RealWorker(1, 10) if kind == "real" else MemoryWorker(queue_max=10)
        job = gate.wait if kind == "real" else gate.is_set
        futures = [worker.submit(job, lane="a") for _ in range(100)]
        gate.set()
        results = await asyncio.gather(*futures, return_exceptions=True)
        refused = [one for one in results if isinstance(one, WorkerFullError)]
        assert 88 <= len(refused) <= 90
        assert await worker.submit(lambda: 1) == 1, "it recovers"
        if isinstance(worker, RealWorker):
            worker.close()

    if kind == world.name:
        world.run(main)
