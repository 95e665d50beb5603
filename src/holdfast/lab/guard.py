"""Ends whatever a run has started when the run's own process is gone, also by SIGKILL.

`python -m holdfast.lab.guard MARK`: a process of its own, which waits at a pipe. Only the run's
process holds the end that is written to, and the system closes it with that process, whatever ends
it. What belongs to a run bears its mark in the environment, and hands it down to what it starts
itself. So nobody has to watch for its parent: a node that is stopped by SIGSTOP could not.

It needs Linux's /proc. Elsewhere a run that is killed leaves its processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

MARK = "HOLDFAST_RUN"
BOUND_S = 60.0  # for what was killed to be gone; it may be writing
CLOSE_S = BOUND_S + 30.0  # for a guard to have done all that, on a slow machine
POLL_S = 0.02


class Guard:
    """The guard of one run, from its making until `close`."""

    def __init__(self) -> None:
        """Start it. OSError when that can't be done."""
        from holdfast.cluster import own_code  # noqa: PLC0415 - a guard itself imports nothing

        mark = uuid.uuid4().hex
        self.environment: Mapping[str, str] = {MARK: mark}  # for all that the run starts
        # Of another run, which may have started this one, it bears no mark: it is still needed
        # when that run's guard has ended this run's process. With -P no file of the folder that
        # somebody stands in is taken for a module of Python's.
        ours = {name: value for name, value in os.environ.items() if name != MARK}
        self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
            [sys.executable, "-P", "-m", "holdfast.lab.guard", mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**ours, **own_code.environment()},
            start_new_session=True,
        )

    def close(self) -> None:
        """End it, and what still bears the mark, also when it has not done that itself."""
        try:
            self._process.communicate(timeout=CLOSE_S)  # closes its standard input, which ends it
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode:  # also of one that somebody else has ended, long before
            end_marked(self.environment[MARK])


def marked(mark: str) -> Iterator[int]:
    """Yield the pid of every process that bears a mark; the dead bear none."""
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is somebody else's
            if _bears(directory.name, mark):
                yield int(directory.name)


def _bears(pid: int | str, mark: str) -> bool:
    return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def end_marked(mark: str) -> None:
    """Kill all that bear a mark, and what they start meanwhile, until there is none."""
    until_s = time.monotonic() + BOUND_S
    while (pids := list(marked(mark))) and time.monotonic() < until_s:
        for pid in pids:
            _kill(pid, mark)
        time.sleep(POLL_S)


def _kill(pid: int, mark: str) -> None:
    """Kill a process if it is the one that bears the mark: the pid may be another's by now."""
    with suppress(OSError), ExitStack() as ends:
        descriptor = os.pidfd_open(pid)
        ends.callback(os.close, descriptor)
        if _bears(pid, mark):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def main(mark: str) -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    end_marked(mark)


if __name__ == "__main__":
    main(sys.argv[1])
