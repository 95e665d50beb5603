"""Functions at which a driver is held, and what ends it. Shared by the drivers of proofs.

Owns the words that such a driver hears on standard input, one JSON object a line:

    {"place": "MODULE:NAME", "when": "before", "times": 2}   from the second time on: "at", and hold
    {"go": true}                                             go on

With `when` "amid" the driver says that it begins with the function, and goes on at once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import reduce, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.pipelines.driver import FAILED, LOOK_S, STOPPED, cause, say
from holdfast.pipelines.unfinished import is_unfinished

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

HOLD_S_MAX = 600
FIRST_MS = 50.0  # how long a function takes that was not called before


def found(place: str) -> tuple[Any, str]:
    """Return whose a function is, a module or a class, and its name there."""
    module, _, path = place.partition(":")
    *owners, last = path.split(".")
    return reduce(getattr, owners, import_module(module)), last


class Places:
    """Functions that are watched, and the one of them at which the driver is to be held."""

    def __init__(self, names: Sequence[str]) -> None:
        self._armed: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._go = threading.Event()
        self._lasted_ms: dict[str, float] = {}
        for name in names:
            owner, last = found(name)
            setattr(owner, last, self._watched(name, getattr(owner, last)))

    def hear(self) -> None:
        """Do what standard input says. When it ends, nobody is there any more: end as well."""
        for line in sys.stdin:
            told = json.loads(line)
            if "go" in told:
                self._go.set()
                continue
            with self._lock:
                self._armed = told
        with suppress(ProcessLookupError):
            os.killpg(os.getpgid(0), signal.SIGKILL)

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def watched(*arguments: Any, **named: Any) -> Any:
            self._reach(name, "before")
            self._reach(name, "amid")
            begin_s = time.monotonic()
            result = call(*arguments, **named)
            self._lasted_ms[name] = 1_000 * (time.monotonic() - begin_s)
            self._reach(name, "after")
            return result

        return watched

    def _reach(self, place: str, when: str) -> None:
        with self._lock:
            if (self._armed.get("place"), self._armed.get("when")) != (place, when):
                return
            self._armed["times"] -= 1
            if self._armed["times"] > 0:
                return
            self._armed = {}
            self._go.clear()
        say("at", place=place, when=when, lasted_ms=self._lasted_ms.get(place, FIRST_MS))
        if when != "amid":
            self._go.wait(HOLD_S_MAX)


def follow(query: StreamingQuery) -> int:
    """Wait for the end of a query, which SIGTERM brings about; say why; return the exit status.

    A batch that is under way then comes again at the next start.
    """
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - after Java is chosen

    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
    say("started")
    try:
        while not query.awaitTermination(LOOK_S):
            if stopping.is_set():
                query.stop()
                break
    except StreamingQueryException as error:
        sys.stderr.write(f"{error}\n")
        say("failed", error=cause(str(error)), unfinished=is_unfinished(str(error)))
        return FAILED
    say("stopped")
    return STOPPED
