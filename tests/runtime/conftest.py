"""The same tests over both worlds: the operating system's, and the one in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.runtime.ports import Runtime
from holdfast.runtime.real import RealWorker, real_runtime
from holdfast.testing.ground.disk import MemoryDisk
from holdfast.testing.ground.loop import VirtualLoop, run
from holdfast.testing.ground.network import Fabric
from holdfast.testing.ground.runtime import SeededRandom, VirtualClock
from holdfast.testing.ground.worker import MemoryWorker

T = TypeVar("T")
Main = Callable[[Runtime], Coroutine[Any, Any, T]]


class RealWorld:
    name = "real"

    def __init__(self, root: str) -> None:
        self.root = root
        self.runtime = real_runtime()

    def run(self, main: Main[T]) -> T:
        return asyncio.run(main(self.runtime))

    def close(self) -> None:
        worker = self.runtime.worker
        assert isinstance(worker, RealWorker)
        worker.close()


class MemoryWorld:
    name = "memory"
    root = "/data"

    def __init__(self, seed: int = 0) -> None:
        self.loop = VirtualLoop()
        self.fabric = Fabric(seed, fold=self.loop.trace.fold)
        self.runtime = Runtime(
            clock=VirtualClock(self.loop, skew_ms=0, booted_ms=1000),
            random=SeededRandom(seed),
            network=self.fabric.host("solo"),
            disk=MemoryDisk(seed),
            worker=MemoryWorker(seed),
        )
        self.runtime.disk.make_directories(self.root)

    def run(self, main: Main[T]) -> T:
        return run(lambda: main(self.runtime), loop=self.loop)

    def close(self) -> None:
        self.loop.close()


World = RealWorld | MemoryWorld


@pytest.fixture(params=["real", "memory"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made: World = RealWorld(str(tmp_path)) if request.param == "real" else MemoryWorld()
    yield made
    made.close()
