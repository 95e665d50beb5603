"""Files as pyiceberg writes them (metadata, manifests), each on disk before the next is begun.

pyiceberg's own writers sync nothing, so a catalog could name metadata that a power cut has taken.
It takes another writer by the catalog's property `py-io-impl`; this is it. With the property
`JOURNAL` each name is written down first, so that what a dead writer has left can be removed.

Must never write elsewhere than on a disk of this machine: what is there is refused by `table`.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Final

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from holdfast.pipelines.sinks.written_files import sync

NAME: Final = f"{__name__}.SyncedFiles"
JOURNAL: Final = "holdfast.journal"


class SyncedFiles(PyArrowFileIO):
    """Reads as Arrow does; what is written is synced, its name too."""

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]  # Arrow's is both
        return SyncedOutput(location, self.new_input(location), self.properties.get(JOURNAL))


class SyncedOutput(OutputFile):
    """One file that is not there yet."""

    def __init__(self, location: str, read: InputFile, journal: str | None) -> None:
        super().__init__(location)
        self._read = read
        self._journal = journal

    def __len__(self) -> int:
        return len(self._read)

    def exists(self) -> bool:
        return self._read.exists()

    def to_input_file(self) -> InputFile:
        return self._read

    def create(self, overwrite: bool = False) -> SyncedStream:
        if self._journal is not None:
            note(Path(self._journal), [self.location])
        return SyncedStream(path_of(self.location), "wb" if overwrite else "xb")


class SyncedStream(io.BufferedWriter):
    """Bytes that are on disk when it is closed, with their name."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(io.FileIO(path, mode))
        self._path = path

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        sync(self._path.parent)


def path_of(location: str) -> Path:
    return Path(PyArrowFileIO.parse_location(location)[2])


def note(journal: Path, locations: list[str]) -> None:
    """Write down what will be written. Not synced: a power cut costs a file that nobody needs."""
    with journal.open("a") as file:
        file.write("".join(f"{location}\n" for location in locations))
