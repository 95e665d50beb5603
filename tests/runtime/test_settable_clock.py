"""Goal: a node's wall clock is what somebody else sets, from that moment on, and no timer is.

Method: a process of Python's own that begins as a node does, and tells its clocks when asked.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

HOUR_MS = 3_600_000
NAME = "ahead"
PROGRAM = f"""
import sys
from holdfast.runtime.settable_clock import install
install({NAME!r})
from holdfast.runtime import real
clock = real.real_runtime(worker_threads=1).clock
for _ in sys.stdin:
    print(clock.wall_ms(), clock.monotonic_ms(), flush=True)
"""


@contextmanager
def clocks(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PROGRAM, *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0


def hours_ahead(process: subprocess.Popen[str]) -> tuple[int, int]:
    """Return by how many hours its wall clock and its timers' clock differ from ours."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    wall_ms, monotonic_ms = map(int, process.stdout.readline().split())
    ours = time.time() * 1000, time.monotonic() * 1000
    return round((wall_ms - ours[0]) / HOUR_MS), round((monotonic_ms - ours[1]) / HOUR_MS)


def write(file: Path, hours: int) -> None:
    with file.open("r+b") as opened:
        opened.write((hours * HOUR_MS).to_bytes(8, sys.byteorder, signed=True))


def test_it_is_what_was_written_last(tmp_path: Path) -> None:
    file = tmp_path / NAME
    file.write_bytes(bytes(8))
    with clocks("--config", str(tmp_path / "server.properties")) as process:
        assert hours_ahead(process) == (0, 0)
        for hours in (5, -3, 0):
            write(file, hours)
            assert hours_ahead(process) == (hours, 0)
        write(file, 7)
    with clocks("--config", str(tmp_path / "server.properties")) as process:
        assert hours_ahead(process) == (7, 0), "a node that is started again keeps its clock"


@pytest.mark.parametrize("words", [("--config", "server.properties"), ("--config",), ()])
def test_where_nothing_is_set_it_is_the_real_one(tmp_path: Path, words: tuple[str, ...]) -> None:
    told = [str(tmp_path / each) if each.endswith("s") else each for each in words]
    with clocks(*told) as process:
        assert hours_ahead(process) == (0, 0)
