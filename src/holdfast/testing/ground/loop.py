"""An event loop whose time is virtual: when nothing is left to do, it jumps to the next timer.

Owns time, and which process each callback belongs to, so that one process among several on the
loop can die in mid-step as by SIGKILL. Must never look at the real clock, a socket or a thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from holdfast.testing.ground.cost import Meter
from holdfast.testing.ground.trace import Trace

T = TypeVar("T")

_STEPS_MAX = 1_000_000  # callbacks without time moving on
_TIME_MAX_S = 24 * 3600.0
_CANCELLED_KEPT = 200  # cancelled timers that may lie in the heap, if they are the lesser part
_BUSY_S = 0.002  # what a process is late by without anybody being held up
_COLLECT_TICKS = 20_000  # between two looks of the collector while calls are counted
_YOUNG_OBJECTS = 50_000  # between two looks of the collector: a run leaves few cycles

_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class SimulationError(Exception):
    """A run can't go on, or has not been clean; the text says why."""


class DeadlockError(SimulationError):
    """Everybody waits, nothing is scheduled: no run of any length would go on."""


class LivelockError(SimulationError):
    """The loop turns and turns without time moving on, or never comes to its end."""


class UnhandledError(SimulationError):
    """Exceptions that nobody awaited or caught, which a real loop would only have logged."""


class Process:
    """All that one process has scheduled. Killed, none of its code runs again.

    Nothing is told to it: no cancellation, no connection_lost, no `finally`, as with SIGKILL.
    """

    def __init__(self, name: str, loop: VirtualLoop) -> None:
        self.name = name
        self._loop = loop
        self.alive = True
        self.running = True  # not dead, paused or busy: what the loop asks before each callback
        self._paused = False
        self._busy_until = 0.0  # what it has done so far takes it until then
        self._is_busy = False  # and what comes due before has to wait
        self._held: list[_Call] = []  # due while it was paused
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._failed: list[asyncio.Task[Any]] = []
        self._context = contextvars.copy_context()
        self._context.run(_process.set, self)
        loop.processes.append(self)

    def context(self) -> contextvars.Context:
        """Return a context in which what is scheduled belongs to this process."""
        return self._context.copy()

    def start(self, main: Coroutine[Any, Any, T], *, name: str = "main") -> asyncio.Task[T]:
        assert self.alive, "a dead process starts nothing"
        return self._loop.create_task(main, name=f"{self.name}/{name}", context=self.context())

    def kill(self) -> None:
        self.alive = False
        self.running = False
        self._held.clear()

    def pause(self) -> None:
        """Stop it as SIGSTOP does: whatever comes due waits, the kernel goes on without it."""
        if self.alive:
            self._paused = True
            self.running = False

    def resume(self) -> None:
        """Let it go on as SIGCONT does: all that has come due meanwhile runs now, in order."""
        if self._paused:
            self._paused = False
            self._go_on()

    def spend(self, seconds: float) -> None:
        """Take so long for what it has just done: what is due next waits, unless it is little."""
        now = self._loop.now
        self._busy_until = max(self._busy_until, now) + seconds
        if self._busy_until - now > _BUSY_S and self.running:
            self.running = False
            self._is_busy = True
            self._loop.at(self._busy_until, self._rest)

    def _rest(self) -> None:
        self._is_busy = False
        self._go_on()

    def _go_on(self) -> None:
        if self.alive and not self._paused and not self._is_busy:
            self.running = True
            held, self._held = self._held, []
            self._loop.give_back(held)

    def hold(self, handle: _Call) -> None:
        """Take a callback that comes due while this process does not run; the dead drop it."""
        if self.alive:
            self._held.append(handle)

    def ended(self, task: asyncio.Task[Any]) -> None:
        """Take note of a task's end, without looking at its exception as who awaits it does."""
        del self.tasks[task]
        if self.alive and not task.cancelled() and task._exception is not None:  # noqa: SLF001 - to look would mark it as seen
            self._failed.append(task)

    def unseen(self) -> list[asyncio.Task[Any]]:
        """Return tasks that failed, whose failure nobody has looked at although they are held."""
        return [task for task in self._failed if task._log_traceback]  # noqa: SLF001 - as above

    def bury(self) -> None:
        """After the run: close its coroutines, so that none is left to the collector."""
        self.kill()
        for task in list(self.tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001 - asyncio's own way
            with suppress(Exception):
                # A `finally` may run here, too late to touch anything: the ports are dead, and
                # what it raises concerns nobody.
                task.get_coro().close()


def current_process() -> Process | None:
    """Return the process whose code is running; None outside of any, as in a test itself."""
    return _process.get()


class _Call(asyncio.TimerHandle):
    """A callback, due now or at some time, and whose it is. No context: the simulator's own."""

    __slots__ = ("process",)

    def __init__(  # not the parent's: it would copy contexts and look for a debug mode
        self,
        when: float,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        loop: VirtualLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._when = when
        self._scheduled = False
        self._callback = callback
        self._args = arguments
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self.process = None if context is None else context.get(_process)


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own loop over virtual time. See `run`."""

    _ready: deque[_Call]
    _scheduled: list[tuple[float, int, _Call]]  # a heap; the number keeps order among equals
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(self, *, steps_max: int = _STEPS_MAX, time_max_s: float = _TIME_MAX_S) -> None:
        super().__init__()
        self.now = 0.0  # seconds since the run began; only this loop moves it
        self._timers = 0
        self._steps = 0
        self._steps_max: Final = steps_max
        self._time_max_s: Final = time_max_s
        self.processes: list[Process] = []
        self.failures: list[str] = []
        self._muted = False
        self.shuffle: random.Random | None = None  # draws which process has the next turn
        self.meter: Meter | None = None  # counts what a callback does
        self._call_s = 0.0  # what each call takes
        self._ticks = 0
        self.trace: Final = Trace()
        self.set_exception_handler(self._note_failure)
        self.set_task_factory(_make_task)  # type: ignore[arg-type] # typeshed wants no options

    @staticmethod
    def running() -> VirtualLoop:
        """Return the loop that runs now, which must be one of these."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "this code runs in virtual time only"
        return loop

    def time(self) -> float:
        """Seconds since the run began."""
        return self.now

    def call_soon(  # type: ignore[override] # typeshed's TypeVarTuple says no more than this
        self,
        callback: Callable[..., object],
        *arguments: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if context is None:
            context = contextvars.copy_context()
        handle = _Call(self.now, callback, arguments, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override] # typeshed's TypeVarTuple says no more than this
        self,
        when: float,
        callback: Callable[..., object],
        *arguments: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if context is None:
            context = contextvars.copy_context()
        return self._schedule(_Call(when, callback, arguments, self, context))

    def call_later(  # type: ignore[override] # typeshed's TypeVarTuple says no more than this
        self,
        delay: float,
        callback: Callable[..., object],
        *arguments: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *arguments, context=context)

    def at(self, when: float, callback: Callable[..., object], *arguments: Any) -> None:
        """Schedule for the simulator itself: what belongs to no process outlives them all."""
        self._schedule(_Call(when, callback, arguments, self, None))

    def charge(self, call_us: float) -> None:
        """From now on each call that a process makes takes so long. Ends with the run."""
        self.meter = Meter()
        self._call_s = call_us / 1e6
        gc.disable()
        self.meter.start()

    def touched(self, count: int) -> None:
        """So many bytes have gone through a port of the process whose callback runs."""
        if self.meter is not None:
            self.meter.bytes += count

    def aside(self, work: Callable[[], T]) -> T:
        """Do what another thread would do: it takes the loop's process no time."""
        return work() if self.meter is None else self.meter.without(work)

    def timers(self) -> list[asyncio.TimerHandle]:
        """Return every timer that is set, those of the dead too."""
        return [timer for _, _, timer in sorted(self._scheduled) if not timer.cancelled()]

    def give_back(self, held: list[_Call]) -> None:
        """Make due again what a process held back while it was paused."""
        self._ready.extend(held)

    def _schedule(self, timer: _Call) -> _Call:
        timer._scheduled = True  # noqa: SLF001 - the fields of its parent, which this loop reads
        self._timers += 1
        heapq.heappush(self._scheduled, (timer._when, self._timers, timer))  # noqa: SLF001
        return timer

    def _run_once(self) -> None:
        """Move time on if nothing is due now, then do all that is due."""
        ready = self._ready
        if not ready and not self._stopping:
            self._jump()
        while ready:
            count, meter = len(ready), self.meter
            self._steps += count
            if self._steps > self._steps_max:
                raise LivelockError(
                    f"{self._steps} callbacks at {self.now:.6f} s. {self._waiting()}"
                )
            if count > 1 and self.shuffle is not None:
                self._mix(self.shuffle)
            for _ in range(count):
                handle = ready.popleft()
                if handle._cancelled:  # noqa: SLF001 - as its own loop does
                    continue
                process = handle.process
                if process is not None and not process.running:
                    process.hold(handle)
                    continue
                context = handle._context  # noqa: SLF001
                if meter is not None:
                    meter.begin()
                try:
                    if context is None:
                        handle._callback(*handle._args)  # noqa: SLF001
                    else:
                        context.run(handle._callback, *handle._args)  # noqa: SLF001
                except (SystemExit, KeyboardInterrupt, SimulationError):
                    raise
                except BaseException as error:  # noqa: BLE001 - as its own loop does
                    self._report(handle, error)
                if meter is not None and process is not None:
                    process.spend(meter.calls() * self._call_s)
            if self._stopping:
                return

    def _report(self, handle: _Call, error: BaseException) -> None:
        self.call_exception_handler(
            {"message": f"Exception in {handle!r}", "exception": error, "handle": handle}
        )

    def _jump(self) -> None:
        """Move time on to the next timer, and make due all that are due then."""
        timers = self._scheduled
        if self._timer_cancelled_count > max(_CANCELLED_KEPT, len(timers) // 2):
            timers[:] = [entry for entry in timers if not entry[2]._cancelled]  # noqa: SLF001
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0][2]._cancelled:  # noqa: SLF001
            self._timer_cancelled_count -= 1
            heapq.heappop(timers)[2]._scheduled = False  # noqa: SLF001
        if not timers:
            raise DeadlockError(f"nothing will ever happen again. {self._waiting()}")
        self._steps = 0
        self.now = max(self.now, timers[0][0])
        if self.now > self._time_max_s:
            raise LivelockError(f"{self.now:.0f} s have gone by. {self._waiting()}")
        self.trace.tick(self.now)
        if self.meter is not None:
            self._ticks += 1
            if not self._ticks % _COLLECT_TICKS:
                gc.collect()  # at the same moment in every run: what it calls is counted nowhere
        while timers and timers[0][0] <= self.now:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # noqa: SLF001
            self._ready.append(timer)

    def _mix(self, draw: random.Random) -> None:
        """Give the processes their turns in another order; each keeps its own."""
        turns: dict[Process | None, list[_Call]] = {}
        for handle in self._ready:
            turns.setdefault(handle.process, []).append(handle)
        if len(turns) > 1:
            order = list(turns.values())
            draw.shuffle(order)
            self._ready.clear()
            for turn in order:
                self._ready.extend(turn)

    def run_in_executor(  # type: ignore[override] # whatever it is given, it refuses
        self, *_arguments: Any
    ) -> Any:
        raise SimulationError("a thread was asked for: use the worker port, and IP addresses")

    def finish(self) -> None:
        """End a run: cancel what the test itself left, and bury the processes."""
        gc.collect()  # which has futures report exceptions that were never retrieved
        for process in self.processes:
            for task in process.unseen():
                self.call_exception_handler(
                    {
                        "message": f"{task.get_name()} failed and nobody looked",
                        "exception": task.exception(),
                    }
                )
            process.kill()
        self._muted = True  # what comes now comes from being cut off
        owned = {task for process in self.processes for task in process.tasks}
        left = [task for task in asyncio.all_tasks(self) if task not in owned]
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self.run_until_complete(self.shutdown_asyncgens())
        for process in self.processes:
            process.bury()

    def complain(self) -> None:
        """UnhandledError, if anything was raised and never handled."""
        if self.failures:
            raise UnhandledError("\n".join(self.failures))

    def _write_to_self(self) -> None:
        """Nothing: no other thread could wake this loop."""

    def _note_failure(self, _loop: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
        if not self._muted:
            self.failures.append(_describe(about, self.now))

    def _waiting(self) -> str:
        tasks = sorted(f"{task.get_name()} in {_where(task)}" for task in asyncio.all_tasks(self))
        return "Waiting: " + ("; ".join(tasks) or "nobody")


def _make_task(
    loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    context = options.get("context")
    owner = _process.get() if context is None else context.get(_process)
    task: asyncio.Task[Any] = asyncio.Task(main, loop=loop, **options)
    if owner is not None:
        # Held here, or the collector would close a dead process's coroutines at any moment.
        owner.tasks[task] = None
        task.add_done_callback(owner.ended)
    return task


def _where(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    if not frames:
        return "no frame"
    code = frames[-1].f_code
    return f"{code.co_filename.rpartition('/')[2]}:{frames[-1].f_lineno} {code.co_name}"


def _describe(about: dict[str, Any], now: float) -> str:
    error = about.get("exception")
    text = f"at {now:.6f} s: {about.get('message')}: {error!r}"
    trace = error.__traceback__ if isinstance(error, BaseException) else None
    while trace is not None:
        code = trace.tb_frame.f_code
        text += f"\n  {code.co_filename}:{trace.tb_lineno} {code.co_name}"
        trace = trace.tb_next
    return text


def run(main: Callable[[], Coroutine[Any, Any, T]], *, loop: VirtualLoop | None = None) -> T:
    """Run a coroutine to its end in virtual time, then close the loop.

    SimulationError's kinds: it can't end, or something was raised that nobody handled.
    """
    used = loop or VirtualLoop()
    with _collected_seldom():
        try:
            try:
                result = used.run_until_complete(main())
            finally:
                used.finish()
        except BaseException as error:
            for failure in used.failures:
                error.add_note(failure)  # most often the reason
            raise
        finally:
            if used.meter is not None:
                used.meter.stop()
                gc.enable()
            used.close()
    used.complain()
    return result


@contextmanager
def _collected_seldom() -> Iterator[None]:
    """Have the collector look at what this run makes alone, and not often."""
    thresholds = gc.get_threshold()
    gc.set_threshold(_YOUNG_OBJECTS, *thresholds[1:])
    freezes = not gc.get_freeze_count()  # else somebody has done so before
    if freezes:
        gc.collect()  # or what the run before left would be set aside, too, run after run
        gc.freeze()
    try:
        yield
    finally:
        if freezes:
            gc.unfreeze()
        gc.set_threshold(*thresholds)
