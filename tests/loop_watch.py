"""A watch on what callbacks of nodes' loops cost, for tests on real processes that are about load.

Owns how a process comes to be watched. `tests/watched` is what then runs in it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "watched"


class LoopWatch:
    """Of the processes that get its environment, from `arm` on."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._paused = file.with_name(f"{file.name}-paused")

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to be watched."""
        path = os.pathsep.join(filter(None, (str(FOLDER), os.environ.get("PYTHONPATH", ""))))
        return {"PYTHONPATH": path, "HOLDFAST_TEST_LONG_CALLBACKS": str(self._file)}

    def arm(self) -> None:
        """Begin, or go on: what a start costs is nobody's wait."""
        if self._paused.exists():
            self._paused.rename(self._file)
        self._file.touch()

    def pause(self) -> None:
        """Stop until `arm`: what is noted stays."""
        self._file.rename(self._paused)

    def check(self) -> None:
        """Fail if a callback cost its thread as much as three million additions do there."""
        found = self._file.read_text(encoding="utf-8")
        assert not found, f"callbacks that held up a loop:\n{found}"
