"""What a sink needs of the place where its rows go: memory, and one commit of rows and memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from sqlalchemy.exc import DBAPIError

from holdfast.pipelines.due import Memory, Work
from holdfast.pipelines.planned import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def is_one_machine(master: str) -> bool:
    """Return whether Spark runs on the driver's machine alone. A Connect client's is not known."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


class StagingError(RuntimeError):
    """What was staged is not what was computed. Nothing was written."""


class FullDiskError(RuntimeError):
    """The disk of a table's files has no room. The batch comes again at the next start."""


# As the system says it, of a quota too, and SQLite.
_FULL: Final = ("No space left on device", "Disk quota exceeded", "database or disk is full")
_ANY_TROUBLE: Final = "disk I/O error"  # what SQLite says when its index of a journal can't grow
_LOW_BYTES: Final = 1 << 16
_ROOM_BYTES: Final = 1 << 20  # more than what a transaction that was undone gives back


@contextmanager
def told_if_full(folder: Path | None) -> Iterator[None]:
    """Say in plain words that a table's disk is full, also where a task met it. FullDiskError.

    `folder`: of the table's files; None: a server has them, and says by itself what it lacks.
    """
    try:
        yield
    except Exception as error:
        if folder is None or not _is_full(_said(error), folder):
            raise
        raise FullDiskError(
            f"{_where(folder)}. The batch is not in the table, or whole. "
            "Make room, and start the query again: it comes to this batch again, and writes each "
            "row once"
        ) from error


def _said(error: Exception) -> str:
    """Return an error's own words: SQLAlchemy adds a statement and its rows, who may say so too."""
    return str(error.orig if isinstance(error, DBAPIError) else error)


def _where(folder: Path) -> str:
    """Name the disk; or both, where the table's has room: rows wait on another one, and spill."""
    if _free_bytes(folder) < _ROOM_BYTES:
        return f"{folder}: no room is left on this disk"
    return (
        f"{folder}: no room was left on this disk, or, since it has room now, on that of temporary "
        "files (TMPDIR, spark.local.dir)"
    )


def _is_full(said: str, folder: Path) -> bool:
    if any(words in said for words in _FULL):
        return True
    return _ANY_TROUBLE in said and _free_bytes(folder) < _LOW_BYTES


def _free_bytes(folder: Path) -> float:
    """Return how much room there is; without end where nobody can say."""
    with suppress(OSError):
        there = next(each for each in (folder, *folder.parents) if each.exists())
        return shutil.disk_usage(there).free
    return inf


class Staged(Protocol):
    """The rows of one batch, all computed, and seen by nobody yet."""

    @property
    def count(self) -> int:
        """How many there are."""

    def close(self) -> None:
        """Let go of what is held; what lies elsewhere is swept later."""


class Store(Protocol):
    """One query's table, and what it remembers of it. Owned by whoever took it last."""

    @property
    def query(self) -> str:
        """The name under which the table remembers the query."""

    @property
    def folder(self) -> Path | None:
        """Where the table's files are; None: a server has them."""

    def open(self, schema: StructType, master: str) -> None:
        """Take the query over, and make or compare the table. Called once a run, first.

        `schema` is the frame's, `master` where Spark runs. TargetError: they don't fit.
        """

    def memory(self) -> Memory:
        """Return how far the table is. FencedError: another driver has taken over."""

    def stage(self, frame: DataFrame, batch: Batch) -> Staged:
        """Compute all rows of a frame and put them where a commit finds them."""

    def commit(self, batch: Batch, work: Work, staged: Staged | None) -> None:
        """Write rows and memory in one commit, or neither. Without rows, `staged` is None.

        A store of keys (Redis) has no such commit: it writes memory last, and what a batch that
        died has left is written over by its replay.
        """

    def close(self) -> None:
        """Let go of connections."""
