"""Tests of a changed copy of the tree, without a new interpreter for each change.

A process imports what all tests need and nothing of ours, and divides for each trial: the child
imports the changed code and runs pytest. Owns the bounds on its time and memory.

    python scripts/trial.py COPY      reads {"tests": [...], "seconds_max": 20} a line

It answers {"noticed": which test failed first, or null, "seconds": of processor time, "files": of
the copy that were imported}, or {"error": why nothing can be said}.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
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
# Trials run where others work, too: what takes long is told by the processor's time. The clock's
# is for what waits for ever.
WAITING: Final = 20  # times the processor's
SHARED: Final = ("confluent_kafka.admin", "hypothesis.strategies", "msgspec", "sqlalchemy")
OPTIONS: Final = (
    *("-x", "-q", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # for what is imported before
)


def attempt(tests: list[str], seconds_max: float) -> dict[str, Any]:
    """Run tests in a child, and return the answer."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as imported:
        child = os.fork()
        if child == 0:
            _run(tests, seconds_max, output.fileno(), imported.fileno())
        code, seconds = _wait(child, WAITING * seconds_max)
        if code in {None, -signal.SIGXCPU}:
            return {"noticed": ENDLESS}
        if code == PASSED:
            imported.seek(0)
            return {"noticed": None, "seconds": seconds, "files": json.load(imported)}
        output.seek(0)
        text = output.read().decode(errors="replace")
    failed = [line for line in text.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if failed:
        return {"noticed": failed[0].split(" - ")[0]}
    if code in TESTS_FAILED or "Error" in text:
        return {"noticed": NOT_IMPORTED}
    return {"error": f"pytest ended with {code}:\n{text[-2000:]}"}


def _run(tests: list[str], seconds_max: float, output: int, imported: int) -> None:
    """Be the child; never returns."""
    code = 3
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
        whole = math.ceil(seconds_max)
        resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 5))
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = int(pytest.main([*OPTIONS, "-m", "not process", *tests]))
        os.write(imported, json.dumps(_imported()).encode())
    except BaseException:  # noqa: BLE001 - it is said, and the child ends
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _imported() -> list[str]:
    """Return the files of the copy that have been imported, by their paths in it."""
    here = Path.cwd()
    names = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    found = {Path(name) for name in names if isinstance(name, str)}
    return sorted(str(path.relative_to(here)) for path in found if path.is_relative_to(here))


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
