"""What the processes of a made run write down, each in a file of its own."""

from __future__ import annotations

from typing import Any, TypeVar

from holdfast.judge.history import Event, merge

TOPIC = "foo"
WALL_MS = 1_700_000_000_000
EventT = TypeVar("EventT", bound=Event)


class Journal:
    """All files of one run. Its clock ticks in grains, so that processes tie."""

    def __init__(self, grain_ms: float) -> None:
        self.now_ms = 1000.0
        self.files: dict[str, list[Event]] = {}
        self._grain_ms = grain_ms

    @property
    def at_ms(self) -> float:
        return self.now_ms // self._grain_ms * self._grain_ms

    @property
    def wall_ms(self) -> int:
        return WALL_MS + int(self.now_ms)

    def tick(self) -> None:
        """Let so much time pass that no clock ties with what was before."""
        self.now_ms += 2 * self._grain_ms

    def record(self, kind: type[EventT], process: str, **values: Any) -> EventT:
        event = kind(at_ms=self.at_ms, wall_ms=self.wall_ms, process=process, **values)
        self.files.setdefault(process, []).append(event)
        return event

    def history(self) -> list[Event]:
        """Return what the judge gets: all files in the order of the clock."""
        return list(merge(*(self.files[name] for name in sorted(self.files))))
