"""Which tests run where, when and beside whom; and that each says of itself what is true.

- `process`: it starts processes. Who doesn't say so and starts one fails at that line, in every
  lane: so `make quick`, all that needs no process, can't get slow unnoticed.
- `serial`: it kills nodes, or waits for sessions and timeouts of real ones. These run one after the
  other on one worker, first, and every other worker gives way to them. `serial("groups")`: it waits
  so long for sessions that those of this name have a line of their own, on another worker.
- `slow`: over 250 ms, of CPU time where no process is started: a worker may have to wait for its
  turn. A run says at its end whose mark is not true.

- `turns`: it is long. With `--in-turns` (`make test`) a third of these run, which is drawn from the
  code of src as fresh seeds are; without it all of them.

Everything else runs on all cores: tests with processes by their folder, which shares its cluster;
slow ones each for itself; quick ones by their file. With `-n auto` there is a worker more than
cores, which gives way to all others, works while they wait for their processes, and takes nothing
serial: so Spark's tests, the longest line, begin at once.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.simulate.fresh import CHUNKS, FIRST, SEEDS

SLOW_S = 0.25
NOT_SLOW_S = 0.1  # between the two it depends on the machine
SAID_MAX = 10
CPU_S = "cpu_s"
STARTS_PROCESS = frozenset(
    {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
)
# Fixtures of a module, a package or a session that start processes which outlive a test.
PROCESS_FIXTURES = frozenset({"bootstrap", "cluster", "postgresql", "spark", "target"})
PROCESS_MARKS = ("apache", "chromium", "kcat", "postgresql", "spark")
GIVE_WAY = 10  # of os.nice
GIVE_WAY_MOST = 19
PATIENCE_S = 1800  # with who gives way to all others, in the place of a test's own bound
TURNS = 3  # of the tests marked `turns` a run takes one in so many
SERIAL = "serial"
PROCESSES = "processes of "


class Lanes:
    """One run's; in each worker, and in the process that they report to."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._in_turns: bool = getattr(config.option, "in_turns", False)
        self.worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        if self.worker is None:
            self._groups = Path(tempfile.mkdtemp(prefix="holdfast-lanes-")) / "groups.json"
        self.seconds: dict[str, list[float]] = defaultdict(list)  # of a function's cases
        self.marked: set[str] = set()  # functions that say that they are slow
        self._running: pytest.Item | None = None
        self._gives_way = 0
        sys.addaudithook(self._audit)

    # -- what a test starts --------------------------------------------------------------------

    def _audit(self, event: str, _arguments: tuple[Any, ...]) -> None:
        if event in STARTS_PROCESS and self._running is not None:
            item = self._running
            if item.get_closest_marker("process") is None:
                self._running = None  # said once
                pytest.fail(f"{item.nodeid} starts a process: mark it with pytest.mark.process")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._running = item
        if self._gives_way and not is_serial(item):
            os.nice(self._gives_way)
            self._gives_way = 0
        try:
            return (yield)
        finally:
            self._running = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        self._running = None  # it also ends what a module or the session shared

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        begin_s = time.process_time()
        try:
            return (yield)
        finally:
            if item.get_closest_marker("process") is None:
                item.user_properties.append((CPU_S, time.process_time() - begin_s))

    # -- who runs where ------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if is_serial(item) or uses_process(item):
                item.add_marker(pytest.mark.process)
        if self._in_turns:
            self._leave_out(items)
        if self.worker is not None:
            items.sort(key=place)

    def _leave_out(self, items: list[pytest.Item]) -> None:
        """Leave out those whose turn it is not. The same ones for everybody who has this code."""
        long = sorted(item.nodeid for item in items if item.get_closest_marker("turns"))
        later = {nodeid for at, nodeid in enumerate(long) if (at + FIRST) % TURNS}
        if later:
            left_out = [item for item in items if item.nodeid in later]
            items[:] = [item for item in items if item.nodeid not in later]
            self._config.hook.pytest_deselected(items=left_out)

    @pytest.hookimpl(tryfirst=True)  # before xdist tells the other process what there is
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self.worker is None:
            return
        if any(is_serial(item) for item in session.items):
            self._gives_way = GIVE_WAY
            if number(self.worker["workerid"]) >= cores():
                self._gives_way = GIVE_WAY_MOST
                for item in session.items:
                    item.add_marker(pytest.mark.timeout(PATIENCE_S), append=False)
        path = Path(self.worker["groups"])
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump({item.nodeid: group(item) for item in session.items}, file)
        Path(file.name).replace(path)  # all workers write the same

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["groups"] = str(self._groups)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only where it is there

        path = self._groups

        class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
            """Hands out whole groups, in the order of the workers' lists."""

            groups: ClassVar[dict[str, str]] = {}

            def _split_scope(self, nodeid: str) -> str:
                if not self.groups:
                    self.groups.update(json.loads(path.read_text(encoding="utf-8")))
                return self.groups[nodeid]

            def _assign_work_unit(self, node: Any) -> None:
                if number(node.gateway.id) >= cores():
                    left = (name for name in self.workqueue if not name.startswith(SERIAL))
                    found = next(left, None)
                    if found is None:
                        node.shutdown()
                        return
                    self.workqueue.move_to_end(found, last=False)
                super()._assign_work_unit(node)

        config.option.loadscopereorder = False
        return ByGroup(config, log)

    def pytest_unconfigure(self) -> None:
        if self.worker is None:
            # A child of this process that pytest ended has removed it as well.
            shutil.rmtree(self._groups.parent, ignore_errors=True)

    # -- what is said at the end ---------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("[")[0]
        if report.when == "call":
            own = dict(report.user_properties).get(CPU_S)
            self.seconds[name].append(own if isinstance(own, float) else report.duration)
        if "slow" in report.keywords:
            self.marked.add(name)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write = terminalreporter.write_line
        longest = {name: max(seconds) for name, seconds in self.seconds.items()}
        unmarked = [name for name in longest if longest[name] > SLOW_S and name not in self.marked]
        quick = [name for name in self.marked if longest.get(name, SLOW_S) < NOT_SLOW_S]
        for names, text in ((unmarked, "and is not marked slow"), (quick, "and is marked slow")):
            names.sort(key=lambda name: -longest[name])
            for name in names[:SAID_MAX]:
                write(f"{name} took {longest[name]:.2f} s {text}")
            if len(names) > SAID_MAX:
                write(f"... and {len(names) - SAID_MAX} more")
        chunks = sum(
            len(cases) for name, cases in self.seconds.items() if "fresh_seeds_are_clean" in name
        )
        if self._in_turns:
            write(f"in turns: of the tests marked so one in {TURNS} ran; all: make test-whole")
        if chunks:
            write(
                f"simulator: {chunks * SEEDS} fresh seeds of {FIRST} to "
                f"{FIRST + CHUNKS * SEEDS - 1}; one again: make simulate SEED=... "
                "ARGS='--scale light'"
            )


def cores() -> int:
    """Return how many this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def number(worker: str) -> int:
    """Return which worker it is, of `gw0` and so on."""
    return int(worker.removeprefix("gw"))


def is_serial(item: pytest.Item) -> bool:
    return item.get_closest_marker(SERIAL) is not None


def uses_process(item: pytest.Item) -> bool:
    """Return whether it needs a program, or a fixture that a process is behind for many tests."""
    if any(item.get_closest_marker(name) for name in PROCESS_MARKS):
        return True
    found = getattr(item, "_fixtureinfo", None)
    shared = {} if found is None else found.name2fixturedefs
    return any(
        name in shared and shared[name][-1].scope in {"module", "package", "session"}
        for name in PROCESS_FIXTURES
    )


def group(item: pytest.Item) -> str:
    """Return what has to run on one worker."""
    path = Path(item.nodeid.partition("::")[0])
    serial = item.get_closest_marker(SERIAL)
    if serial is not None:
        return " of ".join((SERIAL, *serial.args))
    if item.get_closest_marker("process") is not None:
        # One that is run against several clusters needs one of them at a time.
        cases = getattr(item, "callspec", None)
        target = None if cases is None else cases.params.get("target")
        return PROCESSES + str(path.parent) + (f" on {target}" if target else "")
    if item.get_closest_marker("slow") is not None:
        return item.nodeid
    return str(path)


def place(item: pytest.Item) -> int:
    """Return the place in the order: what takes long begins early, so that all end together."""
    if is_serial(item):
        return 0
    if item.get_closest_marker("spark") is not None:
        return 1
    if item.get_closest_marker("process") is not None:
        return 2
    return 3 if item.get_closest_marker("slow") is not None else 4
