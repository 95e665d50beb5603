"""Sinks for foreachBatch: rows and offsets in one transaction, and the plain control without.

Owns the order of the steps: what was planned, what of it is due, then one transaction that checks
the owner's epoch, compares and sets the next offsets, notes the batch, and takes the rows, which
Spark has computed before. How rows become a table's is a `Recipe`. It must never leave a batch's
rows uncomputed: a stateful query's state is only kept when somebody has taken its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy.engine import Connection, Engine

from holdfast.pipelines.due import Due, Rows, Work, decide
from holdfast.pipelines.fence import Ownership, open_engine
from holdfast.pipelines.offsets import spelt
from holdfast.pipelines.planned import Batch, Checkpoint, PlanError
from holdfast.pipelines.spool import Spool

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
    is deleted or moved. `checkpoint` is the query's checkpointLocation. Rows of a query without
    state should keep the columns topic, partition and offset: they are needed when a batch is
    already half there. `begin_anew` names topics and checkpoints, by the ids that an error told,
    that are over: what the tables remember under them is forgotten, and their rows stay.
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
        self._on_commit = on_commit
        self._engine: Engine = open_engine(url)
        self._recipe = recipe
        self._location = checkpoint
        self._checkpoint: Checkpoint | None = None
        self._begin_anew = frozenset(map(spelt, begin_anew))
        self.ownership = Ownership.take(self._engine, query)
        with self.ownership.transaction() as connection:
            recipe.prepare(connection)
        # Spark wraps what is raised in a batch; whoever runs the query finds it here.
        self.failure: BaseException | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            self._process(frame, batch)
        except BaseException as error:
            self.failure = error
            raise

    def _process(self, frame: DataFrame, number: int) -> None:
        if self._checkpoint is None:
            self._checkpoint = Checkpoint(self._location, frame.sparkSession)
        batch = self._checkpoint.batch(number, running(frame))
        todo = decide(batch, self.ownership.memory(), self._begin_anew, self.ownership.query)
        if todo.rows is Rows.NONE:
            consume(frame)
        if todo.replay:
            return
        # All of it before the transaction opens: see `spool`.
        with Spool(_chosen(frame, todo)) as rows:
            self._commit(batch, todo, rows)
        if self._on_commit is not None:
            self._on_commit(number, rows.count)

    def _commit(self, batch: Batch, todo: Work, rows: Spool) -> None:
        """Write the rows, and that the tables have them, in one transaction."""
        if rows.count and not batch.stateful and all(r.start == r.end for r in batch.ranges):
            raise PlanError(
                f"batch {batch.number} was planned empty but has rows: this sink needs "
                'format("holdfast"), which writes down where a query begins'
            )
        with self.ownership.transaction() as connection:
            self.ownership.commit_batch(connection, batch, todo)
            for chunk in rows.chunks():
                self._recipe.write(connection, chunk)

    def close(self) -> None:
        self._engine.dispose()


class AppendSink:
    """The control: the same rows, appended, and nothing remembered. A replay doubles them."""

    def __init__(self, url: str, recipe: Recipe, *, on_commit: OnCommit | None = None) -> None:
        self._on_commit = on_commit
        self._engine = open_engine(url)
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
        with Spool(frame.toLocalIterator(prefetchPartitions=True)) as rows:
            with self._engine.begin() as connection:
                for chunk in rows.chunks():
                    self._recipe.write(connection, chunk)
            return rows.count

    def close(self) -> None:
        self._engine.dispose()


def running(frame: DataFrame) -> str | None:
    """Return the id of the streaming query that computes a frame; None where Spark tells none."""
    context = getattr(frame.sparkSession, "sparkContext", None)  # Spark Connect has no such thing
    told = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    return None if told is None else str(told)


def consume(frame: DataFrame) -> None:
    """Compute every row and keep none: Spark commits state only for what was computed."""
    frame.write.format("noop").mode("overwrite").save()


def _chosen(frame: DataFrame, todo: Work) -> Iterable[Any]:
    if todo.rows is Rows.NONE:
        return ()
    selected = frame if todo.rows is Rows.ALL else without_old_rows(frame, todo.moves)
    rows: Iterable[Any] = selected.toLocalIterator(prefetchPartitions=True)
    return rows


def without_old_rows(frame: DataFrame, moves: Sequence[Due]) -> DataFrame:
    """Leave out the rows that the tables have already."""
    missing = [name for name in COORDINATES if name not in frame.columns]
    if missing:
        raise PlanError(
            "a part of this batch is in the tables already, and without the column "
            f"{', '.join(missing)} its rows can't be told apart; keep topic, partition and offset"
        )
    wanted: Iterable[Column] = (
        (frame["topic"] == move.reader.partition.topic)
        & (frame["partition"] == move.reader.partition.number)
        & (frame["offset"] >= move.begin)
        for move in moves
    )
    return frame.where(reduce(or_, wanted))
