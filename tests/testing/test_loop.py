"""Virtual time: it jumps, it never lies, and a run that can't end or isn't clean says so."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from holdfast.testing.ground.loop import (
    DeadlockError,
    LivelockError,
    Process,
    SimulationError,
    UnhandledError,
    VirtualLoop,
    current_process,
    run,
)


def test_time_jumps_to_the_next_timer_and_stops_nowhere_else() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        seen: list[float] = []
        for when in (7.25, 3.5, 86_000.0, 3.5):
            loop.call_at(when, lambda: seen.append(loop.time()))
        await asyncio.sleep(86_000.5)
        return seen

    assert run(main) == [3.5, 3.5, 7.25, 86_000.0]


def test_time_stands_while_anything_is_left_to_do() -> None:
    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        before = loop.time()
        for _ in range(500):
            await asyncio.sleep(0)
        return before, loop.time()

    before, after = run(main)
    assert before == after


def test_deadlock_names_who_waits() -> None:
    async def waits_for_godot() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(DeadlockError, match="waits_for_godot"):
        run(waits_for_godot)


def test_livelock_is_an_error() -> None:
    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(LivelockError, match="spins"):
        run(spins, loop=VirtualLoop(steps_max=500))


def test_run_without_end_is_an_error() -> None:
    async def polls() -> None:
        while True:
            await asyncio.sleep(60)

    with pytest.raises(LivelockError, match="polls"):
        run(polls, loop=VirtualLoop(time_max_s=3600))


def test_what_nobody_handled_fails_the_run() -> None:
    async def fails() -> None:
        raise ZeroDivisionError("in a task")

    async def careless() -> None:
        asyncio.get_running_loop().call_soon(lambda: dict[str, str]()["x"])
        task = asyncio.get_running_loop().create_task(fails())
        await asyncio.sleep(1)
        del task

    with pytest.raises(UnhandledError, match=r"(?s)KeyError.*ZeroDivisionError"):
        run(careless)


def test_threads_and_sockets_are_out_of_reach() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(SimulationError, match="worker port"):
            await loop.run_in_executor(None, print)
        with pytest.raises(SimulationError):
            await loop.create_connection(asyncio.Protocol, "localhost", 80)

    run(main)


def test_killed_process_runs_nothing_more_and_hears_nothing() -> None:
    heard: list[str] = []

    async def victim() -> None:
        loop = asyncio.get_running_loop()
        process = current_process()
        assert process is not None
        loop.call_later(10, heard.append, "timer")
        child = loop.create_task(other())
        try:
            while True:
                await asyncio.sleep(1)
                heard.append("beat")
        finally:
            if process.alive:
                heard.append("told")
            child.cancel()

    async def other() -> None:
        await asyncio.sleep(20)
        heard.append("child")

    async def main() -> None:
        process = Process("victim", VirtualLoop.running())
        process.start(victim())
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(100)
        assert heard == ["beat", "beat"]

    run(main)
    assert heard == ["beat", "beat"]


def test_processes_do_not_disturb_each_other() -> None:
    async def count(beats: list[float]) -> None:
        while True:
            await asyncio.sleep(1)
            beats.append(asyncio.get_running_loop().time())

    async def main() -> tuple[int, int]:
        loop = VirtualLoop.running()
        first: list[float] = []
        second: list[float] = []
        one, two = Process("one", loop), Process("two", loop)
        one.start(count(first))
        two.start(count(second))
        await asyncio.sleep(3.5)
        one.kill()
        await asyncio.sleep(3)
        return len(first), len(second)

    assert run(main) == (3, 6)


def test_errors_of_the_dead_are_not_heard() -> None:
    async def fails_when_unwound() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            raise ZeroDivisionError

    async def main() -> None:
        process = Process("victim", VirtualLoop.running())
        process.start(fails_when_unwound())
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(1)

    run(main)


class Circle(list["Circle"]):
    """Holds itself: only the collector takes it away."""


def test_what_a_run_left_goes_with_the_next_one() -> None:
    """Seen to fail: each run set aside what the one before had left, 30 MB a seed."""

    async def made() -> Circle:
        circle = Circle()
        circle.append(circle)
        return circle

    async def nothing() -> None:
        """Only begins and ends."""

    gc.unfreeze()  # as it is outside of a test: whoever runs sets aside what there was
    try:
        left = run(made)
        gc.collect()  # it is old now, and nothing looks at it soon
        seen = weakref.ref(left)
        del left
        run(nothing)
        assert seen() is None
    finally:
        gc.freeze()
