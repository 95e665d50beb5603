"""Tests of a changed copy of the tree, without a new interpreter for each change.

A process imports what all tests need and nothing of ours, and divides for each trial: the child
imports the changed code and runs pytest. Owns the bounds on its time and memory.

    python scripts/trial.py COPY      reads {"tests": [...], "seconds_max": 20} a line
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Final

import pytest

MEMORY_MAX: Final = 4 << 30
ENDLESS: Final = "it does not end"
NOT_IMPORTED: Final = "it can't be imported"
PASSED: Final = 0
TESTS_FAILED: Final = (1, 2)  # as pytest says it: a test, or the import of one
POLL_S: Final = 0.005
SHARED: Final = ("confluent_kafka.admin", "hypothesis.strategies", "msgspec", "sqlalchemy")
OPTIONS: Final = (
    *("-x", "-q", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # for what is imported before
)


def attempt(tests: list[str], seconds_max: float) -> dict[str, Any]:
    """Run tests in a child; which failed first ("noticed", None for none), or an "error"."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            _run(tests, output.fileno())
        code = _wait(child, seconds_max)
        if code is None:
            return {"noticed": ENDLESS}
        if code == PASSED:
            return {"noticed": None}
        output.seek(0)
        text = output.read().decode(errors="replace")
    failed = [line for line in text.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if failed:
        return {"noticed": failed[0].split(" - ")[0]}
    if code in TESTS_FAILED or "Error" in text:
        return {"noticed": NOT_IMPORTED}
    return {"error": f"pytest ended with {code}:\n{text[-2000:]}"}


def _run(tests: list[str], output: int) -> None:
    """Be the child; never returns."""
    code = 3
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = int(pytest.main([*OPTIONS, "-m", "not process", *tests]))
    except BaseException:  # noqa: BLE001 - it is said, and the child ends
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int, seconds_max: float) -> int | None:
    """Return the child's exit status; None: it had to be ended."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(POLL_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main() -> None:
    os.chdir(sys.argv[1])
    sys.path.insert(0, str(Path(sys.argv[1], "src")))
    sys.dont_write_bytecode = True
    for name in SHARED:
        importlib.import_module(name)
    assert not any(name.partition(".")[0] == "holdfast" for name in sys.modules)
    for line in sys.stdin:
        task = json.loads(line)
        print(json.dumps(attempt(task["tests"], task["seconds_max"])), flush=True)


if __name__ == "__main__":
    main()
