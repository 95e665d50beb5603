"""Goal: a table that a query's rows don't fit is refused before a batch; one that is not there is
made. Method: real tables in both databases, each with one thing that is odd.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sql
from pyspark.sql import types as spark
from sqlalchemy.engine import Engine

from holdfast.pipelines.fence import open_engine
from holdfast.pipelines.sinks.target import (
    Column,
    Mode,
    Target,
    TargetError,
    columns_of,
    prepare,
    table_of,
)

COLUMNS = (Column("id", sql.BigInteger(), False), Column("text", sql.Text(), True))


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    engine = open_engine(database)
    yield engine
    engine.dispose()


def made(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def prepared(engine: Engine, **target: Any) -> None:
    with engine.begin() as connection:
        prepare(connection, Target(table="t", **target), COLUMNS)


def test_a_table_that_is_not_there_is_made_with_its_key(engine: Engine) -> None:
    prepared(engine, keys=("id",))
    seen = sql.inspect(engine)
    assert [column["name"] for column in seen.get_columns("t")] == ["id", "text"]
    assert seen.get_pk_constraint("t")["constrained_columns"] == ["id"]
    prepared(engine, keys=("id",))


@pytest.mark.parametrize(
    ("table", "target", "said"),
    [
        ("CREATE TABLE t (id BIGINT)", {}, "has no column 'text'"),
        ("CREATE TABLE t (id BIGINT, text BIGINT)", {}, "column 'text' is BIGINT"),
        ("CREATE TABLE t (id SMALLINT, text TEXT)", {}, "column 'id' is SMALLINT"),
        ("CREATE TABLE t (id BIGINT, text TEXT, more TEXT NOT NULL)", {}, "'more' must not be"),
        ("CREATE TABLE t (id BIGINT, text TEXT)", {"keys": ("id",)}, "no primary key"),
        (
            "CREATE TABLE t (id BIGINT, text TEXT, PRIMARY KEY (id, text))",
            {"mode": Mode.UPSERT, "keys": ("id",)},
            "no primary key",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    engine: Engine, table: str, target: dict[str, Any], said: str
) -> None:
    made(engine, table)
    with pytest.raises(TargetError, match=said):
        prepared(engine, **target)


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE t (id BIGINT PRIMARY KEY, text VARCHAR(10))",
        "CREATE TABLE t (id BIGINT UNIQUE, text TEXT, more TEXT)",
        "CREATE TABLE t (id BIGINT UNIQUE, text TEXT, more TEXT NOT NULL DEFAULT '')",
    ],
)
def test_a_table_that_fits_is_taken(engine: Engine, table: str) -> None:
    made(engine, table)
    prepared(engine, mode=Mode.UPSERT, keys=("id",))


def test_a_column_is_added_when_that_was_asked_for(engine: Engine) -> None:
    made(engine, "CREATE TABLE t (id BIGINT)", "INSERT INTO t VALUES (1)")
    prepared(engine, adds_columns=True)
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT id, text FROM t").all() == [(1, None)]


def test_each_simple_type_of_spark_has_a_column() -> None:
    simple: list[spark.DataType] = [
        spark.BooleanType(), spark.ByteType(), spark.ShortType(), spark.IntegerType(),
        spark.LongType(), spark.FloatType(), spark.DoubleType(), spark.StringType(),
        spark.BinaryType(), spark.DateType(), spark.TimestampType(), spark.TimestampNTZType(),
        spark.DecimalType(20, 4),
    ]  # fmt: skip
    schema = spark.StructType(
        [spark.StructField(f"c{number}", kind) for number, kind in enumerate(simple)]
    )
    assert len(columns_of(schema)) == len(simple)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([("a", spark.ArrayType(spark.StringType()))], "to_json"),
        ([("a", spark.LongType()), ("a", spark.LongType())], "twice"),
        ([("holdfast_a", spark.LongType())], "are ours"),
    ],
)
def test_a_frame_that_no_table_can_hold_is_refused(
    fields: list[tuple[str, spark.DataType]], said: str
) -> None:
    schema = spark.StructType([spark.StructField(name, kind) for name, kind in fields])
    with pytest.raises(TargetError, match=said):
        columns_of(schema)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mode": Mode.UPSERT}, "keys: an upsert"),
        ({"version": "v"}, "version: only an upsert"),
        ({"deleted": "d"}, "deleted: only an upsert"),
        ({"table": ""}, "can't be one"),
        ({"table": "holdfast_query"}, "are ours"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(TargetError, match=said):
        Target(**{"table": "t", **given})


def test_keys_are_columns_of_the_query() -> None:
    with pytest.raises(TargetError, match="'other' is no column"):
        table_of(Target(table="t", keys=("other",)), COLUMNS)
