"""Goal: rows, offsets and the batch's number are in the tables together, or none of them is.

Method: the sink as Spark calls it, with real frames and databases; the checkpoint is written by
hand, so that each test says what was planned, what is there already, and where it breaks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sql
from sqlalchemy.engine import Connection

from holdfast.pipelines.due import Last, Memory, Stored
from holdfast.pipelines.fence import FencedError, offsets
from holdfast.pipelines.offsets import RECORD, Partition, to_text
from holdfast.pipelines.planned import Checkpoint, PlanError, Reader
from holdfast.pipelines.sink import AppendSink, ExactlyOnceSink, SinkRow
from holdfast.pipelines.sinks.spool import CHUNK_ROWS
from holdfast.pipelines.sinks.target import COORDINATES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]

P, Q = Partition("t", 0), Partition("t", 1)
table = sql.Table(
    "kept",
    sql.MetaData(),
    sql.Column("partition", sql.Integer),
    sql.Column("offset", sql.Integer),
)


class Keep:
    """A recipe that does what a test wants at the n-th chunk, and else keeps coordinates."""

    def __init__(self, at: int = 0, do: Callable[[Connection], None] | None = None) -> None:
        self._at, self._do = at, do
        self.chunks = 0

    def prepare(self, connection: Connection) -> None:
        table.create(connection, checkfirst=True)

    def write(self, connection: Connection, rows: Sequence[SinkRow]) -> None:
        self.chunks += 1
        if self._do is not None and self.chunks == self._at:
            self._do(connection)
        kept = [{"partition": row["partition"], "offset": row["offset"]} for row in rows]
        connection.execute(table.insert(), kept)


class Scene:
    """One query's checkpoint and tables."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.spark = spark
        self.url = url
        self.folder = folder
        self.sinks: list[ExactlyOnceSink | AppendSink] = []

    def plan(self, number: int, ends: dict[Partition, int], checkpoint: str = "one") -> None:
        folder = self.folder / checkpoint
        (folder / "offsets").mkdir(parents=True, exist_ok=True)
        (folder / "metadata").write_text(json.dumps({"id": checkpoint}))
        (folder / "offsets" / str(number)).write_text(f"v1\n{{}}\n{to_text(ends, {'t': 'x'})}")

    def sink(self, recipe: Keep | None = None, checkpoint: str = "one") -> ExactlyOnceSink:
        folder = str(self.folder / checkpoint)
        sink = ExactlyOnceSink(self.url, "q", recipe or Keep(), checkpoint=folder)
        self.sinks.append(sink)
        return sink

    def frame(self, **ranges: range) -> DataFrame:
        """Return rows of partitions: `p0=range(3, 9)`."""
        frames = [
            self.spark.range(offsets.start, offsets.stop).selectExpr(
                "'t' AS topic", f"{name[1:]} AS partition", "id AS offset"
            )
            for name, offsets in ranges.items()
        ]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.union(frame)
        for name in COORDINATES:
            whole = whole.withMetadata(name, {RECORD: name})
        return whole

    def kept(self) -> list[tuple[int, int]]:
        engine = sql.create_engine(self.url)
        with engine.connect() as connection:
            rows = connection.execute(sql.select(table.c.partition, table.c.offset)).all()
        engine.dispose()
        return sorted((row.partition, row.offset) for row in rows)


@pytest.fixture
def scene(spark: SparkSession, database: str, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(spark, database, tmp_path)
    yield made
    for sink in made.sinks:
        sink.close()


def next_offsets(sink: ExactlyOnceSink) -> dict[Partition, int]:
    known = sink.ownership.memory().offsets
    return {reader.partition: stored.next_offset for reader, stored in known.items()}


def test_what_breaks_in_a_later_chunk_takes_back_rows_offsets_and_batch(scene: Scene) -> None:
    """And whoever runs the query finds what broke, also when it was the recipe's own mistake."""
    rows = 2 * CHUNK_ROWS + 1
    scene.plan(0, {P: 0})
    scene.plan(1, {P: rows})

    def fail(_connection: Connection) -> None:
        raise ZeroDivisionError

    broken = scene.sink(Keep(at=3, do=fail))
    broken(scene.frame(p0=range(0)), 0)
    before = broken.ownership.memory()
    with pytest.raises(ZeroDivisionError):
        broken(scene.frame(p0=range(rows)), 1)
    assert isinstance(broken.failure, ZeroDivisionError)
    assert broken.ownership.memory() == before
    assert scene.kept() == []
    whole = scene.sink()
    whole(scene.frame(p0=range(rows)), 1)
    plan = Checkpoint(str(scene.folder / "one")).batch(1).plan
    assert whole.ownership.memory() == Memory({Reader(P): Stored(rows, "x")}, Last("one", 1, plan))
    assert scene.kept() == [(0, n) for n in range(rows)]


def test_while_rows_are_written_nobody_sees_their_offsets(scene: Scene) -> None:
    """What another connection reads in the middle of a batch is the state before it."""
    seen: list[tuple[list[Any], list[Any]]] = []

    def look(_connection: Connection) -> None:
        engine = sql.create_engine(scene.url)
        with engine.connect() as connection:
            there = connection.execute(sql.select(offsets.c.next_offset)).scalars().all()
            rows = connection.execute(sql.select(table.c.offset)).scalars().all()
        engine.dispose()
        seen.append((list(there), list(rows)))

    scene.plan(0, {P: 0})
    scene.plan(1, {P: CHUNK_ROWS + 1})
    sink = scene.sink(Keep(at=2, do=look))
    sink(scene.frame(p0=range(0)), 0)
    sink(scene.frame(p0=range(CHUNK_ROWS + 1)), 1)
    assert seen == [([0], [])]
    assert next_offsets(sink) == {P: CHUNK_ROWS + 1}


def test_offsets_that_were_changed_beneath_take_back_the_rows(scene: Scene) -> None:
    """Between reading what is due and writing it, somebody with another program moved an offset."""
    scene.plan(0, {P: 0})
    scene.plan(1, {P: 5})
    sink = scene.sink()
    sink(scene.frame(p0=range(0)), 0)

    def meddle(batches: Iterator[Any]) -> Iterator[Any]:
        """Run while the frame is computed, which is after the comparison."""
        engine = sql.create_engine(url)
        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE holdfast_offset SET next_offset = 3")
        engine.dispose()
        yield from batches

    url = scene.url
    frame = scene.frame(p0=range(5)).coalesce(1)
    with pytest.raises(FencedError, match="no longer 0"):
        sink(frame.mapInArrow(meddle, frame.schema), 1)
    assert scene.kept() == []
    assert next_offsets(sink) == {P: 3}


def test_rows_are_computed_before_the_lock_is_taken(scene: Scene) -> None:
    """However long Spark takes: PostgreSQL ends a session that is silent in its transaction.

    The last of three parts asks for the lock when both others have been handed over.
    """
    answer = scene.folder / "answer"
    last = 3 * CHUNK_ROWS - 1

    def take_lock() -> str:
        engine = sql.create_engine(url)
        wait = "PRAGMA busy_timeout = 0" if url.startswith("sqlite") else "SET lock_timeout = '1s'"
        with engine.connect() as connection:
            connection.exec_driver_sql(wait)
            try:
                connection.exec_driver_sql("UPDATE holdfast_query SET owner = owner")
            except sql.exc.OperationalError as error:
                return str(error)
        return "free"

    def ask(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if last in batch.column("offset").to_pylist():
                answer.write_text(take_lock())
            yield batch

    url = scene.url
    scene.plan(0, {P: 0})
    scene.plan(1, {P: last + 1})
    sink = scene.sink()
    sink(scene.frame(p0=range(0)), 0)
    parts = scene.spark.range(0, last + 1, numPartitions=3)
    frame = parts.selectExpr("'t' AS topic", "0 AS partition", "id AS offset")
    sink(frame.mapInArrow(ask, frame.schema), 1)
    assert answer.read_text() == "free"
    assert len(scene.kept()) == last + 1


def test_what_is_there_is_computed_and_not_written_again(scene: Scene) -> None:
    """First as a replay of that very batch, then under a checkpoint that replaced a lost one."""
    computed = scene.spark.sparkContext.accumulator(0)

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            computed.add(batch.num_rows)
            yield batch

    def counted(frame: DataFrame) -> DataFrame:
        return frame.mapInArrow(count, frame.schema)

    committed: list[tuple[int, int]] = []
    for checkpoint in ("one", "two"):
        scene.plan(0, {P: 0}, checkpoint)
        scene.plan(1, {P: 7}, checkpoint)
    sink = scene.sink()
    sink._on_commit = lambda number, rows: committed.append((number, rows))
    sink(scene.frame(p0=range(0)), 0)
    sink(counted(scene.frame(p0=range(7))), 1)
    assert computed.value == 7
    sink(counted(scene.frame(p0=range(7))), 1)
    assert computed.value == 14, "a stateful query would have lost its state"
    other = scene.sink(checkpoint="two")
    other(scene.frame(p0=range(0)), 0)
    other(counted(scene.frame(p0=range(7))), 1)
    assert computed.value == 21
    assert scene.kept() == [(0, n) for n in range(7)]
    assert committed == [(0, 0), (1, 7)], "a replay commits nothing"
    last = other.ownership.memory().last
    assert last is not None
    assert (last.checkpoint, last.batch) == ("two", 1)


def test_of_a_lost_checkpoints_batches_only_what_is_missing_is_written(scene: Scene) -> None:
    """One partition wholly there, the other wholly due; then both in part."""
    scene.plan(0, {P: 0, Q: 0})
    scene.plan(1, {P: 5, Q: 0})
    sink = scene.sink()
    sink(scene.frame(p0=range(0)), 0)
    sink(scene.frame(p0=range(5)), 1)
    scene.plan(0, {P: 0, Q: 0}, "two")
    scene.plan(1, {P: 5, Q: 4}, "two")
    sink = scene.sink(checkpoint="two")
    sink(scene.frame(p0=range(0)), 0)
    sink(scene.frame(p0=range(5), p1=range(4)), 1)
    assert scene.kept() == [(0, n) for n in range(5)] + [(1, n) for n in range(4)]
    scene.plan(0, {P: 0, Q: 0}, "three")
    scene.plan(1, {P: 8, Q: 6}, "three")
    sink = scene.sink(checkpoint="three")
    sink(scene.frame(p0=range(0)), 0)
    sink(scene.frame(p0=range(8), p1=range(6)), 1)
    assert scene.kept() == [(0, n) for n in range(8)] + [(1, n) for n in range(6)]
    assert next_offsets(sink) == {P: 8, Q: 6}


def test_half_a_batch_may_be_of_many_partitions(scene: Scene) -> None:
    """Goal: a query of thousands of partitions goes on in another checkpoint.

    Seen to fail: with a comparison for each partition Spark's stack overflowed at a thousand.
    """
    many = 2_000
    begin, first, second = ({Partition("t", n): end for n in range(many)} for end in (0, 1, 2))
    scene.plan(0, begin)
    scene.plan(1, first)
    sink = scene.sink()
    sink(scene.frame(p0=range(0)), 0)
    # Only of a few partitions any record comes past the query's filter.
    sink(scene.frame(p0=range(1), p1999=range(1)), 1)
    scene.plan(0, begin, "two")
    scene.plan(1, second, "two")
    sink = scene.sink(checkpoint="two")
    sink(scene.frame(p0=range(0)), 0)
    sink(scene.frame(p0=range(2), p1000=range(2), p1999=range(2)), 1)
    assert scene.kept() == [(0, 0), (0, 1), (1000, 1), (1999, 0), (1999, 1)]


def test_half_a_batch_is_told_by_what_columns_are_and_not_by_their_names(scene: Scene) -> None:
    """Seen to fail: with a column of theirs that was called offset, rows were missing."""
    scene.plan(0, {P: 0})
    scene.plan(1, {P: 3})
    sink = scene.sink()
    sink(scene.frame(p0=range(0)), 0)
    sink(scene.frame(p0=range(3)), 1)
    scene.plan(0, {P: 0}, "two")
    scene.plan(1, {P: 5}, "two")
    sink = scene.sink(checkpoint="two")
    frame = scene.frame(p0=range(5))
    sink(frame.where("false"), 0)
    for name, value in (("offset", "offset - 5"), ("partition", "5"), ("topic", "'t'")):
        with pytest.raises(PlanError, match=f"is the record's {name}.*computed is none"):
            sink(
                frame.selectExpr("*", f"{value} AS mine")
                .drop(name)
                .withColumnRenamed("mine", name),
                1,
            )
    renamed = frame.withColumnRenamed("offset", "at `it`").selectExpr("*", "100 AS offset")
    sink(renamed, 1)
    assert scene.kept() == [(0, 0), (0, 1), (0, 2), (0, 100), (0, 100)]


def test_a_row_outside_of_the_batch_ends_one_that_is_half_there(scene: Scene) -> None:
    """A union takes what a column is from its first part, whatever the others have there."""
    scene.plan(0, {P: 0, Q: 0})
    scene.plan(1, {P: 3, Q: 0})
    sink = scene.sink()
    sink(scene.frame(p0=range(0)), 0)
    sink(scene.frame(p0=range(3)), 1)
    scene.plan(0, {P: 0, Q: 0}, "two")
    scene.plan(1, {P: 3, Q: 2}, "two")
    sink = scene.sink(checkpoint="two")
    sink(scene.frame(p0=range(0)), 0)
    for odd in ("'t' AS topic, 1 AS partition, 2L AS offset", "'t', 7, 0L", "'t', null, 0L"):
        frame = scene.frame(p0=range(3)).union(scene.spark.range(1).selectExpr(*odd.split(", ")))
        with pytest.raises(Exception, match="offset that the batch does not cover"):
            sink(frame, 1)
    other = scene.frame(p0=range(3), p1=range(2)).selectExpr("*", "offset AS at").alias("a")
    for at in ("0L", "NULL"):
        joined = other.selectExpr("*", f"{at} AS file_at").withMetadata(
            "file_at", {RECORD: "offset"}
        )
        with pytest.raises(Exception, match="offset that the batch does not cover"):
            sink(joined, 1)
    sink(other, 1)
    assert scene.kept() == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def test_rows_of_a_batch_that_was_planned_empty_are_refused(scene: Scene) -> None:
    """Without state there is nowhere they could come from; with it they are a window's."""
    scene.plan(0, {P: 3})
    scene.plan(1, {P: 3})
    sink = scene.sink()
    with pytest.raises(PlanError, match="planned empty but has rows"):
        sink(scene.frame(p0=range(3)), 0)
    assert isinstance(sink.failure, PlanError)
    assert scene.kept() == []
    (scene.folder / "one" / "state").mkdir()
    sink(scene.frame(p0=range(0)), 0)
    sink(scene.frame(p0=range(2)), 1)
    assert scene.kept() == [(0, 0), (0, 1)]


def test_another_querys_checkpoint_is_refused(scene: Scene) -> None:
    """It has batches of the same numbers: what they cover would be taken for what this one does."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - after the session

    scene.plan(0, {P: 0})
    sink = scene.sink()
    query = (
        scene.spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 1)
        .load()
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(scene.folder / "its own"))
        .trigger(once=True)
        .start()
    )
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()
    assert "one is the checkpoint of another query (its id is one," in str(sink.failure)
    assert sink.ownership.memory() == Memory()


def test_the_control_tells_what_broke_too(scene: Scene) -> None:
    def fail(_connection: Connection) -> None:
        raise ZeroDivisionError

    sink = AppendSink(scene.url, Keep(at=1, do=fail))
    scene.sinks.append(sink)
    with pytest.raises(ZeroDivisionError):
        sink(scene.frame(p0=range(3)), 0)
    assert isinstance(sink.failure, ZeroDivisionError)
    assert scene.kept() == []


def test_a_checkpoint_that_only_spark_can_read(scene: Scene) -> None:
    """It lies in an object store, say; here Spark is made to read one of this machine."""

    class Elsewhere(Checkpoint):
        def _local(self, name: str) -> None:
            del name

    scene.plan(0, {P: 3})
    folder = scene.folder / "one"
    for _ in range(2):
        assert Elsewhere(str(folder), scene.spark).batch(0) == Checkpoint(str(folder)).batch(0)
        (folder / "state" / "0").mkdir(parents=True, exist_ok=True)
