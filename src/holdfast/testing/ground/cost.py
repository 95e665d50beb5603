"""What a callback costs: so much virtual time for each call of Python that it makes, and each byte.

Owns the counting. There is nothing of it in a node: the interpreter tells a profiler of every
call, and this one does not look at a clock but at a number that grows by one each time it is asked.
So what a callback costs is the same in every run of a seed, and work that grows with what exists
shows as a node that is late. A loop that calls nothing costs nothing; hardly any does.
"""

from __future__ import annotations

import cProfile
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import count
from pkgutil import walk_packages
from types import ModuleType
from typing import Any, Final, TypeVar

from holdfast.node.door.api_table import ON_BROKER, ON_CONTROLLER, Role
from holdfast.node.door.dispatch import _routes
from holdfast.wire import codec as coding
from holdfast.wire.batch import Codec, Record, build_batch, read_records
from holdfast.wire.messages import API_NAMES, request_class, response_class

T = TypeVar("T")

_ASKED_A_CALL: Final = 2  # the profiler asks when a call begins and when it ends
_PACKAGES: Final = tuple(
    f"holdfast.{name}" for name in ("config", "core", "log", "node", "runtime", "wire")
)
_LITTLE: Final = 100
BYTES_A_CALL: Final = 1_000  # moving so many bytes takes as long as a call


_COMPILERS: Final[tuple[tuple[ModuleType, str], ...]] = (
    (coding, "compile_encoder"),
    (coding, "compile_decoder"),
    (re._compiler, "compile"),  # type: ignore[attr-defined] # noqa: SLF001 - behind its own cache
)


@cache
def _warm_up() -> None:
    """Load what is loaded when it is first asked for; let enums and codecs find their places."""
    for package in _PACKAGES:
        path = import_module(package).__path__
        for module in walk_packages(path, f"{package}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    for side in (*Role, ON_BROKER, ON_CONTROLLER):
        for route in _routes(side).values():
            route.load()
    for key in API_NAMES:
        with suppress(ImportError):  # some are known by name alone
            request_class(key), response_class(key)
    for codec in Codec:
        read_records(build_batch([Record(value=b"warm" * 20)], codec=codec))


class Meter:
    """Counts calls while it runs. One in a process at a time."""

    def __init__(self) -> None:
        self.bytes = 0  # that went through a port since the last look
        counter = count()
        self._read: Final = counter.__next__
        self._mark = 0
        self._replaced: list[tuple[ModuleType, str, Any]] = []
        self._profiler = cProfile.Profile(self._read, 1.0, subcalls=False, builtins=False)

    def start(self) -> None:
        """Begin, with everything warm that a process does once: so the first run is as all others.

        What is compiled when it is first used costs nothing.
        """
        _warm_up()
        logging.disable(logging.root.manager.disable)  # forgets what each logger remembers
        for module, name in _COMPILERS:
            self._replaced.append((module, name, getattr(module, name)))
            setattr(module, name, self._free(getattr(module, name)))
        self._profiler.enable(subcalls=False, builtins=False)

    def stop(self) -> None:
        self._profiler.disable()
        for replaced in self._replaced:
            setattr(*replaced)

    def _free(self, function: Callable[..., T]) -> Callable[..., T]:
        """Return the function at no cost, not even that of being called through this one."""

        def call(*arguments: Any) -> T:
            result: T = self.without(lambda: function(*arguments))
            self._mark += 2 * _ASKED_A_CALL
            return result

        return call

    def begin(self) -> None:
        """Count from here on."""
        self.bytes = 0
        self._mark = self._read()

    def calls(self) -> int:
        """Calls since `begin`, bytes among them, in whole hundreds: what is less is nothing."""
        calls = (self._read() - self._mark) // _ASKED_A_CALL + self.bytes // BYTES_A_CALL
        return calls - calls % _LITTLE

    def without(self, work: Callable[[], T]) -> T:
        """Do something that costs nobody anything, as what another thread does."""
        began, touched = self._read(), self.bytes
        try:
            return work()
        finally:
            self._mark += self._read() - began + 1
            self.bytes = touched
