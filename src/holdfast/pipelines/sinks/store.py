"""What a sink needs of the place where its rows go: memory, and one commit of rows and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

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
