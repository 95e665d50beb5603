"""The lines of a user's file become a table. A driver process: `python -m` this.

Owns two tables: `lines` with each line's coordinates in the log, key, number and original text, and
`rejected` for events that carry no line. An event's value is `{"line":17,"text":"..."}`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from holdfast.pipelines.driver import add_options, run
from holdfast.pipelines.sink import SinkRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

metadata = sql.MetaData()
lines = sql.Table(
    "lines",
    metadata,
    sql.Column("topic", sql.String(249), nullable=False),
    sql.Column("partition", sql.Integer, nullable=False),
    sql.Column("offset", sql.BigInteger, nullable=False),
    sql.Column("key", sql.Text),
    sql.Column("line_number", sql.BigInteger, nullable=False),
    sql.Column("text", sql.Text, nullable=False),
)
rejected = sql.Table(
    "rejected",
    metadata,
    sql.Column("topic", sql.String(249), nullable=False),
    sql.Column("partition", sql.Integer, nullable=False),
    sql.Column("offset", sql.BigInteger, nullable=False),
    sql.Column("value", sql.LargeBinary),
)


def frame(records: DataFrame) -> DataFrame:
    """Take lines out of records. What is none has nulls, and keeps its bytes."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - the tables are for others too

    body = f.from_json(f.col("value").cast("string"), "line BIGINT, text STRING")
    return records.withColumn("body", body).select(
        "topic",
        "partition",
        "offset",
        "value",
        f.col("key").cast("string").alias("key"),
        f.col("body.line").alias("line_number"),
        f.col("body.text").alias("text"),
    )


class Lines:
    """The recipe: rows of `frame` into `lines`."""

    def prepare(self, connection: Connection) -> None:
        metadata.create_all(connection)

    def write(self, connection: Connection, rows: Sequence[SinkRow]) -> None:
        whole = [row for row in rows if None not in (row["line_number"], row["text"])]
        others = [row for row in rows if None in (row["line_number"], row["text"])]
        if whole:
            columns = [column.name for column in lines.columns]
            connection.execute(lines.insert(), [{n: row[n] for n in columns} for row in whole])
        if others:
            connection.execute(
                rejected.insert(),
                [
                    {
                        "topic": row["topic"],
                        "partition": row["partition"],
                        "offset": row["offset"],
                        "value": None if row["value"] is None else bytes(row["value"]),
                    }
                    for row in others
                ],
            )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.pipelines.lines", description="Lines into a table, by Spark."
    )
    add_options(parser)
    return run(parser.parse_args(arguments), Lines(), frame)


if __name__ == "__main__":
    sys.exit(main())
