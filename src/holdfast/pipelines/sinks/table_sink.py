"""`foreachBatch` for any store: what was planned, what of it is due, rows computed, one commit.

Owns the order of the steps, and nothing of a database. It must never leave a batch's rows
uncomputed: a stateful query's state is only kept when somebody has taken its rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final

from holdfast.pipelines.due import Due, Rows, Work, decide, had_before
from holdfast.pipelines.intake.same_version import stamped, unstamped
from holdfast.pipelines.offsets import RECORD, spelt
from holdfast.pipelines.planned import Batch, Checkpoint, PlanError, Reader
from holdfast.pipelines.progress.commits import commit
from holdfast.pipelines.progress.ends import metadata, of_table
from holdfast.pipelines.sinks.store import Staged, Store, told_if_full
from holdfast.pipelines.sinks.target import COORDINATES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OUTSIDE: Final = (
    "a part of this batch is in the tables already, and a row of it has a topic, partition and "
    "offset that the batch does not cover: these columns are not the record's. Keep those of the "
    "source as they are, in each part of a union, and leave out those of other queries"
)

_SPANS: Final = "map<string,array<struct<start:bigint,begin:bigint,end:bigint>>>"

OnCommit = Callable[[int, int], None]  # batch, rows: called when they are on disk


class TableSink:
    """What Spark calls with each batch. Pickled, it is configuration: the store opens anew.

    Under Spark Connect that happens in the server's process, where the batches are written; so who
    owns the query is settled there, with the first batch of a run.
    """

    def __init__(
        self,
        store: Store,
        *,
        checkpoint: str,
        begin_anew: Collection[str] = (),
        on_commit: OnCommit | None = None,
    ) -> None:
        self._store = store
        self._location = checkpoint
        over = [begin_anew] if isinstance(begin_anew, str) else begin_anew
        self._begin_anew = frozenset(map(spelt, over))
        self._on_commit = on_commit
        self._checkpoint: Checkpoint | None = None
        # Of the batch before: what went meanwhile of rows that the table had is not lacking there.
        self._had: Mapping[Reader, int] = {}
        # Spark wraps what is raised in a batch; whoever runs the query finds it here.
        self.failure: BaseException | None = None

    def __getstate__(self) -> dict[str, Any]:
        return stamped({**self.__dict__, "_checkpoint": None, "_had": {}, "failure": None})

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(unstamped(state))

    def __call__(self, frame: DataFrame, number: int) -> None:
        try:
            with told_if_full(self._store.folder):
                self._process(frame, number)
        except BaseException as error:
            self.failure = error
            raise

    def _process(self, frame: DataFrame, number: int) -> None:
        if self._checkpoint is None:
            master = frame.sparkSession.conf.get("spark.master", "")
            self._store.open(frame.schema, str(master))
            self._checkpoint = Checkpoint(self._location, frame.sparkSession)
        batch = self._checkpoint.batch(number, _running(frame))
        memory = self._store.memory()
        work = decide(batch, memory, self._begin_anew, self._store.query)
        work = replace(work, had=self._had)
        self._write(frame, batch, work)
        self._had = had_before(batch, work)
        # Also of a replay: who committed it to the table may have died before it came to this.
        commit(of_table(batch, memory, work), metadata(self._store.query, number))

    def _write(self, frame: DataFrame, batch: Batch, work: Work) -> None:
        if work.rows is Rows.NONE:
            _consume(frame)
            if not work.replay:
                self._commit(batch, work, None)
            return
        due = frame if work.rows is Rows.ALL else _without_old_rows(frame, batch, work.moves)
        staged = self._store.stage(due, batch)
        try:
            _refuse_rows_of_nothing(batch, staged.count)
            self._commit(batch, work, staged)
        finally:
            staged.close()

    def _commit(self, batch: Batch, work: Work, staged: Staged | None) -> None:
        self._store.commit(batch, work, staged)
        if self._on_commit is not None:
            self._on_commit(batch.number, 0 if staged is None else staged.count)

    def close(self) -> None:
        self._store.close()


def _refuse_rows_of_nothing(batch: Batch, rows: int) -> None:
    """PlanError if a batch without state has rows although it was planned empty."""
    if rows and not batch.stateful and all(r.start == r.end for r in batch.ranges):
        raise PlanError(
            f"batch {batch.number} was planned empty but has rows: this sink needs "
            'format("holdfast"), which writes down where a query begins'
        )


def _running(frame: DataFrame) -> str | None:
    """Return the id of the streaming query that computes a frame; None where Spark tells none."""
    context = getattr(frame.sparkSession, "sparkContext", None)  # Spark Connect has no such thing
    told = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    return None if told is None else str(told)


def _consume(frame: DataFrame) -> None:
    """Compute every row and keep none: Spark commits state only for what was computed."""
    frame.write.format("noop").mode("overwrite").save()


def _without_old_rows(frame: DataFrame, batch: Batch, moves: Sequence[Due]) -> DataFrame:
    """Leave out the rows that the tables have already. A row that is in no range ends the batch."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - half a second, and stores need none

    found = _coordinates(frame)
    topic, partition, offset = (columns[0] for columns in found)
    alike = reduce(and_, (c.eqNullSafe(of[0]) for of in found for c in of))
    spans = f.from_json(f.lit(_spans(batch, moves)), _SPANS)
    span = f.get(spans[topic.cast("string")], partition.cast("int"))
    due = (offset >= span["begin"]) & (offset < span["end"])
    planned = (offset >= span["start"]) & (offset < span["end"])
    refused = f.raise_error(f.lit(_OUTSIDE)).cast("boolean")
    return frame.where(f.when(alike & due, True).when(alike & planned, False).otherwise(refused))


def _spans(batch: Batch, moves: Sequence[Due]) -> str:
    """Return what a row is held against, as JSON: of each topic its partitions, by their numbers.

    One value, whatever there is of them: a comparison for each would nest too deep for Spark.
    No partition is in two ranges: of such a batch nobody could tell which of them a row is of.
    """
    begins = {move.reader: move.begin for move in moves}
    spans: dict[str, list[dict[str, int] | None]] = {}
    for each in batch.ranges:
        if each.start == each.end:
            continue
        topic, number = each.reader.partition
        there = spans.setdefault(topic, [])
        there += [None] * (number + 1 - len(there))
        begin = begins.get(each.reader, each.end)
        there[number] = {"start": each.start, "begin": begin, "end": each.end}
    return json.dumps(spans)


def _coordinates(frame: DataFrame) -> list[list[Column]]:
    """Return the columns that have a record's topic, partition and offset, as the source says.

    There may be more than one of each: what was written to a file from another query says the same.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    names = {
        wanted: [
            field.name for field in frame.schema.fields if field.metadata.get(RECORD) == wanted
        ]
        for wanted in COORDINATES
    }
    missing = [wanted for wanted, found in names.items() if not found]
    if missing:
        raise PlanError(
            "a part of this batch is in the tables already, and its rows can't be told apart: no "
            f"column of the query is the record's {', '.join(missing)}. A column of that name that "
            "was computed is none; keep topic, partition and offset as the source gives them, by "
            "any names. Where rows pass through a function of yours, say which columns they are: "
            f'frame.withMetadata("offset", {{"{RECORD}": "offset"}})'
        )
    return [
        [f.col("`" + name.replace("`", "``") + "`") for name in names[wanted]]
        for wanted in COORDINATES
    ]
