"""Sinks for foreachBatch: rows and offsets in one transaction, and the plain control without.

Owns the order of the steps: what was planned, what of it is due, then one transaction that checks
the owner's epoch, compares and sets the next offsets, and takes the rows as they stream out of
Spark. How rows become a table's is a `Recipe`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from holdfast.pipelines.fence import FencedError, Ownership, open_engine
from holdfast.pipelines.planned import Due, OffsetLog, PlanError, due

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CHUNK_ROWS = 5_000
COORDINATES = ("topic", "partition", "offset")

SinkRow = Mapping[str, Any]
OnCommit = Callable[[int, int], None]  # batch, rows: called when they are on disk


class Recipe(Protocol):
    """How rows become a table's rows. Both methods use the connection they are given, only."""

    def prepare(self, connection: Connection) -> None:
        """Create the tables if they are not there."""

    def write(self, connection: Connection, rows: Sequence[SinkRow]) -> None:
        """Write a chunk. It is part of a transaction: no commit, nothing outside of it."""


class ExactlyOnceSink:
    """`writeStream.foreachBatch(sink)`: every row of the query in the tables once, whatever dies.

    `query` is the name under which the tables remember how far they are; keep it when a checkpoint
    is deleted or moved. `checkpoint` is the query's checkpointLocation. Rows should keep the
    columns topic, partition and offset: they are needed when a batch is already half there.
    """

    def __init__(
        self,
        url: str,
        query: str,
        recipe: Recipe,
        *,
        checkpoint: str,
        on_commit: OnCommit | None = None,
    ) -> None:
        """Take the query over: from now on its former owner can't commit."""
        self._on_commit = on_commit
        self._engine: Engine = open_engine(url)
        self._recipe = recipe
        self._checkpoint = checkpoint
        self.ownership = Ownership.take(self._engine, query)
        with self.ownership.transaction() as connection:
            recipe.prepare(connection)
        # Spark wraps what is raised in a batch; whoever runs the query finds it here.
        self.failure: Exception | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            self._process(frame, batch)
        except (FencedError, PlanError, SQLAlchemyError) as error:
            self.failure = error
            raise

    def _process(self, frame: DataFrame, batch: int) -> None:
        planned = OffsetLog(self._checkpoint, frame.sparkSession).planned(batch)
        moves = due(planned, self.ownership.next_offsets())
        if not moves:
            return  # all of it is in the tables: a replay
        there = {r.partition for r in planned if r.start < r.end} - {m.partition for m in moves}
        selected = frame
        if there or any(move.partial for move in moves):
            selected = _without_old_rows(frame, moves)
        chunks = chunked(selected.toLocalIterator(prefetchPartitions=True))
        # Spark works before the transaction opens: the lock is not held while nothing is there.
        first = next(chunks, [])
        if first and all(move.start == move.end for move in moves):
            raise PlanError(
                f"batch {batch} was planned empty but has rows: this sink needs "
                'format("holdfast"), which writes down where a query begins'
            )
        with self.ownership.transaction() as connection:
            self.ownership.advance(connection, moves)
            rows = 0
            for chunk in chain([first] if first else [], chunks):
                self._recipe.write(connection, chunk)
                rows += len(chunk)
        if self._on_commit is not None:
            self._on_commit(batch, rows)

    def close(self) -> None:
        self._engine.dispose()


class AppendSink:
    """The control: the same rows, appended, and nothing remembered. A replay doubles them."""

    def __init__(self, url: str, recipe: Recipe, *, on_commit: OnCommit | None = None) -> None:
        self._on_commit = on_commit
        self._engine = open_engine(url)
        self._recipe = recipe
        self.failure: Exception | None = None
        with self._engine.begin() as connection:
            recipe.prepare(connection)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = 0
        with self._engine.begin() as connection:
            for chunk in chunked(frame.toLocalIterator(prefetchPartitions=True)):
                self._recipe.write(connection, chunk)
                rows += len(chunk)
        if self._on_commit is not None:
            self._on_commit(batch, rows)

    def close(self) -> None:
        self._engine.dispose()


def chunked(rows: Iterable[Any], size: int = CHUNK_ROWS) -> Iterator[list[SinkRow]]:
    """Yield rows as mappings, `size` at a time: memory is bounded by a chunk, not by a batch."""
    iterator = iter(rows)
    while chunk := [row.asDict() for row in islice(iterator, size)]:
        yield chunk


def _without_old_rows(frame: DataFrame, moves: Sequence[Due]) -> DataFrame:
    """Leave out the rows that the tables have already."""
    missing = [name for name in COORDINATES if name not in frame.columns]
    if missing:
        raise PlanError(
            "a part of this batch is in the tables already, and without the column "
            f"{', '.join(missing)} its rows can't be told apart; keep topic, partition and offset"
        )
    wanted = None
    for move in moves:
        here: Column = (
            (frame["topic"] == move.partition.topic)
            & (frame["partition"] == move.partition.number)
            & (frame["offset"] >= move.begin)
        )
        wanted = here if wanted is None else wanted | here
    assert wanted is not None
    return frame.where(wanted)
