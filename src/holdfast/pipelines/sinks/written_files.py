"""Parquet files that tasks have written and that no reader sees yet: what their names stand for.

Must never make them visible: that is a store's commit.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from pyarrow import parquet

from holdfast.pipelines.offsets import RECORD
from holdfast.pipelines.sinks.store import StagingError
from holdfast.pipelines.sinks.target import TargetError


@dataclass(frozen=True, slots=True)
class Files:
    """The files of the tasks that Spark chose, and how many rows they have."""

    folder: Path
    names: tuple[str, ...]
    count: int

    @classmethod
    def of(cls, folder: Path, done: Iterable[Any]) -> Self:
        """Return what tasks told of theirs: rows of `parquet.task.SCHEMA`."""
        told = list(done)
        return cls(folder, tuple(row.name for row in told), sum(row.rows for row in told))

    def close(self) -> None:
        """What was not committed is removed: it is in nobody's way."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def move_to(self, folder: Path) -> None:
        """Put them into another folder of the same disk, and have their names there on disk."""
        for name in self.names:
            (self.folder / name).rename(folder / name)
        sync(folder)

    def rows(self) -> dict[str, int]:
        """Return each file's rows, as it tells them. StagingError: not as many as were computed."""
        found: dict[str, int] = {
            name: parquet.read_metadata(self.folder / name).num_rows for name in self.names
        }
        if sum(found.values()) != self.count:
            raise StagingError(
                f"{self.count} rows were computed, and {sum(found.values())} of them are in "
                f"{self.folder}: somebody else changed it. Nothing was written; the batch comes "
                "again"
            )
        return found


def unmarked(schema: Any) -> Any:
    """Return a schema's JSON value without what the source notes beside columns.

    >>> unmarked({"name": "at", "metadata": {"holdfast.record": "offset", "comment": "x"}})
    {'name': 'at', 'metadata': {'comment': 'x'}}
    """
    if isinstance(schema, list):
        return [unmarked(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: unmarked(value) for name, value in schema.items() if name != RECORD}


def begin(folder: Path) -> None:
    """Make a folder for a batch, in place of what an attempt before has left there.

    Without its parents: a fenced owner does not get its area back.
    """
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()


def make_folder(folder: Path) -> None:
    """Make a folder if it is not there, and have its name on disk, with all that leads to it.

    Also where it is there: who made it may have died before its name was on disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for above in folder.parents:
        with suppress(OSError):  # of another's folder, which may not be opened, the name is there
            sync(above)


def write_whole(file: Path, content: bytes) -> None:
    """Have a file on disk with this content, or as it was, whatever dies, and the power too."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    with fresh.open("wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    fresh.rename(file)
    sync(file.parent)


def sync(path: Path) -> None:
    """Have a file on disk, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def folder_of(url: str, scheme: str, reason: str) -> Path:
    """Return the folder of `SCHEME:///PATH`. TargetError, with the reason: it is somewhere else."""
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise TargetError(
            f"target: {scheme}:///FOLDER ends before a ? or #; if the folder's name has one, write "
            "%3F or %23"
        )
    if parts.scheme != scheme or parts.netloc or not parts.path.startswith("/"):
        # What stands before an @ may be a key to somebody's store.
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        raise TargetError(f"target: {shown!r}; use {scheme}:///FOLDER. {reason}")
    return Path(unquote(parts.path))
