"""Goal: a query with state writes each of its rows once, and a topic made anew is no replay.

Method: windows, joins and unions over small topics on a real cluster; lost checkpoints, older
copies, and what a death between the two commits leaves.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sql
from sqlalchemy.engine import Connection
from tests.pipelines.bench import Bench, values

from holdfast.pipelines.due import Stored
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.planned import PlanError, Reader
from holdfast.pipelines.sink import ExactlyOnceSink, SinkRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from tests.pipelines.conftest import Topics

pytestmark = [pytest.mark.turns, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]

WINDOW_S = 5
windows_table = sql.Table(
    "windows",
    sql.MetaData(),
    sql.Column("begin", sql.Integer),
    sql.Column("events", sql.Integer),
)


class Windows:
    def prepare(self, connection: Connection) -> None:
        windows_table.create(connection, checkfirst=True)

    def write(self, connection: Connection, rows: Sequence[SinkRow]) -> None:
        kept = [{"begin": row["begin"], "events": row["events"]} for row in rows]
        connection.execute(windows_table.insert(), kept)


class Counting(Bench):
    """A query that counts events per window, and a clock of its own for their times."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path) -> None:
        super().__init__(spark, topics, folder, 2)
        # An hour ago, so that no event is from the future; on a window's border.
        self.begin_s = int(time.time() - 3600) // WINDOW_S * WINDOW_S

    def events(self, begin: int, end: int) -> None:
        """Write one event for each second; each also lets the windows before it close."""
        for second in range(begin, end):
            stamp = (self.begin_s + second) * 1000
            self.topics.write(self.topic, second % 2, [b"x"], timestamps_ms=[stamp])

    def counted(self) -> DataFrame:
        from pyspark.sql import functions as f  # noqa: PLC0415 - after the session

        grouped = (
            self.stream()
            .withWatermark("timestamp", "2 seconds")
            .groupBy(f.window("timestamp", f"{WINDOW_S} seconds"))
            .count()
        )
        begin = f.col("window.start").cast("long") - self.begin_s
        return grouped.select(begin.cast("int").alias("begin"), f.col("count").alias("events"))

    def count(self, *begin_anew: str) -> ExactlyOnceSink:
        sink = self.sink(Windows(), *begin_anew)
        self.run(self.counted(), sink)
        return sink

    def refused(self, *begin_anew: str) -> str:
        from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - after the session

        sink = self.sink(Windows(), *begin_anew)
        with pytest.raises(StreamingQueryException):
            self.run(self.counted(), sink)
        assert isinstance(sink.failure, PlanError)
        return str(sink.failure)

    def windows(self) -> list[tuple[int, int]]:
        engine = sql.create_engine(self.url)
        with engine.connect() as connection:
            rows = connection.execute(sql.select(windows_table)).all()
        engine.dispose()
        return sorted((row.begin, row.events) for row in rows)

    def whole(self, count: int) -> list[tuple[int, int]]:
        return [(number * WINDOW_S, WINDOW_S) for number in range(count)]


@pytest.fixture
def counting(spark: SparkSession, topics: Topics, tmp_path: Path) -> Counting:
    return Counting(spark, topics, tmp_path)


def test_windows_that_close_in_batches_without_new_records(counting: Counting) -> None:
    """Each run ends with such a batch: the watermark moves after the records that move it.

    Then a driver died between the table's commit and Spark's: the last batch runs again, writes
    nothing, and the state is as it was. An older copy of the checkpoint is refused, and so is a
    fresh one; begun anew in emptied tables, the query counts the same windows.
    """
    counting.events(0, 13)
    counting.count()
    assert counting.windows() == counting.whole(2)
    counting.lose_last_commit()
    older = counting.checkpoint.with_name("older")
    shutil.copytree(counting.checkpoint, older)
    counting.events(13, 23)
    counting.count()
    assert counting.windows() == counting.whole(4)

    newer, counting.checkpoint = counting.checkpoint, older
    assert "this checkpoint is an older copy" in counting.refused()
    counting.checkpoint = newer.with_name("fresh")
    said = counting.refused()
    assert "they would come again" in said
    assert counting.windows() == counting.whole(4)

    over = said.partition("--begin-anew ")[2].split()[0]
    engine = sql.create_engine(counting.url)
    with engine.begin() as connection:
        connection.execute(windows_table.delete())
    engine.dispose()
    counting.count(over)
    counting.events(23, 28)
    counting.count(over)  # the switch stays where it is
    assert counting.windows() == counting.whole(5)


def test_two_sources_of_one_topic_in_one_query(bench: Bench) -> None:
    """Each has offsets of its own; a lost checkpoint doubles nothing."""
    bench.topics.write(bench.topic, 0, values("a", 6))

    def both() -> DataFrame:
        even = bench.stream(maxOffsetsPerTrigger=2).where("offset % 2 = 0")
        return even.union(bench.stream(maxOffsetsPerTrigger=3).where("offset % 2 = 1"))

    bench.run(both())
    bench.lose_last_commit()
    bench.topics.write(bench.topic, 0, values("a", 4, 6))
    bench.run(both())
    expected = [(0, n, f"a{n}") for n in range(10)]
    assert bench.rows() == expected
    sink = bench.sink()
    reader = Reader(Partition(bench.topic, 0))
    stored = Stored(10, bench.topics.id_of(bench.topic))
    offsets = sink.ownership.memory().offsets
    assert (offsets[reader], offsets[reader._replace(source=1)]) == (stored, stored)
    shutil.rmtree(bench.checkpoint)
    bench.run(both(), sink)
    assert bench.rows() == expected


def test_a_topic_made_anew_is_told_and_read_when_that_is_wanted(bench: Bench) -> None:
    """The source knows it by its checkpoint, the sink by its tables: the remedy is in the words."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - after the session

    bench.topics.write(bench.topic, 0, values("a", 8))
    bench.run(bench.stream())
    old, new = bench.topics.make_anew(bench.topic)
    bench.topics.write(bench.topic, 0, values("b", 12))
    ids = [re.escape(each) for each in (old, new, old)]  # base64, with its plus signs
    said = "id {}, and now there is the one with id {}.*--begin-anew {}".format(*ids)
    with pytest.raises(StreamingQueryException, match=said):
        bench.run(bench.stream())
    shutil.rmtree(bench.checkpoint)
    sink = bench.sink()
    with pytest.raises(StreamingQueryException):
        bench.run(bench.stream(), sink)
    assert isinstance(sink.failure, PlanError)
    assert f"--begin-anew {old}" in str(sink.failure)
    assert len(bench.rows()) == 8
    for _ in range(2):  # the switch stays where it is
        bench.run(bench.stream(), bench.sink(None, old))
    assert sorted(bench.rows()) == sorted(
        [(0, n, f"a{n}") for n in range(8)] + [(0, n, f"b{n}") for n in range(12)]
    )
    assert bench.next_offsets() == {0: 12, 1: 0}


def test_a_table_that_was_removed_under_its_checkpoint_is_told(bench: Bench) -> None:
    """The query would go on where it was, and all rows of before would be missing."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - after the session

    bench.topics.write(bench.topic, 0, values("a", 3))
    bench.run(bench.stream())
    bench.url = f"sqlite:///{bench.checkpoint.parent}/another.db"
    bench.topics.write(bench.topic, 0, values("a", 3, 3))
    sink = bench.sink()
    with pytest.raises(StreamingQueryException):
        bench.run(bench.stream(), sink)
    assert "know nothing of query 'bench'" in str(sink.failure)
