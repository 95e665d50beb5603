"""One topic, one database, one checkpoint, and queries over them: what tests of the sink share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from holdfast.pipelines.fence import offsets
from holdfast.pipelines.sink import ExactlyOnceSink, Recipe, SinkRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from tests.pipelines.conftest import Topics

rows_table = sql.Table(
    "rows",
    sql.MetaData(),
    sql.Column("partition", sql.Integer),
    sql.Column("offset", sql.Integer),
    sql.Column("value", sql.Text),
)


class Rows:
    """The plainest recipe: a row a record."""

    def prepare(self, connection: Connection) -> None:
        rows_table.create(connection, checkfirst=True)

    def write(self, connection: Connection, rows: Sequence[SinkRow]) -> None:
        kept = [
            {
                "partition": r["partition"],
                "offset": r["offset"],
                "value": bytes(r["value"]).decode(),
            }
            for r in rows
        ]
        connection.execute(rows_table.insert(), kept)


class Bench:
    """One topic, one database, one checkpoint, and queries over them."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path, partitions: int) -> None:
        self.spark = spark
        self.topics = topics
        self.url = f"sqlite:///{folder}/table.db"
        self.checkpoint = folder / "checkpoint"
        self.topic = topics.create(partitions)

    def options(self, **options: Any) -> dict[str, str]:
        values = {
            "kafka.bootstrap.servers": self.topics.bootstrap,
            "subscribe": self.topic,
            **options,
        }
        return {name: str(value) for name, value in values.items()}

    def stream(self, **options: Any) -> DataFrame:
        chosen = self.options(startingOffsets="earliest") | self.options(**options)
        return self.spark.readStream.format("holdfast").options(**chosen).load()

    def batch(self, **options: Any) -> DataFrame:
        return self.spark.read.format("holdfast").options(**self.options(**options)).load()

    def run(
        self, frame: DataFrame, sink: Callable[[DataFrame, int], None] | None = None
    ) -> StreamingQuery:
        """Read all that is there now into the table, and return the ended query."""
        sink = sink or self.sink()
        query = (
            frame.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def sink(self, recipe: Recipe | None = None, *begin_anew: str) -> ExactlyOnceSink:
        return ExactlyOnceSink(
            self.url,
            "bench",
            recipe or Rows(),
            checkpoint=str(self.checkpoint),
            begin_anew=begin_anew,
        )

    def lose_last_commit(self) -> None:
        """Leave what a driver leaves that died between the table's commit and Spark's."""
        commits = self.checkpoint / "commits"
        last = max(commits.glob("[0-9]*"), key=lambda path: int(path.name))
        for path in (last, last.with_name(f".{last.name}.crc")):
            path.unlink(missing_ok=True)

    def rows(self) -> list[tuple[int, int, str]]:
        engine = sql.create_engine(self.url)
        with engine.connect() as connection:
            found = connection.execute(
                sql.select(rows_table).order_by(rows_table.c.partition, rows_table.c.offset)
            ).all()
        engine.dispose()
        return [(row.partition, row.offset, row.value) for row in found]

    def next_offsets(self) -> dict[int, int]:
        engine = sql.create_engine(self.url)
        with engine.connect() as connection:
            found = connection.execute(sql.select(offsets.c.partition, offsets.c.next_offset)).all()
        engine.dispose()
        return {row.partition: row.next_offset for row in found}


def values(name: str, count: int, begin: int = 0) -> list[bytes]:
    return [f"{name}{n}".encode() for n in range(begin, begin + count)]
