"""Writes one process's history: stamps events with both clocks and appends them to its file.

A line that must be in the file before something else happens is written through `flush`; what is
flushed survives a SIGKILL of this process, since the kernel has it.
"""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from holdfast.judge.groups.history import encode_any
from holdfast.judge.history import Event

BUFFERED_LINES_MAX = 512

EventT = TypeVar("EventT", bound=Event)


class Recorder(AbstractContextManager["Recorder"]):
    """One history file, written by one process; its methods may be called from any thread."""

    def __init__(self, path: Path, process: str) -> None:
        """Create the file anew. OSError when that can't be done."""
        self.path = path
        self.process = process
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self._file = path.open("wb", buffering=0)

    def record(self, kind: type[EventT], **values: Any) -> EventT:
        """Make an event of now, and keep its line for the next flush."""
        event = self.event(kind, **values)
        self.keep(event)
        return event

    def event(self, kind: type[EventT], **values: Any) -> EventT:
        """Make an event of now, for `keep` once it is whole."""
        return kind(
            at_ms=time.monotonic_ns() // 1000 / 1000,  # microseconds are enough
            wall_ms=time.time_ns() // 1_000_000,
            process=self.process,
            **values,
        )

    def keep(self, event: Event) -> None:
        """Keep an event's line for the next flush."""
        with self._lock:
            self._lines.append(encode_any(event))
            if len(self._lines) >= BUFFERED_LINES_MAX:
                self._write()

    def flush(self) -> None:
        """Hand all kept lines to the kernel."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        if not self._lines:
            return
        view = memoryview("".join(self._lines).encode())
        self._lines.clear()
        while view:
            view = view[self._file.write(view) :]

    def close(self) -> None:
        self.flush()
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()
