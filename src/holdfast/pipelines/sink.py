"""Sinks of a user's own recipe: rows and offsets in one transaction, and the plain control without.

How rows become a table's is a `Recipe`; the order of the steps is `TableSink`'s, as with any store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy.engine import Connection

from holdfast.pipelines.due import Memory, Work
from holdfast.pipelines.fence import Ownership, folder_of, open_engine
from holdfast.pipelines.planned import Batch
from holdfast.pipelines.sinks.database_url import with_secrets
from holdfast.pipelines.sinks.spool import Spool, spooled
from holdfast.pipelines.sinks.store import Staged, told_if_full
from holdfast.pipelines.sinks.table_sink import OnCommit, TableSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

SinkRow = Mapping[str, Any]


class Recipe(Protocol):
    """How rows become a table's rows. Both methods use the connection they are given, only."""

    def prepare(self, connection: Connection) -> None:
        """Create the tables if they are not there."""

    def write(self, connection: Connection, rows: Sequence[SinkRow]) -> None:
        """Write a chunk. It is part of a transaction: no commit, nothing outside of it."""


class RecipeStore:
    """Tables that a recipe writes, in the process that made this: it owns the query from then."""

    def __init__(self, url: str, query: str, recipe: Recipe) -> None:
        self._engine = open_engine(with_secrets(url))
        self._recipe = recipe
        self.ownership = Ownership.take(self._engine, query)
        with self.ownership.transaction() as connection:
            recipe.prepare(connection)

    @property
    def query(self) -> str:
        return self.ownership.query

    @property
    def folder(self) -> Path | None:
        return folder_of(self._engine.url)

    def open(self, schema: StructType, master: str) -> None:
        """The recipe has made its tables, and knows what they have to be."""

    def memory(self) -> Memory:
        return self.ownership.memory()

    def stage(self, frame: DataFrame, batch: Batch) -> Staged:
        del batch  # its rows are nowhere but in this process
        return spooled(frame)

    def commit(self, batch: Batch, work: Work, staged: Staged | None) -> None:
        with self.ownership.transaction() as connection:
            self.ownership.commit_batch(connection, batch, work)
            if staged is not None:
                assert isinstance(staged, Spool)
                for chunk in staged.chunks():
                    self._recipe.write(connection, chunk)

    def close(self) -> None:
        self._engine.dispose()


class ExactlyOnceSink(TableSink):
    """`writeStream.foreachBatch(sink)`: every row of the query in the tables once, whatever dies.

    `url` is SQLAlchemy's; a password in it may be `env:NAME` or `file:PATH`.
    `query` is the name under which the tables remember how far they are; keep it when a checkpoint
    is deleted or moved. `checkpoint` is the query's checkpointLocation. Rows of a query without
    state should keep the columns topic, partition and offset as the source gives them, under any
    name: they are needed when a batch is already half there. `begin_anew` names topics and
    checkpoints, by the ids that an error told, that are over: what the tables remember under them
    is forgotten, and their rows stay.
    """

    def __init__(
        self,
        url: str,
        query: str,
        recipe: Recipe,
        *,
        checkpoint: str,
        begin_anew: Collection[str] = (),
        on_commit: OnCommit | None = None,
    ) -> None:
        """Take the query over: from now on its former owner can't commit."""
        with told_if_full(folder_of(url)):
            store = RecipeStore(url, query, recipe)
        self.ownership = store.ownership
        super().__init__(store, checkpoint=checkpoint, begin_anew=begin_anew, on_commit=on_commit)


class AppendSink:
    """The control: the same rows, appended, and nothing remembered. A replay doubles them."""

    def __init__(self, url: str, recipe: Recipe, *, on_commit: OnCommit | None = None) -> None:
        self._on_commit = on_commit
        self._engine = open_engine(with_secrets(url))
        self._recipe = recipe
        self.failure: BaseException | None = None
        with self._engine.begin() as connection:
            recipe.prepare(connection)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            rows = self._append(frame)
        except BaseException as error:
            self.failure = error
            raise
        if self._on_commit is not None:
            self._on_commit(batch, rows)

    def _append(self, frame: DataFrame) -> int:
        with spooled(frame) as rows:
            with self._engine.begin() as connection:
                for chunk in rows.chunks():
                    self._recipe.write(connection, chunk)
            return rows.count

    def close(self) -> None:
        self._engine.dispose()
