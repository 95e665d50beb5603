"""Each test runs in the lane that is its own, whatever plugin does the work.

Goal: nothing that kills nodes runs beside its like, nothing starts a process unsaid, the worker
beyond the cores takes nothing serial, and each long test has its turn. Method: a made-up suite in a
run of its own, which writes down who ran what.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.lanes import GIVE_WAY, GIVE_WAY_MOST, PATIENCE_S, TURNS, cores

ROOT = Path(__file__).resolve().parents[2]
INI = """
[pytest]
markers =
    slow
    process
    serial
    turns
    apache
    chromium
    kcat
    postgresql
    spark
"""
CONFTEST = """
import os, pytest, subprocess, sys
from pathlib import Path
from tests.lanes import Lanes

def pytest_addoption(parser):
    parser.addoption("--in-turns", action="store_true")

def pytest_configure(config):
    config.pluginmanager.register(Lanes(config), "lanes")

@pytest.fixture(scope="session", autouse=True)
def _what_all_share():
    yield
    subprocess.run([sys.executable, "-c", ""])

@pytest.fixture(autouse=True)
def _write_down(request):
    worker, nice = os.environ["PYTEST_XDIST_WORKER"], os.nice(0)
    (bound,) = request.node.get_closest_marker("timeout").args
    Path(os.environ["WRITTEN"], request.node.name).write_text(f"{worker} {nice} {bound}")
"""
SERIAL = """
import pytest
pytestmark = pytest.mark.timeout(60)
@pytest.mark.serial
@pytest.mark.parametrize("number", range(4))
def test_{name}(number):
    pass
"""
OTHER_LINE = SERIAL.replace("mark.serial", 'mark.serial("others")')
WITH_PROCESSES = """
import pytest
pytestmark = pytest.mark.timeout(60)
@pytest.mark.process
def test_process_{name}():
    pass
"""
IN_TURNS = """
import pytest
pytestmark = [pytest.mark.timeout(60), pytest.mark.turns, pytest.mark.slow]
@pytest.mark.parametrize("number", range(9))
def test_long(number): pass
"""
ORDINARY = """
import pytest, subprocess, sys, time
pytestmark = pytest.mark.timeout(60)
@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_slow(number): pass
def test_that_says_nothing(): subprocess.run([sys.executable, "-c", ""])
def test_that_waits(): time.sleep(0.3)
def test_that_works():
    begin = time.process_time()
    while time.process_time() < begin + 0.3: pass
def test_ordinary(): pass  # the last one: what all share is ended beside it
"""


@pytest.mark.slow
@pytest.mark.process
def test_every_test_has_the_worker_of_its_lane(tmp_path: Path) -> None:
    suite, written = tmp_path / "suite", tmp_path / "written"
    suite.mkdir()
    written.mkdir()
    (suite / "pytest.ini").write_text(INI)
    (suite / "conftest.py").write_text(CONFTEST)
    for name in ("one", "two", "three"):
        (suite / f"test_{name}.py").write_text(SERIAL.format(name=name))
    (suite / "test_other.py").write_text(OTHER_LINE.format(name="other"))
    for name in ("a", "b", "c", "d"):
        (suite / name).mkdir()
        (suite / name / f"test_{name}.py").write_text(WITH_PROCESSES.format(name=name))
    (suite / "test_ordinary.py").write_text(ORDINARY)
    (suite / "test_turns.py").write_text(IN_TURNS)
    flags = ["-n", str(cores() + 1), "--in-turns", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *flags, str(suite)],
        cwd=suite,
        env={**os.environ, "PYTHONPATH": str(ROOT), "WRITTEN": str(written)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "1 failed, 34 passed in" in done.stdout, done.stdout + done.stderr
    assert "test_that_says_nothing starts a process: mark it" in done.stdout
    assert "test_that_works took 0.3" in done.stdout, "and is not marked slow"
    assert "test_that_waits" not in done.stdout
    wrote = {path.name: path.read_text().split() for path in written.iterdir()}

    def of(*names: str) -> set[tuple[str, int]]:
        return {
            (worker, int(nice))
            for name, (worker, nice, _) in wrote.items()
            if name.startswith(tuple(f"test_{begin}" for begin in names))
        }

    long = {int(name.partition("[")[2][:-1]) for name in wrote if name.startswith("test_long")}
    assert long in [set(range(first, 9, TURNS)) for first in range(TURNS)]
    base = os.nice(0)
    assert len(of("one", "two", "three")) == 1, "on several workers"
    assert len(of("other")) == 1, "on several workers"
    assert cores() == 1 or not of("other") & of("one", "two", "three"), "one waits for the other"
    assert {nice for _, nice in of("one", "two", "three", "other")} == {base}
    beyond = f"gw{cores()}"
    assert {(worker == beyond, int(bound)) for worker, _, bound in wrote.values()} == {
        (True, PATIENCE_S),
        (False, 60),
    }
    assert beyond not in {worker for worker, _ in of("one", "two", "three", "other")}
    assert {int(nice) for worker, nice, _ in wrote.values() if worker == beyond} == {
        min(base + GIVE_WAY_MOST, 19)
    }
    assert {nice for worker, nice in of("slow", "process") if worker != beyond} == {
        min(base + GIVE_WAY, 19)
    }
