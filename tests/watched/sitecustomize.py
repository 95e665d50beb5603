"""Python imports this by itself where its folder is in PYTHONPATH: a node that a test watches.

Owns the watch on callbacks of a process's loop: what each costs in CPU time of its own thread,
held against what a piece of known work costs there and then. So a bound is an amount of work: it
neither grows when others have the processor nor on a slower one. Nothing of it is in what users
run.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

ADDITIONS = 3_000_000  # as much work is too much: 110 to 230 ms, by who shares the core
_PIECE = 20_000
_SHORT_S = 0.02  # what takes less is not looked at any closer
FILE = "HOLDFAST_TEST_LONG_CALLBACKS"  # where each is noted; armed once this file is there

_run = asyncio.Handle._run


def watched(self: Any) -> None:
    """Run a callback, and note it if it held the loop up for too long."""
    before = time.thread_time()
    _run(self)
    spent = time.thread_time() - before
    if spent > _SHORT_S:
        additions = spent / addition_s()
        if additions > ADDITIONS:
            note(f"{additions / 1e6:.1f} million additions, {spent * 1000:.0f} ms: {self!r}\n")


def addition_s() -> float:
    """Return the CPU time of an addition in a loop now, in seconds; the slowest of three pieces."""
    slowest = 0.0
    for _ in range(3):
        total, before = 0, time.thread_time()
        for number in range(_PIECE):
            total += number
        slowest = max(slowest, time.thread_time() - before)
    return slowest / _PIECE


def note(text: str) -> None:
    """Append to the file, if there is one."""
    path = os.environ.get(FILE, "")
    if os.path.exists(path):  # noqa: PTH110 - it runs before anything else is imported
        with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text)


if FILE in os.environ:
    asyncio.Handle._run = watched  # type: ignore[method-assign]
