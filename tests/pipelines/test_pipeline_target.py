"""Goal: a table that a query's rows don't fit is refused before a batch; one that is not there is
made. Method: real tables in both databases, each with one thing that is odd.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sql
from pyspark.sql import types as spark
from sqlalchemy.engine import Engine

from holdfast.pipelines.fence import open_engine
from holdfast.pipelines.offsets import RECORD
from holdfast.pipelines.sinks.column_fit import misfit
from holdfast.pipelines.sinks.merging import check_order
from holdfast.pipelines.sinks.target import (
    Column,
    Mode,
    Target,
    TargetError,
    columns_of,
    ordering,
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


def prepared(engine: Engine, columns: Sequence[Column] = COLUMNS, **target: Any) -> None:
    with engine.begin() as connection:
        prepare(connection, Target(table="t", **target), columns)


SPARK: dict[str, spark.DataType] = {
    "short": spark.ShortType(), "integer": spark.IntegerType(), "long": spark.LongType(),
    "float": spark.FloatType(), "double": spark.DoubleType(), "text": spark.StringType(),
    "exact": spark.DecimalType(10, 2), "whole": spark.DecimalType(9, 0),
    "moment": spark.TimestampType(), "clock": spark.TimestampNTZType(), "day": spark.DateType(),
    "truth": spark.BooleanType(), "bytes": spark.BinaryType(),
}  # fmt: skip
KEEPS = {
    "postgresql": {
        "short": "SMALLINT INTEGER BIGINT REAL FLOAT8 NUMERIC NUMERIC(5) NUMERIC(9,4)",
        "integer": "INTEGER BIGINT FLOAT8 NUMERIC NUMERIC(10)",
        "long": "BIGINT NUMERIC NUMERIC(21,2)",
        "float": "REAL FLOAT8",
        "double": "FLOAT8",
        "text": "TEXT VARCHAR VARCHAR(9)",
        "exact": "NUMERIC NUMERIC(10,2) NUMERIC(12,3)",
        "whole": "NUMERIC NUMERIC(9) NUMERIC(12,3) NUMERIC(11,2)",
        "moment": "TIMESTAMPTZ TIMESTAMPTZ(6)",
        "clock": "TIMESTAMP TIMESTAMP(6)",
        "day": "DATE",
        "truth": "BOOLEAN",
        "bytes": "BYTEA",
    },
    "sqlite": {
        "short": "SMALLINT INTEGER BIGINT REAL NUMERIC DECIMAL(5,2)",
        "integer": "INTEGER BIGINT REAL NUMERIC DECIMAL(5,2)",
        "long": "INTEGER BIGINT NUMERIC DECIMAL(5,2)",
        "float": "SMALLINT INTEGER BIGINT REAL NUMERIC DECIMAL(5,2)",
        "double": "SMALLINT INTEGER BIGINT REAL NUMERIC DECIMAL(5,2)",
        "text": "TEXT VARCHAR(9) CHAR(9)",
        "exact": "TEXT VARCHAR(9) CHAR(9)",
        "whole": "TEXT VARCHAR(9) CHAR(9)",
        "moment": "TIMESTAMP",
        "clock": "TIMESTAMP",
        "day": "DATE",
        "truth": "BOOLEAN",
        "bytes": "BLOB",
    },
}
THERE = {
    "postgresql": "SMALLINT INTEGER BIGINT REAL FLOAT8 NUMERIC NUMERIC(5) NUMERIC(9) NUMERIC(10) "
    "NUMERIC(9,4) NUMERIC(10,2) NUMERIC(11,2) NUMERIC(12,3) NUMERIC(21,2) TEXT VARCHAR VARCHAR(9) "
    "CHAR(9) TIMESTAMPTZ TIMESTAMPTZ(6) TIMESTAMPTZ(3) TIMESTAMP TIMESTAMP(6) TIMESTAMP(0) DATE "
    "BOOLEAN BYTEA JSONB",
    "sqlite": "SMALLINT INTEGER BIGINT REAL NUMERIC DECIMAL(5,2) TEXT VARCHAR(9) CHAR(9) TIMESTAMP "
    "DATE BOOLEAN BLOB",
}
FITS_TOO = {  # numbers that have more room than their row above says
    "postgresql": {
        "short": "NUMERIC(9) NUMERIC(10) NUMERIC(10,2) NUMERIC(11,2) NUMERIC(12,3) NUMERIC(21,2)",
        "integer": "NUMERIC(21,2)",
        "exact": "NUMERIC(11,2) NUMERIC(21,2)",
        "whole": "NUMERIC(10) NUMERIC(21,2)",
    },
    "sqlite": {},
}


def test_a_column_holds_each_value_as_it_is_or_is_refused(engine: Engine) -> None:
    """Seen to fail: PostgreSQL rounded decimals, shifted moments and filled texts with spaces."""
    name = engine.dialect.name
    types = THERE[name].split()
    columns = ", ".join(f"c{number} {there}" for number, there in enumerate(types))
    made(engine, f"CREATE TABLE t ({columns})")
    there = dict(zip(types, sql.inspect(engine).get_columns("t"), strict=True))
    schema = spark.StructType([spark.StructField(n, kind) for n, kind in SPARK.items()])
    found = {
        column.name: {
            spelt
            for spelt, column_there in there.items()
            if misfit(column.type, column_there["type"], engine.dialect) is None
        }
        for column in columns_of(schema)
    }
    keeps = {kind: set(types.split()) for kind, types in KEEPS[name].items()}
    for kind, more in FITS_TOO[name].items():
        keeps[kind] |= set(more.split())
    assert found == keeps
    shorts = columns_of(spark.StructType([spark.StructField("c0", spark.LongType())]))
    with pytest.raises(TargetError, match=r"'c0' is SMALLINT, .* BIGINT: .* \(ALTER TABLE\)"):
        prepared(engine, shorts)


def test_a_table_that_was_made_is_taken_at_the_second_start(engine: Engine) -> None:
    """Seen to fail: SQLite's columns of decimals were refused."""
    fields = [spark.StructField(name, kind) for name, kind in SPARK.items()]
    columns = columns_of(spark.StructType(fields))
    for keys in ((), ("exact",)):
        with engine.begin() as connection:
            for _ in range(2):
                prepare(connection, Target(table=f"t{len(keys)}", keys=keys), columns)


def test_a_key_of_another_scale_is_refused_where_decimals_are_texts(engine: Engine) -> None:
    def of_scale(scale: int) -> Sequence[Column]:
        field = spark.StructField("id", spark.DecimalType(9, scale))
        return columns_of(spark.StructType([field]))

    prepared(engine, of_scale(1), keys=("id",))
    table = table_of(Target(table="t"), of_scale(1))
    prepared(engine, of_scale(2 if engine.dialect.name == "sqlite" else 1), keys=("id",))
    with engine.begin() as connection:
        connection.execute(table.insert(), [{"id": Decimal("1.0")}])
    prepared(engine, of_scale(1), keys=("id",))
    with pytest.raises(TargetError, match="Cast the query's column"):
        prepared(engine, of_scale(2), keys=("id",))


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


def test_a_column_that_is_called_offset_does_not_tell_which_row_is_later() -> None:
    """Seen to fail: a computed one decided which row of a key stayed."""
    fields = [
        spark.StructField("topic", spark.StringType(), metadata={RECORD: "topic"}),
        spark.StructField("partition", spark.IntegerType(), metadata={RECORD: "partition"}),
        spark.StructField("offset", spark.LongType()),
        spark.StructField("at", spark.LongType(), metadata={RECORD: "offset"}),
        spark.StructField("timestamp", spark.TimestampType()),
    ]
    names = ordering(spark.StructType(fields))
    assert names == ("topic", "partition", "at", "timestamp")
    target = Target(table="t", mode=Mode.UPSERT, keys=("at",))
    with pytest.raises(TargetError, match=r"the record's offset to tell .* or has computed it"):
        check_order(target, names, stateful=False)


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


WITHOUT_EXTRAS = """
import sys
for name in ("psycopg", "deltalake", "pyiceberg", "redis"):
    sys.modules[name] = None  # as if it were not installed
from holdfast.pipelines.sinks import writing
from holdfast.pipelines.sinks.target import Mode, Target, TargetError
for url in sys.argv[1:]:
    try:
        writing._with_extra(url, "q", Target(table="a.b", mode=Mode.APPEND))
    except TargetError as error:
        print(error)
"""


@pytest.mark.process
def test_an_extra_that_is_not_installed_is_named() -> None:
    """Seen as "No module named 'redis'", which names nothing that could be done."""
    urls = ("postgresql://u@h/d", "delta:///d", "iceberg+sqlite:///c?warehouse=/w", "redis://h")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, *urls], capture_output=True, text=True, check=True
    )
    extras = {"postgresql": "psycopg", "delta": "deltalake", "iceberg": "pyiceberg"}
    assert done.stdout.splitlines() == [
        f"target: {extra}: needs {library}, which is not installed: "
        f"pip install 'holdfast[{extra}]' brings it"
        for extra, library in {**extras, "redis": "redis"}.items()
    ]
