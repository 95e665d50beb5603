"""What of a folder a power cut would leave, by POSIX: what was synced, and under names that were.

A hook of the interpreter sees each step on the disk in its order: what is opened to be written,
renamed, made; and `os.fsync` tells what was synced. What other code has written (deltalake's, in
Rust) no hook sees: it counts as lost until it is synced.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Disk:
    """Which contents and names below a folder are on disk, and not in the system's memory alone."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names: set[Path] = {root, *root.rglob("*")}
        self._contents = {path for path in self._names if path.is_file()}

    def lost(self) -> list[str]:
        """Return the files that a power cut would take, or empty, at this moment."""
        found = [path for path in sorted(self._root.rglob("*")) if path.is_file()]
        return [str(path.relative_to(self._root)) for path in found if not self._is_kept(path)]

    def _is_kept(self, path: Path) -> bool:
        above = [each for each in (path, *path.parents) if each.is_relative_to(self._root)]
        return path in self._contents and self._names.issuperset(above)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See all that is done meanwhile by this thread's process."""
        sync = os.fsync
        watching = [True]

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if watching:
                self._see(event, arguments)

        def synced(descriptor: int) -> None:
            sync(descriptor)
            self._synced(Path(f"/proc/self/fd/{descriptor}").readlink())

        sys.addaudithook(hook)  # stays; without `watching` it does nothing
        with patch("os.fsync", synced):
            yield
        watching.clear()

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | os.PathLike):
            path = Path(arguments[0])
            if arguments[2] & _WRITES:
                self._contents.discard(path)
                if not path.exists():
                    self._names.discard(path)
        elif event == "os.mkdir":
            self._names.discard(Path(arguments[0]))
        elif event in {"os.rename", "os.link"}:
            self._renamed(Path(arguments[0]), Path(arguments[1]))

    def _renamed(self, before: Path, after: Path) -> None:
        for kept in (self._contents, self._names):
            kept.difference_update([each for each in kept if each.is_relative_to(after)])
            moved = [each for each in kept if each.is_relative_to(before)]
            kept.difference_update(moved)
            kept.update(after / each.relative_to(before) for each in moved if each != before)
            if kept is self._contents and before in moved:
                kept.add(after)

    def _synced(self, path: Path) -> None:
        if path.is_dir():
            self._names.update(path.iterdir())
        else:
            self._contents.add(path)
