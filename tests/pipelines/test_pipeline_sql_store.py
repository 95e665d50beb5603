"""Goal: a query goes on in the table that has its rows, or is told what to do; a null is no key;
and a decimal is the number that it is. Method: both databases, and stores without Spark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from pyspark.sql import types as spark
from sqlalchemy.engine import Connection, Engine
from tests.pipelines import parquet_writer, sql_writer
from tests.pipelines.sql_tables import Opened, opener

from holdfast.lab.pipelines.pipeline import DATABASE_COMMIT, TAKEN_IN
from holdfast.lab.scenarios.pipelines import driver_killed
from holdfast.pipelines.due import Rows, Work, decide
from holdfast.pipelines.planned import Batch
from holdfast.pipelines.proving.holding import found
from holdfast.pipelines.sinks import catalogs
from holdfast.pipelines.sinks.merging import PLACE, Merge, tombstones_of
from holdfast.pipelines.sinks.sql_store import MergeFrom
from holdfast.pipelines.sinks.target import (
    Column,
    Mode,
    Target,
    TargetError,
    columns_of,
    limits,
    prepare,
    table_of,
)

SCHEMA = spark.StructType(
    [
        spark.StructField("id", spark.LongType()),
        spark.StructField("version", spark.DecimalType(9, 2)),
        spark.StructField("text", spark.StringType()),
        spark.StructField("gone", spark.BooleanType()),
    ]
)
COLUMNS = columns_of(SCHEMA)
NAMES = ("id", "version", "text")
UPSERT = {"mode": Mode.UPSERT, "keys": ("id",)}


@pytest.fixture
def opened(database: str) -> Iterator[Opened]:
    with opener(database, SCHEMA) as another:
        yield another


def test_a_query_that_deletes_may_get_a_version_later(opened: Opened, engine: Engine) -> None:
    """Seen to fail: a KeyError at each start, since deleted keys had none."""
    opened(**UPSERT, deleted="gone")
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO holdfast_deleted_kept (id) VALUES (7)")
    opened(**UPSERT, deleted="gone", version="version")
    with engine.begin() as connection:
        found = connection.exec_driver_sql("SELECT id, version FROM holdfast_deleted_kept").all()
        assert [tuple(row) for row in found] == [(7, None)]
        connection.exec_driver_sql("CREATE UNIQUE INDEX other ON kept (version)")
    with pytest.raises(TargetError, match=r"deleted keys of \(id\).*key is \(version\)"):
        opened(mode=Mode.UPSERT, keys=("version",), deleted="gone")


def batch(number: int) -> Batch:
    return Batch(number=number, checkpoint="c", plan=f"plan {number}", stateful=False, ranges=())


def run(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def test_a_query_whose_table_is_not_there_any_more_is_told_so(
    opened: Opened, engine: Engine
) -> None:
    """Seen to fail: it went on where it was, in a new table without the rows before."""
    opened()
    run(engine, "DROP TABLE kept")
    opened().commit(batch(0), Work(rows=Rows.ALL), None)
    run(engine, "ALTER TABLE kept RENAME TO elsewhere")
    with pytest.raises(TargetError, match=r"table kept is not there.*a fresh checkpoint"):
        opened()
    assert not sql.inspect(engine).has_table("kept"), "an empty one would be taken next time"
    with pytest.raises(TargetError, match=r"has written to 'kept'.*in 'elsewhere' without"):
        opened(table="elsewhere")
    run(engine, "UPDATE holdfast_query SET target = 'elsewhere'")
    opened(table="elsewhere").commit(batch(1), Work(rows=Rows.ALL), None)
    run(engine, "ALTER TABLE elsewhere RENAME TO kept", "UPDATE holdfast_query SET target = NULL")
    opened(), "what a version before has written says nothing of where"
    run(engine, "DROP TABLE kept")
    with pytest.raises(TargetError, match="table kept is not there"):
        opened()


class Scene:
    """A table and a staging table of the columns above."""

    def __init__(self, engine: Engine, **target: Any) -> None:
        self.engine = engine
        self.target = Target(**{"table": "t", **UPSERT, **target})
        place = sql.Column(PLACE, sql.Integer, primary_key=True)
        columns = [sql.Column(column.name, column.type) for column in COLUMNS]
        self.staging = sql.Table("staging", sql.MetaData(), place, *columns)
        with engine.begin() as connection:
            self.table = prepare(connection, self.target, COLUMNS)
            if self.target.deleted is not None:
                tombstones_of(self.target, self.table).create(connection)
            self.staging.create(connection)

    def write(self, *rows: tuple[Any, ...]) -> None:
        with self.engine.begin() as connection:
            self._write(connection, [dict(zip(self._names, row, strict=True)) for row in rows])

    @property
    def _names(self) -> Sequence[str]:
        return [column.name for column in COLUMNS]

    def _write(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        connection.execute(self.staging.insert(), rows)
        merge = Merge(self.target, self.table, self.staging)
        merge.upsert(connection, sql.true(), stateful=True)
        connection.execute(self.staging.delete())

    def rows(self) -> list[tuple[Any, ...]]:
        table = table_of(self.target, COLUMNS)
        with self.engine.begin() as connection:
            found = connection.execute(sql.select(*(table.c[name] for name in NAMES)))
            return sorted(tuple(row) for row in found)


@pytest.mark.parametrize("deletes", [False, True])
def test_of_two_decimal_versions_the_higher_number_wins(engine: Engine, deletes: bool) -> None:
    """Seen to fail: SQLite compared texts, in which 9.00 is above 10.00, and so is -2.00."""
    scene = Scene(engine, version="version", deleted="gone" if deletes else None)

    def row(key: int, version: str, text: str, *, gone: bool = False) -> tuple[Any, ...]:
        return (key, Decimal(version), text, gone)

    scene.write(row(1, "9.00", "old"), row(1, "10.00", "new"), row(2, "-2.00", "old"))
    scene.write(row(1, "9.50", "late"), row(2, "-1.00", "new"))
    ten, minus = Decimal("10.00"), Decimal("-1.00")
    assert scene.rows() == [(1, ten, "new"), (2, minus, "new")]
    if deletes:
        scene.write(row(1, "100.00", "gone", gone=True), row(2, "-10.00", "late", gone=True))
        scene.write(row(1, "20.00", "late"))
        assert scene.rows() == [(2, minus, "new")]


def test_a_number_that_is_none_is_no_null(engine: Engine) -> None:
    """Seen to fail: SQLite wrote a null for it."""
    columns = columns_of(spark.StructType([spark.StructField("n", spark.DoubleType())]))
    with engine.begin() as connection:
        table = prepare(connection, Target(table="t"), columns)
        connection.execute(table.insert(), [{"n": math.inf}, {"n": None}])
    if engine.dialect.name == "sqlite":
        with pytest.raises(sql.exc.StatementError, match="SQLite has no NaN"), engine.begin() as c:
            c.execute(table.insert(), [{"n": math.nan}])
    with engine.begin() as connection:
        found = connection.execute(sql.select(table.c.n)).scalars().all()
    assert found == [math.inf, None]


def test_a_null_in_a_key_is_refused_where_a_table_allows_it(engine: Engine) -> None:
    """Seen to fail: it was a new row each time, since no constraint takes nulls for equal."""
    exact = "TEXT" if engine.dialect.name == "sqlite" else "NUMERIC(9, 2)"
    run(engine, f"CREATE TABLE t (id BIGINT UNIQUE, version {exact}, text TEXT, gone BOOLEAN)")
    scene = Scene(engine)
    with pytest.raises(TargetError, match=r"the key \(None,\) has null in its key \(id\)"):
        scene.write((1, None, "one", None), (None, None, "none", None))
    assert scene.rows() == []


def test_a_text_that_a_column_would_cut_ends_the_batch(engine: Engine) -> None:
    """PostgreSQL cuts spaces off without a word; what SQLite calls VARCHAR(3) takes any text."""
    columns = (Column("text", sql.Text(), nullable=True),)
    target = Target(table="t")
    run(engine, "CREATE TABLE t (text VARCHAR(3))")
    staging = sql.Table("staging", sql.MetaData(), sql.Column("text", sql.Text))

    def write(text: str) -> None:
        with engine.begin() as connection:
            table = prepare(connection, target, columns)
            staging.create(connection)
            connection.execute(staging.insert(), [{"text": text}])
            catalog = catalogs.read(connection, table)
            assert catalog is not None
            merge = MergeFrom(target, columns, limits(connection, table), catalog, stateful=False)
            merge(connection, staging, sql.true(), 1)
            staging.drop(connection)

    write("abc")
    if engine.dialect.name == "sqlite":
        write("abc ")
        return
    with pytest.raises(TargetError, match=r"more than the 3 characters .* 'text'"):
        write("abc ")


@pytest.mark.parametrize(("way", "said"), driver_killed.PLACES)
def test_a_driver_is_killed_where_the_lab_says(
    way: Sequence[tuple[str, str]], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: `pipeline-driver-killed` meets what it is about. Method: a batch, without Spark.

    Seen to fail: held at the first commit, which is that of a look at the table.
    """
    url = f"sqlite:///{tmp_path / 'table.db'}"
    store = sql_writer.opened(url, "append", 0)
    reached: list[tuple[str, str]] = []

    def watch(place: str) -> None:
        owner, name = found(place)
        call = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            reached.append((place, "before"))
            result = call(*arguments, **named)
            reached.append((place, "after"))
            return result

        monkeypatch.setattr(owner, name, watched)

    for place in driver_killed.WATCHED:
        watch(place)
    for number in range(2):
        reached.clear()  # of the batch before: the second one has rows
        what = parquet_writer.batch(number)
        work = decide(what, store.memory(), (), store.query)
        due = [n for move in work.moves for n in range(move.begin, move.end)]
        store.commit(what, work, sql_writer.staged(store, what, due) if due else None)
    store.close()
    at = -1
    for step in way:
        at = reached.index(step, at + 1)
    rows = reached.index((TAKEN_IN, "after"))
    committed = reached.index((DATABASE_COMMIT, "after"), rows)
    assert (
        said
        == {
            (False, False): "no row is written",
            (True, False): "the rows are written, and not committed",
            (True, True): "the table has the batch, and Spark does not know",
        }[at > rows, at > committed]
    )
