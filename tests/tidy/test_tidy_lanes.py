"""Each test runs in the lane that is its own, whatever plugin does the work.

Goal: nothing that kills nodes runs beside its like, and nothing starts a process unsaid. Method: a
made-up suite in a run of its own with two workers, which writes down who ran what.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INI = """
[pytest]
markers =
    slow
    process
    serial
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

def pytest_configure(config):
    config.pluginmanager.register(Lanes(config), "lanes")

@pytest.fixture(scope="session", autouse=True)
def _what_all_share():
    yield
    subprocess.run([sys.executable, "-c", ""])

@pytest.fixture(autouse=True)
def _write_down(request):
    worker, nice = os.environ["PYTEST_XDIST_WORKER"], os.nice(0)
    Path(os.environ["WRITTEN"], request.node.name).write_text(f"{worker} {nice}")
"""
SERIAL = """
import pytest
@pytest.mark.serial
@pytest.mark.parametrize("number", range(4))
def test_{name}(number):
    pass
"""
ORDINARY = """
import subprocess, sys
def test_that_says_nothing(): subprocess.run([sys.executable, "-c", ""])
def test_ordinary(): pass  # the last one: what all share is ended beside it
"""


@pytest.mark.slow
@pytest.mark.process
def test_serial_tests_share_a_worker_and_a_process_must_be_said(tmp_path: Path) -> None:
    suite, written = tmp_path / "suite", tmp_path / "written"
    suite.mkdir()
    written.mkdir()
    (suite / "pytest.ini").write_text(INI)
    (suite / "conftest.py").write_text(CONFTEST)
    for name in ("one", "two", "three"):
        (suite / f"test_{name}.py").write_text(SERIAL.format(name=name))
    (suite / "test_ordinary.py").write_text(ORDINARY)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "-q", str(suite)],
        cwd=suite,
        env={**os.environ, "PYTHONPATH": str(ROOT), "WRITTEN": str(written)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "1 failed, 13 passed in" in done.stdout, done.stdout + done.stderr
    assert "test_that_says_nothing starts a process: mark it" in done.stdout
    wrote = {path.name: path.read_text().split() for path in written.iterdir()}
    serial = [
        where for name, where in wrote.items() if "ordinary" not in name and "says" not in name
    ]
    assert len(serial) == 12
    assert len({worker for worker, _ in serial}) == 1, "on several workers"
    base = os.nice(0)
    assert {nice for _, nice in serial} == {str(base)}
    assert wrote["test_ordinary"] == [wrote["test_ordinary"][0], str(min(base + 10, 19))]
