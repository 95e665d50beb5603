"""A headless Chromium for tests: opens a file as a telephone or a desk does, and asks the page.

It speaks the DevTools protocol over a pair of pipes, so no port and no package is needed.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ANSWER_S = 60.0
READ_BYTES = 1 << 16
# Chromium reads commands from descriptor 3 and answers on 4.
PLUG = """
import os, sys
commands, answers = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2]))
os.dup2(commands, 3)
os.dup2(answers, 4)
os.set_inheritable(3, True)
os.set_inheritable(4, True)
os.execv(sys.argv[3], sys.argv[3:])
"""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """Where a Chromium is on this machine."""
    return next(filter(None, (shutil.which(name) for name in NAMES)), None)


class Browser:
    """One process with one page. A context manager."""

    def __init__(self, program: str, profile: Path) -> None:
        """`profile` is a directory for what the browser writes."""
        commands_out, self._commands = os.pipe()
        self._answers, answers_in = os.pipe()
        words = [
            *(sys.executable, "-c", PLUG, str(commands_out), str(answers_in)),
            *(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe"),
            f"--user-data-dir={profile}",
        ]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(commands_out, answers_in),
        )
        os.close(commands_out)
        os.close(answers_in)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)

    def open(self, path: Path, *, width: int, height: int, dark: bool) -> None:
        """Open a file on a screen of this size, and wait until the page is whole."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=path.absolute().as_uri())
        deadline = time.monotonic() + ANSWER_S
        wanted = f"document.readyState === 'complete' && location.protocol === 'file:' && {width}"
        while self.ask(f"{wanted} === innerWidth") is not True:
            assert time.monotonic() < deadline, f"{path} was not opened"

    def ask(self, expression: str) -> Any:
        """What a piece of JavaScript gives in the page."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command; return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result = answer["result"]
                assert isinstance(result, dict)
                return result

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._answers], [], [], max(0.0, left))
            assert ready, f"Chromium does not answer ({self._process.poll()})"
            data = os.read(self._answers, READ_BYTES)
            assert data, f"Chromium has ended ({self._process.wait()})"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        found = json.loads(line)
        assert isinstance(found, dict)
        return found
