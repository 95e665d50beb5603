"""What a callback costs: time in proportion to what it did, the same in every run.

Goal: work over everything shows as a process that is late, and nobody else is. Method: processes on
the virtual loop that call a function so many times; no clock is looked at anywhere.
"""

from __future__ import annotations

import asyncio

from holdfast.testing.ground.loop import Process, VirtualLoop, run

CALL_US = 1.0


def work(calls: int) -> None:
    for _ in range(calls):
        nothing()


def nothing() -> None:
    """Be called."""


def late_by(calls: int, *, charged: bool = True, aside: bool = False) -> tuple[float, float]:
    """How late a timer of 10 ms comes to who works, and to his neighbour."""
    loop = VirtualLoop()

    async def main() -> tuple[float, float]:
        if charged:
            loop.charge(CALL_US)
        busy, idle = Process("busy", loop), Process("idle", loop)
        came: dict[str, float] = {}

        async def wait(name: str, calls: int) -> None:
            if aside:
                loop.aside(lambda: work(calls))
            else:
                work(calls)
            await asyncio.sleep(0.01)
            came[name] = loop.time()

        tasks = [busy.start(wait("busy", calls)), idle.start(wait("idle", 0))]
        await asyncio.gather(*tasks)
        return came["busy"] - 0.01, came["idle"] - 0.01

    return run(main, loop=loop)


def test_who_has_much_to_do_is_late_and_nobody_else() -> None:
    busy, idle = late_by(200_000)
    assert 0.18 < busy < 0.2  # ten milliseconds of it went by meanwhile
    assert idle == 0.0


def test_little_delays_nobody() -> None:
    assert late_by(1_000) == (0.0, 0.0)


def test_what_another_thread_does_takes_the_loop_no_time() -> None:
    assert late_by(200_000, aside=True) == (0.0, 0.0)


def test_without_a_charge_nothing_takes_time() -> None:
    assert late_by(200_000, charged=False) == (0.0, 0.0)


def test_who_is_paused_while_busy_goes_on_when_both_are_over() -> None:
    loop = VirtualLoop()

    async def main() -> float:
        loop.charge(CALL_US)
        busy = Process("busy", loop)

        async def wait() -> float:
            work(200_000)
            await asyncio.sleep(0.01)
            return loop.time()

        task = busy.start(wait())
        await asyncio.sleep(0.05)
        busy.pause()
        await asyncio.sleep(0.05)
        busy.resume()  # and it is still busy
        assert not busy.running
        return await task

    assert 0.19 < run(main, loop=loop) < 0.22
