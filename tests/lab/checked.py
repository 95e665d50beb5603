"""A run that keeps what it is told, for the checks that scenarios make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from holdfast.judge.history import Event
from holdfast.lab.workload_processes import HistoryTail, Worker

COUNT = 3


def wrote(name: str, counts: Mapping[type[Event], int]) -> Worker:
    """Return a workload whose history has so many events of each kind."""
    tail = HistoryTail(Path("none"))
    tail.counts = Counter({(kind.KIND, 0): count for kind, count in counts.items()})
    return cast("Worker", SimpleNamespace(name=name, tail=tail))


class Scene:
    """As much of a run as these checks touch; a wait looks once."""

    def __init__(self, history: Path | None = None) -> None:
        self.history = history
        self.parameters = SimpleNamespace(count=COUNT)
        self.partitions = range(2)
        self.topic = "foo"
        self.kept: list[bool] = []

    def check(self, _name: str, _expected: str, _seen: str, *, kept: bool, **_: bool) -> bool:
        self.kept.append(kept)
        return kept

    def soon(self, condition: Callable[[], bool], _bound_s: float) -> bool:
        return condition()

    def wait(self, _what: str, condition: Callable[[], Any], _bound_s: float) -> Any:
        return condition()

    def steady_view(self, _seconds: float) -> None: ...

    def stop_workers(self) -> None: ...
