"""Open files of one log directory, at most so many: ten thousand replicas fit any limit.

Owns every descriptor that the loop uses. Jobs in the worker open their own.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import closing, suppress

from holdfast.runtime.ports import Disk, File, Files


class FileCache:
    """Least recently used first out. A file is opened when it is asked for."""

    __slots__ = ("_disk", "_limit", "_open")

    def __init__(self, disk: Disk, limit: int) -> None:
        assert limit > 0
        self._disk = disk
        self._limit = limit
        self._open: OrderedDict[str, File] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, path: str, *, create: bool = False) -> File:
        """Return the open file. Use it at once, do not keep it. OSError: it can't be opened."""
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        file = self._disk.open(path, create=create)
        self._open[path] = file
        if len(self._open) > self._limit:
            self._open.popitem(last=False)[1].close()
        return file

    def forget(self, path: str) -> None:
        """Close the file before it is renamed or removed. It need not be open."""
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close every file. OSError: the first failure; the others are closed all the same."""
        files, self._open = list(self._open.values()), OrderedDict()
        first: OSError | None = None
        for file in files:
            try:
                file.close()
            except OSError as error:
                first = first or error
        if first is not None:
            raise first


def sync_file(disk: Files, path: str) -> None:
    """Make a file's content durable, if it is there. OSError: it is not."""
    with suppress(FileNotFoundError), closing(disk.open(path)) as file:
        file.sync()
