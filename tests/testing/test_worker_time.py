"""The worker in virtual time: jobs take time by the seed, and die with their process."""

from __future__ import annotations

import asyncio

from holdfast.runtime.ports import Runtime
from holdfast.testing.ground.runtime import World


def test_jobs_take_virtual_time_and_differ_by_seed() -> None:
    def play(seed: int) -> list[tuple[str, float]]:
        world = World(seed)
        ended: list[tuple[str, float]] = []

        async def work(runtime: Runtime) -> None:
            loop = asyncio.get_running_loop()
            for name in ("a", "b", "c"):
                job = runtime.worker.submit(int, lane=name)
                job.add_done_callback(lambda _, name=name: ended.append((name, loop.time())))  # type: ignore[misc]

        async def main() -> None:
            world.machine("m").start(work)
            await asyncio.sleep(1)

        world.run(main)
        return ended

    runs = [play(seed) for seed in range(20)]
    assert runs == [play(seed) for seed in range(20)]
    assert len({tuple(name for name, _ in run) for run in runs}) > 2, "lanes overtake each other"
    assert all(when > 0 for run in runs for _, when in run)


def test_jobs_of_the_dead_do_not_run() -> None:
    world = World(1)
    ran: list[str] = []

    async def work(runtime: Runtime) -> None:
        runtime.worker.submit(lambda: ran.append("job"), lane="a")
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        machine = world.machine("m")
        machine.start(work)
        await asyncio.sleep(0)
        machine.crash()
        await asyncio.sleep(1)

    world.run(main)
    assert ran == []


def test_each_process_has_a_randomness_of_its_own_and_clocks_differ() -> None:
    world = World(7)
    uuids: list[bytes] = []

    async def draw(runtime: Runtime) -> None:
        uuids.append(runtime.random.uuid())

    async def main() -> None:
        for name in ("one", "two"):
            machine = world.machine(name)
            for _ in range(2):
                machine.start(draw)
                await asyncio.sleep(1)
                machine.crash()

    world.run(main)
    assert len(set(uuids)) == 4
    one, two = world.machine("one").clock, world.machine("two").clock
    assert one.monotonic_ms() != two.monotonic_ms()
    assert one.wall_ms() != two.wall_ms()
