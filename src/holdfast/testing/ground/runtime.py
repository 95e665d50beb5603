"""A world of machines from one seed: each gives its processes the five ports over memory.

Owns what outlives a process (the machine's disk, its clock's error, its place in the network) and
what happens to one: crash, power cut, start. Must never reach into what runs there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from holdfast.runtime.ports import Runtime
from holdfast.testing.ground.disk import MemoryDisk
from holdfast.testing.ground.loop import Process, VirtualLoop, run
from holdfast.testing.ground.network import Fabric
from holdfast.testing.ground.provoke import Provocations
from holdfast.testing.ground.trace import Trace
from holdfast.testing.ground.worker import JOB_US, MemoryWorker
from holdfast.wire.uuids import new_uuid

T = TypeVar("T")

_EPOCH_MS = 1_767_225_600_000  # when every simulation begins: the first moment of 2026
_SKEW_MS = 500


class VirtualClock:
    """The loop's time, as one machine's clock shows it: wrong by some amount, and ever more.

    Timers are the loop's own and don't drift; a part in ten thousand is nothing to them.
    """

    def __init__(self, loop: VirtualLoop, *, skew_ms: int, booted_ms: int) -> None:
        self._loop = loop
        self.skew_ms = skew_ms  # of the wall clock; may change at any time
        self._booted_ms = booted_ms
        self._rate = 1.0
        self._changed_s = 0.0  # when the rate was set, and what had gone by until then
        self._gone_s = 0.0

    def wall_ms(self) -> int:
        return _EPOCH_MS + self.skew_ms + self._gone_ms()

    def monotonic_ms(self) -> int:
        return self._booted_ms + self._gone_ms()

    def step(self, by_ms: int) -> None:
        """Set the wall clock forward or back, as an administrator or NTP does."""
        self.skew_ms += by_ms

    def drift(self, parts_per_million: int) -> None:
        """From now on both clocks run faster (or slower) than time does. Neither jumps."""
        now = self._loop.now
        self._gone_s += (now - self._changed_s) * self._rate
        self._changed_s = now
        self._rate = 1 + parts_per_million / 1e6

    def _gone_ms(self) -> int:
        now = self._loop.now
        if self._rate == 1.0 and not self._changed_s:  # as nearly always; asked for all the time
            return int(now * 1000)
        return int((self._gone_s + (now - self._changed_s) * self._rate) * 1000)


class SeededRandom:
    """The random port from a seed."""

    def __init__(self, seed: int | str) -> None:
        self._draw = random.Random(f"random/{seed}")

    def uuid(self) -> bytes:
        return new_uuid(self._draw.randbytes)

    def below(self, bound: int) -> int:
        return self._draw.randrange(bound)


class Machine:
    """One host: at most one process runs on it at a time."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name: Final = name
        draw = random.Random(f"machine/{world.seed}/{name}")
        self.clock = VirtualClock(
            world.loop,
            skew_ms=draw.randint(-_SKEW_MS, _SKEW_MS),
            booted_ms=draw.randint(1, 10_000_000),
        )
        self.disk = MemoryDisk(f"{world.seed}/{name}", now_ms=self.clock.wall_ms, fold=self._fold)
        self.process: Process | None = None
        self.runtime: Runtime | None = None
        self._boots = 0
        self._worker: MemoryWorker | None = None
        self._job_us = JOB_US
        self._wipes = 0

    def boot(self) -> Runtime:
        """Begin a process here that runs nothing yet; return its ports."""
        return self.begin()[1]

    def begin(self) -> tuple[Process, Runtime]:
        """Begin a process here that runs nothing yet; return it and its ports."""
        assert self.process is None or not self.process.alive, f"{self.name} runs one already"
        world = self._world
        self._boots += 1
        seed = f"{world.seed}/{self.name}/{self._boots}"
        process = self.process = Process(f"{self.name}#{self._boots}", world.loop)
        provoke = world.provocations.port(self.name)
        self._worker = MemoryWorker(seed, delay_us=self._job_us, fold=self._fold, provoke=provoke)
        runtime = self.runtime = Runtime(
            clock=self.clock,
            random=SeededRandom(seed),
            network=world.fabric.host(self.name),
            disk=self.disk,
            worker=self._worker,
            provoke=provoke,
        )
        world.trace.fold("start", process.name)
        return process, runtime

    def start(self, main: Callable[[Runtime], Coroutine[Any, Any, Any]]) -> Process:
        """Begin a process here that runs `main` with ports of its own."""
        process, runtime = self.begin()
        process.start(main(runtime))
        return process

    def crash(self) -> None:
        """SIGKILL: none of its code runs again, its connections end, the page cache stays."""
        self._die()
        self._world.fabric.kill(self.name)
        self.disk = self.disk.crash()

    def power_cut(self, *, torn: bool = False) -> None:
        """The machine goes dark: nobody is told, and what was not synced is gone."""
        self._die()
        self._world.fabric.kill(self.name, silently=True)
        self.disk = self.disk.power_cut(torn=torn)

    def lie_in_wait(
        self, part: str, strike: Callable[[], None], *, after: int = 0, in_job: bool = False
    ) -> None:
        """Call `strike` before an operation of the disk, once: so many `after` the first whose path
        has `part` in it. `in_job`: only operations of jobs of the worker count, and a power cut is
        possible in the middle of one. Until the process ends, or `stand_down`.
        """
        left = -1

        def watch(path: str) -> None:
            nonlocal left
            if in_job and not self.worker_is_busy:
                return
            if left < 0 and part in path:
                left = after + 1
            if left > 0:
                left -= 1
                if not left:
                    self.stand_down()
                    strike()

        self.disk.watch = watch

    @property
    def worker_is_busy(self) -> bool:
        """Whether what happens now happens in a job, and not on the loop."""
        return self._worker is not None and self._worker.busy

    def stand_down(self) -> None:
        """Wait for no operation of the disk any more."""
        self.disk.watch = None

    def pause(self) -> None:
        """SIGSTOP: its process does nothing; its kernel goes on taking what arrives."""
        self._there("pause").pause()

    def resume(self) -> None:
        """SIGCONT: all that came due meanwhile happens now. Nothing, if it isn't paused."""
        if self.process is not None:
            self._world.trace.fold("resume", self.process.name)
            self.process.resume()

    def slow_disk(self, job_us: tuple[int, int] = JOB_US) -> None:
        """From now on a sync or another job of the worker takes as long as these bounds say.

        Stays through crashes. Without bounds: as fast as usual again.
        """
        self._fold("slow disk", *job_us)
        self._job_us = job_us
        if self._worker is not None:
            self._worker.delay_us = job_us

    def wipe_disk(self) -> None:
        """Put a new, empty disk into a machine on which nothing runs."""
        assert self.process is None or not self.process.alive, f"{self.name} runs"
        self._wipes += 1
        self._fold("wipe disk")
        self.disk = MemoryDisk(
            f"{self._world.seed}/{self.name}/wiped {self._wipes}",
            now_ms=self.clock.wall_ms,
            fold=self._fold,
        )

    def step_clock(self, by_ms: int) -> None:
        """Set the wall clock forward or back."""
        self._fold("step clock", by_ms)
        self.clock.step(by_ms)

    def drift_clock(self, parts_per_million: int) -> None:
        """Let both clocks run fast or slow from now on."""
        self._fold("drift clock", parts_per_million)
        self.clock.drift(parts_per_million)

    def exited(self) -> None:
        """Take note that the process has ended by itself, so that another may start."""
        if self.process is not None and self.process.alive:
            self.crash()

    def _die(self) -> None:
        self._there("die").kill()

    def _there(self, event: str) -> Process:
        """Return the process that runs here, the last one that did; note what happens to it."""
        assert self.process is not None, f"nothing has run on {self.name}"
        self._world.trace.fold(event, self.process.name)
        return self.process

    def _fold(self, kind: str, *parts: Any) -> None:
        self._world.trace.fold(kind, self.name, *parts)


class World:
    """Loop, network and machines of one run. The same seed gives the same run."""

    def __init__(self, seed: int, *, loop: VirtualLoop | None = None) -> None:
        self.seed: Final = seed
        self.loop: Final = loop or VirtualLoop()
        self.trace: Final[Trace] = self.loop.trace
        self.fabric: Final = Fabric(seed, fold=self.trace.fold)
        self.random: Final = random.Random(f"world/{seed}")  # for the test's own choices
        self.provocations: Final = Provocations(seed, fold=self.trace.fold)
        self._machines: dict[str, Machine] = {}

    def machine(self, name: str) -> Machine:
        """Return a host by name, made when first asked for."""
        if name not in self._machines:
            self.fabric.host(name)
            self._machines[name] = Machine(self, name)
        return self._machines[name]

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the test's own coroutine to its end; SimulationError and its kinds."""
        return run(main, loop=self.loop)
