"""What happens to one machine: it is paused, its clock is wrong, its disk is slow, bad or new.

Goal: each fault does to a process what the operating system would do. Method: one small process
on a machine of the virtual-time loop.
"""

from __future__ import annotations

import asyncio
import errno

import pytest

from holdfast.runtime.ports import Runtime
from holdfast.testing.ground.disk import DiskFault, MemoryDisk
from holdfast.testing.ground.runtime import Machine, World

PORT = 9092


def test_a_paused_process_does_nothing_and_then_everything() -> None:
    """SIGSTOP: timers, tasks, jobs and data wait; the kernel goes on taking connections."""
    world = World(1)
    done: list[tuple[str, float]] = []

    class Server(asyncio.Protocol):
        def connection_made(self, _: asyncio.BaseTransport) -> None:
            done.append(("accepted", world.loop.time()))

        def data_received(self, data: bytes) -> None:
            done.append((data.decode(), world.loop.time()))

    async def serve(runtime: Runtime) -> None:
        await runtime.network.listen(Server, "m", PORT)
        runtime.worker.submit(lambda: done.append(("job", world.loop.time())))
        while True:
            await asyncio.sleep(1)
            done.append(("beat", world.loop.time()))

    async def main() -> None:
        machine = world.machine("m")
        machine.start(serve)
        await asyncio.sleep(0)
        machine.pause()
        client = world.fabric.host("client")
        transport, _ = await client.connect(asyncio.Protocol, "m", PORT)
        transport.write(b"hello")
        await asyncio.sleep(10)
        assert done == [], "connected, sent, and nobody there"
        machine.resume()
        await asyncio.sleep(0.5)

    world.run(main)
    assert sorted(what for what, _ in done) == ["accepted", "beat", "hello", "job"]
    assert all(10 <= when < 11 for _, when in done)


def test_a_process_that_is_killed_while_it_is_paused_stays_dead() -> None:
    world = World(1)
    beats: list[float] = []

    async def beat(_: Runtime) -> None:
        while True:
            await asyncio.sleep(1)
            beats.append(world.loop.time())

    async def main() -> None:
        machine = world.machine("m")
        machine.start(beat)
        await asyncio.sleep(2.5)
        machine.pause()
        await asyncio.sleep(5)
        machine.crash()
        machine.resume()
        await asyncio.sleep(5)

    world.run(main)
    assert beats == [1.0, 2.0]


def test_clocks_step_and_drift_and_the_monotonic_one_never_goes_back() -> None:
    world = World(1)

    async def main() -> None:
        machine = world.machine("m")
        clock = machine.clock
        wall, monotonic = clock.wall_ms(), clock.monotonic_ms()
        machine.step_clock(-60_000)
        assert (clock.wall_ms() - wall, clock.monotonic_ms() - monotonic) == (-60_000, 0)
        machine.drift_clock(500)
        await asyncio.sleep(1000)
        assert clock.monotonic_ms() - monotonic == pytest.approx(1_000_500, abs=2)
        before = clock.monotonic_ms()
        machine.drift_clock(-500)
        assert clock.monotonic_ms() == before, "a change of speed is no jump"
        await asyncio.sleep(1000)
        assert clock.monotonic_ms() - monotonic == pytest.approx(2_000_000, abs=2)
        assert clock.wall_ms() - wall == pytest.approx(1_940_000, abs=2)

    world.run(main)


def test_a_slow_disk_stays_slow_through_a_crash() -> None:
    world = World(1)
    times: list[float] = []

    async def work(runtime: Runtime) -> None:
        began = world.loop.time()
        await runtime.worker.submit(int, lane="/")
        times.append(world.loop.time() - began)

    async def main() -> None:
        machine = world.machine("m")
        for slow in (False, True, True, False):
            machine.slow_disk((400_000, 500_000)) if slow else machine.slow_disk()
            machine.start(work)
            await asyncio.sleep(2)
            machine.crash()

    world.run(main)
    assert [when > 0.3 for when in times] == [False, True, True, False]


def test_a_fault_with_a_rate_strikes_now_and_then() -> None:
    def play(seed: int) -> list[bool]:
        disk = MemoryDisk(seed)
        fault = disk.inject(DiskFault(operations={"append"}, prefix="/f", code=errno.EIO, rate=0.2))
        file = disk.open("/f", create=True)
        failed = []
        for _ in range(200):
            try:
                file.append(b"x")
                failed.append(False)
            except OSError:
                failed.append(True)
        assert fault.struck == sum(failed)
        assert file.size == 200 - fault.struck
        return failed

    assert 20 < sum(play(1)) < 60
    assert play(1) == play(1) != play(2)


def test_a_wiped_disk_is_empty() -> None:
    world = World(1)

    async def main() -> None:
        machine: Machine = world.machine("m")
        machine.disk.write_atomic("/kept", b"x")
        machine.boot()
        with pytest.raises(AssertionError, match="runs"):
            machine.wipe_disk()
        machine.power_cut()
        assert list(machine.disk.list("/")) == ["kept"]
        machine.wipe_disk()
        assert list(machine.disk.list("/")) == []

    world.run(main)
