"""A process of the demo that tells what it does as JSON lines: start it, follow it, end it.

Owns the process and one thread that reads its standard output. What it writes to standard error
goes to a file whose end is shown when it fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.lab.demo_plan import DemoError

STOP_TIMEOUT_S = 30.0
TAIL_LINES = 12
TAIL_BYTES = 16_384

Heard = Callable[[dict[str, Any]], None]


class Child:
    """One Python process of ours. `last` has the last event of each kind that it told."""

    def __init__(self, name: str, module: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self.last: dict[str, dict[str, Any]] = {}
        self.totals: dict[str, int] = {}
        self._log = log
        self._lock = threading.Lock()
        with log.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                # A Ctrl-C in the terminal is the demo's to handle, not each process's.
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._listen, name=name, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a library's own words
            if isinstance(event, dict) and "event" in event:
                with self._lock:
                    self.last[event["event"]] = event
                    rows = self.totals.get("rows", 0) + int(event.get("rows", 0))
                    self.totals["rows"] = rows

    def value(self, event: str, name: str) -> int:
        """Return a number of the last event of a kind; 0 when there was none."""
        with self._lock:
            return int(self.last.get(event, {}).get(name, 0))

    def heard(self, event: str) -> bool:
        with self._lock:
            return event in self.last

    @property
    def rows(self) -> int:
        """The sum of all `rows` that were told."""
        with self._lock:
            return self.totals.get("rows", 0)

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, line: str) -> None:
        """Write a line to its standard input; nothing when it has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `raise_if_ended` says why
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def raise_if_ended(self) -> None:
        """DemoError with what it said, when it is no longer there."""
        if self._process.poll() is None:
            return
        with self._lock:
            said = self.last.get("failed", {}).get("error")
        raise DemoError(
            f"{self.name} ended with status {self._process.returncode}: {said or self.tail()}"
        )

    def wait(self, timeout_s: float) -> int:
        """Return its exit status. DemoError when it goes on for too long."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise DemoError(f"{self.name} did not end within {timeout_s:.0f} s.") from error
        self._close()
        return status

    def stop(self) -> int:
        """End it with SIGTERM, and with SIGKILL if it does not listen. Returns its exit status."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL it and what it has started: the JVM of a Spark driver, at the same instant."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_TIMEOUT_S)
        self._close()

    def _close(self) -> None:
        """Close both pipes, the one for reading when all of it has been heard."""
        self._reader.join(STOP_TIMEOUT_S)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()

    def tail(self) -> str:
        """Return the last lines of its log."""
        with self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:]) or "it said nothing"
