"""A writer of SQL batches without Spark, and deaths of it before each commit that it makes.

    python -m tests.pipelines.sql_writer URL append|upsert

runs it again and again, each time in a process of its own, which ends before its n-th commit after
it has taken the query over: of a task's copy as well as of what the driver writes. All between two
commits is gone with the process, and behind the last one comes the next one. Each time another
writer goes on, and the table has to be what the log makes of it. Says how often, until a writer
came to its end.
"""

from __future__ import annotations

import os
import pickle
import sys
from itertools import count
from typing import Any

import psycopg
import pyarrow as pa
import sqlalchemy as sql
from pyspark.sql import types as spark
from sqlalchemy.engine.default import DefaultDialect
from tests.pipelines.parquet_writer import STOPPED, batch

from holdfast.pipelines.due import Rows, decide
from holdfast.pipelines.planned import Batch
from holdfast.pipelines.sinks.postgresql_store import Copied, PostgresqlStore
from holdfast.pipelines.sinks.spool import Spool
from holdfast.pipelines.sinks.sql_store import SqliteStore, SqlStore
from holdfast.pipelines.sinks.store import Staged
from holdfast.pipelines.sinks.target import Mode, Target

NAMES = ("slot", "number")
SCHEMA = spark.StructType([spark.StructField(name, spark.LongType()) for name in NAMES])
ARROW = pa.schema([(name, pa.int64()) for name in NAMES])
BATCHES, ROWS = 2, 2  # the first one is empty; of the other's rows an upsert keeps the last


def opened(url: str, mode: str, number: int) -> SqlStore:
    """Open a table that is this round's own."""
    upserts: dict[str, Any] = {"mode": Mode.UPSERT, "keys": ("slot",), "version": "number"}
    target = Target(table=f"kept_{number}", **(upserts if mode == "upsert" else {}))
    kind = SqliteStore if url.startswith("sqlite") else PostgresqlStore
    store = kind(url, f"query {number}", target)
    store.open(SCHEMA, "local[2]")
    return store


def staged(store: SqlStore, what: Batch, numbers: list[int]) -> Staged:
    """Stage each row by a task of its own, from what was pickled, where tasks do that."""
    rows = [{"slot": 0, "number": number} for number in numbers]
    if isinstance(store, SqliteStore):
        return Spool([spark.Row(**row) for row in rows])
    assert isinstance(store, PostgresqlStore)
    sent = pickle.dumps(store.task(what))
    done = [
        told
        for row in rows
        for result in pickle.loads(sent)(iter([pa.RecordBatch.from_pylist([row], schema=ARROW)]))
        for told in result.to_pylist()
    ]
    return Copied(tuple(told["attempt"] for told in done), sum(told["rows"] for told in done))


def write_all(store: SqlStore) -> None:
    for each in range(BATCHES):
        what = batch(each)
        work = decide(what, store.memory(), (), store.query)
        if work.replay:
            continue
        due = [n for move in work.moves for n in range(move.begin, move.end)]
        rows = None if work.rows is Rows.NONE else staged(store, what, due)
        store.commit(what, work, rows)
    store.close()


def found(url: str, number: int) -> list[tuple[int, ...]]:
    engine = sql.create_engine(url, poolclass=sql.NullPool)
    with engine.connect() as connection:
        statement = f"SELECT slot, number FROM kept_{number} ORDER BY 2"
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


def die_at(url: str, number: int) -> None:
    """End this process before its n-th commit. psycopg's is also that of a task."""
    owner: Any = DefaultDialect if url.startswith("sqlite") else psycopg.Connection
    name = "do_commit" if url.startswith("sqlite") else "commit"
    as_it_is = getattr(owner, name)
    steps = [0]

    def counted(*arguments: Any) -> None:
        steps[0] += 1
        if steps[0] == number:
            os._exit(STOPPED)
        as_it_is(*arguments)

    setattr(owner, name, counted)


def main(url: str, mode: str) -> None:
    every = [(0, number) for number in range(ROWS)]
    expected = every[-1:] if mode == "upsert" else every
    for number in count(1):
        child = os.fork()
        if not child:
            store = opened(url, mode, number)
            die_at(url, number)
            write_all(store)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in {0, STOPPED}, f"commit {number}: exit status {code}"
        write_all(opened(url, mode, number))
        assert found(url, number) == expected, f"commit {number}: {found(url, number)}"
        if code == 0:
            sys.stdout.write(f"{number}\n")
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
