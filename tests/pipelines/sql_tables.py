"""What the tests of SQL tables have in common: a query's schema, and batches as it commits them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from sqlalchemy.engine import Connection, Engine

from holdfast.pipelines.due import Rows, Work
from holdfast.pipelines.planned import Batch
from holdfast.pipelines.sinks.postgresql_store import Copied, PostgresqlStore
from holdfast.pipelines.sinks.spool import Spool
from holdfast.pipelines.sinks.sql_store import SqliteStore, SqlStore
from holdfast.pipelines.sinks.store import Staged
from holdfast.pipelines.sinks.target import Mode, Target

SCHEMA = spark.StructType(
    [
        spark.StructField("id", spark.StringType()),
        spark.StructField("version", spark.StringType()),
        spark.StructField("number", spark.LongType()),
        spark.StructField("gone", spark.BooleanType()),
    ]
)
ARROW = pa.schema(
    [("id", pa.string()), ("version", pa.string()), ("number", pa.int64()), ("gone", pa.bool_())]
)
UPSERT: dict[str, Any] = {"mode": Mode.UPSERT, "keys": ("id",), "version": "version"}
DELETES = {**UPSERT, "deleted": "gone"}
POSTGRESQL_ALONE = pytest.mark.parametrize(
    "database", [pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True
)
COLUMNS = "version TEXT, number BIGINT, gone BOOLEAN"


def run(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def kept(engine: Engine, what: str = "id, number", where: str = "kept") -> list[tuple[Any, ...]]:
    with engine.begin() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(f"SELECT {what} FROM {where}")]


def is_sqlite(engine: Engine) -> bool:
    return engine.dialect.name == "sqlite"


Opened = Callable[..., SqlStore]


@contextmanager
def opener(database: str, schema: spark.StructType) -> Iterator[Opened]:
    """Give what opens a query's store of a table, `kept`; all are closed at the end."""
    stores: list[SqlStore] = []
    made = SqliteStore if database.startswith("sqlite") else PostgresqlStore

    def another(url: str = database, query: str = "q", **target: Any) -> SqlStore:
        stores.append(made(url, query, Target(**{"table": "kept", **target})))
        stores[-1].open(schema, "local")
        return stores[-1]

    yield another
    for store in stores:
        store.close()


Row = tuple[str, str | None, int | None, bool]


def write(store: SqlStore, number: int, *rows: Row) -> None:
    """Stage and commit a batch of a query that has no order but its version."""
    batch = Batch(number=number, checkpoint="c", plan=f"plan {number}", stateful=True, ranges=())
    named = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]
    store.commit(batch, Work(rows=Rows.ALL), staged(store, batch, named))


def staged(store: SqlStore, batch: Batch, rows: list[dict[str, Any]]) -> Staged:
    if isinstance(store, PostgresqlStore):
        done = list(store.task(batch)(iter([pa.RecordBatch.from_pylist(rows, ARROW)])))
        numbers = tuple(each for result in done for each in result["attempt"].to_pylist())
        return Copied(numbers, len(rows))
    return Spool([_Row(row) for row in rows])


class _Row:
    """A row as Spark gives it to the driver."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def asDict(self) -> dict[str, Any]:  # noqa: N802 - Spark's own name
        return self._values


def table(key: str, columns: str = COLUMNS) -> str:
    return f"CREATE TABLE kept (id {key}, {columns})"


def watching(engine: Engine) -> Connection:
    """Return a connection that sees what sessions do now: a transaction sees it as it was."""
    return engine.connect().execution_options(isolation_level="AUTOCOMMIT")


def waits(connection: Connection, sessions: int, *others: Future[None]) -> None:
    """Wait until so many sessions of this database wait for a lock, or others are done."""
    asked = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
        "AND datname = current_database()"
    )
    deadline = time.monotonic() + 30
    while connection.exec_driver_sql(asked).scalar() != sessions:
        if any(other.done() for other in others):
            return
        assert time.monotonic() < deadline, "nobody waits"
