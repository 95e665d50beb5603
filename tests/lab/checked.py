"""A run that keeps what it is told, for the checks that scenarios make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

COUNT = 3


class Scene:
    """As much of a run as these checks touch; a wait looks once."""

    def __init__(self, history: Path | None = None) -> None:
        self.history = history
        self.parameters = SimpleNamespace(count=COUNT)
        self.partitions = range(2)
        self.topic = "foo"
        self.kept: list[bool] = []

    def check(self, _name: str, _expected: str, _seen: str, *, kept: bool) -> bool:
        self.kept.append(kept)
        return kept

    def soon(self, condition: Callable[[], bool], _bound_s: float) -> bool:
        return condition()

    def wait(self, _what: str, condition: Callable[[], Any], _bound_s: float) -> Any:
        return condition()

    def steady_view(self, _seconds: float) -> None: ...

    def stop_workers(self) -> None: ...
