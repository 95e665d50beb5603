"""A wall clock that somebody else sets, for a node that a lab starts.

Nothing of a node imports this, and no setting leads here: who starts the node's process has it
installed before the node begins. The offset lies in a file, which the process maps into its memory,
so that it holds from the moment on in which it is written, and survives the process.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from holdfast.runtime import real
from holdfast.runtime.ports import Runtime

CONFIG_FLAG = "--config"
OFFSET_BYTES = 8  # a signed number of milliseconds, in the machine's own order


class SettableClock(real.RealClock):
    """The real clock, but for an offset of what is on the wall: no timer runs by that."""

    def __init__(self, ahead_ms: Sequence[int]) -> None:
        self._ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms[0]


def install(file_name: str) -> None:
    """Put it into this process's runtime, if its command line names a node's settings.

    The offset is in the file of that name beside them; without one all stays as it is.
    """
    words = sys.orig_argv
    if CONFIG_FLAG not in words[:-1]:
        return
    settings = words[words.index(CONFIG_FLAG) + 1]
    path = os.path.join(os.path.dirname(settings), file_name)  # noqa: PTH118, PTH120 - a node's start
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as above
            offset = mmap.mmap(file.fileno(), OFFSET_BYTES, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        return
    clock, real_runtime = SettableClock(memoryview(offset).cast("q")), real.real_runtime

    def runtime(**settings: int) -> Runtime:
        return replace(real_runtime(**settings), clock=clock)

    real.real_runtime = runtime
