"""Python imports this by itself where its folder is in PYTHONPATH: a node that a test watches.

Owns the watch on callbacks of a process's loop: what each costs in CPU time of its own thread,
which does not grow when others have the processor. Nothing of it is in what users run.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

LIMIT_S = 0.05
FILE = "HOLDFAST_TEST_LONG_CALLBACKS"  # where each is noted; armed once this file is there

_run = asyncio.Handle._run


def watched(self: Any) -> None:
    """Run a callback, and note it if it held the loop up for too long."""
    before = time.thread_time()
    _run(self)
    spent = time.thread_time() - before
    if spent > LIMIT_S:
        note(f"{spent * 1000:.0f} ms: {self!r}\n")


def note(text: str) -> None:
    """Append to the file, if there is one."""
    path = os.environ.get(FILE, "")
    if os.path.exists(path):  # noqa: PTH110 - it runs before anything else is imported
        with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text)


if FILE in os.environ:
    asyncio.Handle._run = watched  # type: ignore[method-assign]
