"""The same seed gives the same run: in one process, in others, under any hash seed.

Goal: a failure's seed replays it. Method: a little workload over every port with crashes, cuts
and power cuts on the way, whose digest is compared between runs in processes of their own.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from holdfast.runtime.ports import Runtime
from holdfast.testing.ground.runtime import World


class Echo(asyncio.Protocol):
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._log = runtime.disk.open("/log", create=True)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._log.append(data)
        synced = self._runtime.worker.submit(self._log.sync, lane="/")
        synced.add_done_callback(lambda done: self._answer(done, data))

    def _answer(self, synced: asyncio.Future[None], data: bytes) -> None:
        if synced.exception() is None:
            self._transport.write(data)


async def serve(runtime: Runtime) -> None:
    runtime.disk.make_directories("/")
    await runtime.network.listen(lambda: Echo(runtime), "", 9092)
    await asyncio.get_running_loop().create_future()


async def ask(runtime: Runtime, names: list[str], counts: dict[str, int]) -> None:
    while True:
        name = names[runtime.random.below(len(names))]
        try:
            async with asyncio.timeout(2):
                transport, _ = await runtime.network.connect(asyncio.Protocol, name, 9092)
                transport.write(runtime.random.uuid())
                await asyncio.sleep(0.05)
                transport.close()
                counts[name] = counts.get(name, 0) + 1
        except OSError:
            await asyncio.sleep(0.01)


def play(seed: int) -> str:
    world = World(seed)
    servers = [world.machine(name) for name in ("one", "two", "three")]
    counts: dict[str, int] = {}

    async def main() -> None:
        for machine in servers:
            machine.start(serve)
        client = world.machine("client")
        client.start(lambda runtime: ask(runtime, [m.name for m in servers], counts))
        for _ in range(6):
            await asyncio.sleep(world.random.random())
            victim = world.random.choice(servers)
            if world.random.random() < 0.5:
                victim.crash()
            else:
                victim.power_cut(torn=True)
            world.fabric.cut("client", world.random.choice(servers).name)
            await asyncio.sleep(world.random.random())
            world.fabric.heal_all()
            victim.start(serve)

    world.run(main)
    assert sum(counts.values()) > 10
    return f"{world.trace.digest} {world.trace.count}"


def play_elsewhere(seed: int, hash_seed: str) -> str:
    code = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("played", {__file__!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.play({seed}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    return done.stdout.strip()


@pytest.mark.parametrize("seed", range(8))
def test_same_seed_same_run(seed: int) -> None:
    assert play(seed) == play(seed)


def test_other_seeds_are_other_runs() -> None:
    assert len({play(seed) for seed in range(8)}) == 8


@pytest.mark.process
@pytest.mark.slow
def test_no_dependence_on_the_process_or_its_hash_seed() -> None:
    digests = {play_elsewhere(3, hash_seed) for hash_seed in ("0", "0", "1", "2")}
    assert digests == {play(3)}
