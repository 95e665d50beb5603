"""Tests of a changed copy of the tree, without a new interpreter for each change.

A process goes as far as pytest goes before it looks for tests, with nothing imported that may be
changed. There it divides for each trial: the child imports the changed code and runs the tests.
Owns the bounds on its time and memory.

    python scripts/trial.py COPY

It reads {"module": path below src, "tests": a file, "first": its tests that go before the rest,
"seconds_max": of each test} a line. It answers {"noticed": what failed first}, {"noticed": null,
"seconds": of processor time, "ran": tests, "files": of the copy that they import or read}, or
{"error": why nothing can be said}.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import math
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, Final, TextIO

import pytest
from hypothesis import Phase, settings

MEMORY_MAX: Final = 4 << 30
ENDLESS: Final = "it does not end"
NOT_IMPORTED: Final = "it can't be imported"
CRASHED: Final = "it ends pytest"
PASSED: Final = 0
NOTHING_RAN: Final = (4, 5)  # as pytest says it: no such file, no tests in it
POLL_S: Final = 0.002
# Trials run where others work, too: what takes long is told by the processor's time. The clock's
# is for what waits for ever.
WAITING: Final = 20  # times the processor's
ALL_TESTS: Final = 5  # times what one may take
TEST_WAITING_S: Final = 30
SHARED: Final = ("confluent_kafka.admin", "hypothesis.strategies", "msgspec", "sqlalchemy")
OPTIONS: Final = (
    *("-x", "-q", "-s", "--tb=no", "-p", "no:cacheprovider", "-m", "not process"),
    *("-p", "timeout", f"--timeout={TEST_WAITING_S}"),
    *("-p", "hypothesispytest", "--hypothesis-seed=0", "--hypothesis-profile=trial"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # for what is imported before
)
NO_FIXTURES: Final = frozenset({"request", "_freeze_what_earlier_modules_left"})  # as good as none
READ: Final = ("docs", "src", "tests")  # folders whose files decide what tests say


class Trials:
    """A plugin of pytest. Of the parent: a child for each task; of a child: what it shows."""

    def __init__(self, tasks: TextIO, answers: TextIO) -> None:
        self._tasks, self._answers = tasks, answers
        self._here = Path.cwd()
        self._told: int | None = None  # where a child writes what it shows
        self._place: dict[str, int] = {}
        self._ran: list[str] = []
        self._noticed: str | None = None
        self._seconds_max = 0.0
        self._opened: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> None:
        """Divide for each task. Only children return: they collect, and run what they find."""
        gc.collect()
        gc.freeze()
        for line in self._tasks:
            task = json.loads(line)
            name = task["module"].removesuffix(".py").replace("/", ".")
            if name in sys.modules:
                answer: dict[str, Any] = {"error": f"{name} is imported by a conftest"}
            else:
                with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as told:
                    child = os.fork()
                    if child == 0:
                        self._begin(session, task, os.dup(output.fileno()), os.dup(told.fileno()))
                        return
                    answer = _answer(child, ALL_TESTS * task["seconds_max"], output, told)
            self._answers.write(json.dumps(answer) + "\n")
            self._answers.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        pytest.exit("no more tasks", returncode=0)

    def _begin(self, session: pytest.Session, task: dict[str, Any], output: int, told: int) -> None:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
        self._seconds_max = task["seconds_max"]
        signal.signal(signal.SIGPROF, lambda *_: self._end(ENDLESS))
        whole = math.ceil(ALL_TESTS * self._seconds_max)
        resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 5))
        os.dup2(output, 1)
        os.dup2(output, 2)
        warnings.simplefilter("error")  # as the tests have it
        self._told = told
        self._place = {name: place for place, name in enumerate(task["first"])}
        session.config.args = [task["tests"]]
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            self._opened.add(arguments[0])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._place.get(item.nodeid, len(self._place)))
        self._ran = [item.nodeid for item in items]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Any:
        signal.setitimer(signal.ITIMER_PROF, self._seconds_max)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    @pytest.hookimpl(tryfirst=True, specname="pytest_runtest_protocol")
    def pytest_call_alone(self, item: pytest.Item) -> bool | None:
        """Call a test that needs nothing of pytest: that takes a tenth of the time."""
        if not needs_nothing(item):
            return None
        assert isinstance(item, pytest.Function)
        try:
            item.obj(**item.callspec.params if hasattr(item, "callspec") else {})
        except BaseException:  # noqa: BLE001 - whatever it is, the test fails
            self._end(item.nodeid)
        return True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self._noticed is None:
            self._noticed = NOT_IMPORTED

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._noticed is None:
            self._noticed = report.nodeid

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if self._told is not None:
            self._end(self._noticed, exitstatus)

    def _end(self, noticed: str | None, exitstatus: int = PASSED) -> None:
        """Be a child that has nothing more to do."""
        assert self._told is not None
        shown: dict[str, Any] = {"noticed": noticed}
        if noticed is None:
            shown |= {"ran": self._ran, "files": self._files()}
        os.write(self._told, json.dumps(shown).encode())
        os._exit(exitstatus)

    def _files(self) -> list[str]:
        """Return what was imported or read, by the paths in the copy."""
        imported = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        named = self._opened.union(name for name in imported if isinstance(name, str))
        paths = {self._here / name for name in named if not name.endswith(".pyc")}
        inside = {path.relative_to(self._here) for path in paths if path.is_relative_to(self._here)}
        return sorted(
            str(path) for path in inside if path.parts[0] in READ and (self._here / path).is_file()
        )


def needs_nothing(item: pytest.Item) -> bool:
    """Whether a test is a function of its parameters alone, without a fixture."""
    if not isinstance(item, pytest.Function) or item.cls is not None:
        return False
    given = item.callspec.params.keys() if hasattr(item, "callspec") else set()
    return set(item.fixturenames) <= given | NO_FIXTURES


def _answer(child: int, seconds_max: float, output: Any, told: Any) -> dict[str, Any]:
    code, seconds = _wait(child, WAITING * seconds_max)
    if code in {None, -signal.SIGXCPU, -signal.SIGKILL}:
        return {"noticed": ENDLESS}
    told.seek(0)
    text = told.read()
    shown: dict[str, Any] = json.loads(text) if text else {"noticed": None}
    if code == PASSED or shown["noticed"] is not None:
        return {**shown, "seconds": seconds}
    if code not in NOTHING_RAN:
        return {"noticed": CRASHED}
    output.seek(0)
    return {"error": f"pytest ended with {code}:\n{output.read().decode(errors='replace')[-2000:]}"}


def _wait(child: int, seconds_max: float) -> tuple[int | None, float]:
    """Return the child's exit status and processor time; None: it had to be ended."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        pid, status, used = os.wait4(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        time.sleep(POLL_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None, seconds_max


def main() -> None:
    os.chdir(sys.argv[1])
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # Drawn from the code otherwise, which means reading all of it.
    os.environ["HOLDFAST_TEST_FIRST_SEED"] = "1"
    # No failing example is kept for the next change, and none is made smaller for a reader.
    settings.register_profile("trial", database=None, phases=(Phase.explicit, Phase.generate))
    for name in SHARED:
        importlib.import_module(name)
    sys.path.insert(0, str(Path(sys.argv[1], "src")))
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # what pytest says
        sys.exit(pytest.main([*OPTIONS], plugins=[Trials(sys.stdin, answers)]))


if __name__ == "__main__":
    main()
