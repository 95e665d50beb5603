"""A writer of Iceberg batches without Spark, and deaths of it at any step: see parquet_writer.

    python -m tests.pipelines.iceberg_writer FOLDER

kills it at each step of making a table (FOLDER/made/STEP), and then of a start and a batch in
FOLDER/dies, where each goes on with what the one before has left; has several take a query from
each other (FOLDER/race), and one meet a full disk (FOLDER/full). A step is a file that is written,
moved or removed, and a transaction of the catalog: before it and after it.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from pyspark.sql import types as spark
from tests.pipelines.iceberg_tables import committed, numbers, orphans, table, there
from tests.pipelines.parquet_writer import CHANGE, SCHEMA, at_step, batch, records, staged, write

from holdfast.pipelines.fence import FencedError
from holdfast.pipelines.sinks.iceberg import catalog
from holdfast.pipelines.sinks.iceberg.store import IcebergStore
from holdfast.pipelines.sinks.target import Target


def url_of(root: Path) -> str:
    return f"iceberg+sqlite:///{root}/catalog.db?warehouse={root}/warehouse"


def opened(
    root: Path, schema: spark.StructType = SCHEMA, *, url: str | None = None, **target: Any
) -> IcebergStore:
    store = IcebergStore(url or url_of(root), "a query", Target(**{"table": "db.kept", **target}))
    store.open(schema, "local[2]")
    return store


def begun(root: Path, **more: Any) -> IcebergStore:
    """Return a store that has had batch 0."""
    store = opened(root, **more)
    write(store, batch(0))
    return store


def step_into_commits() -> None:
    """Before SQLite commits is a step, and what comes after it. A kill needs nothing synced."""
    disk: Any = os
    disk.fsync = lambda _descriptor: None
    patched: Any = catalog
    plain = patched.open_database

    def stepped(*arguments: Any, **named: Any) -> sql.Engine:
        engine: sql.Engine = plain(*arguments, **named)
        commit = engine.dialect.do_commit

        def steps(connection: Any) -> None:
            sys.audit(CHANGE)
            commit(connection)
            sys.audit(CHANGE)

        dialect: Any = engine.dialect
        dialect.do_commit = steps
        sql.event.listen(engine, "connect", unsynced)
        return engine

    def unsynced(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    patched.open_database = stepped


def in_child(what: Callable[[], None]) -> int:
    """Do something in a process of its own; return its exit status."""
    child = os.fork()
    if not child:
        try:
            what()
        finally:
            failure = sys.exc_info()[0]
            if failure is not None:
                traceback.print_exc()
            os._exit(failure is not None)
    _, told = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(told)


def killed_at(root: Path, number: int, what: Callable[[], None]) -> bool:
    """Run what writes, and kill it before its n-th step. False: it came to its end before."""

    def run() -> None:
        at_step(root, number, lambda: os.kill(os.getpid(), signal.SIGKILL), looks=False)
        what()

    status = in_child(run)
    assert status in {0, -signal.SIGKILL}, f"step {number}: exit status {status}"
    return status != 0


def die_while_the_table_is_made(folder: Path) -> None:
    for number in count(1):
        root = folder / f"{number:03}"
        root.mkdir(parents=True)
        if not killed_at(root, number, partial(make, root)):
            return


def make(root: Path) -> None:
    opened(root)


def die_in_a_batch(root: Path) -> None:
    """Each life starts, which sweeps what the one before has left, and writes a batch or two."""
    root.mkdir()
    begun(root)
    for number in count(1):
        rows = numbers(root)
        assert rows == list(range(len(rows))), f"step {number}"
        assert len(rows) % 2 == 0, f"step {number}: half a batch"

        def live(last: int = len(rows) // 2) -> None:
            store = opened(root)
            assert there(root) == committed(root)
            write(store, batch(last))
            write(store, batch(last + 1))

        if not killed_at(root, number, live):
            return


def take_from_each_other(root: Path) -> None:
    root.mkdir()

    def drive(name: int) -> None:
        for checkpoint in range(3):
            with suppress(FencedError):
                store = opened(root)
                for number in range(5):
                    write(store, batch(number, checkpoint=f"{name} {checkpoint}"))

    children = []
    for name in range(3):
        child = os.fork()
        if not child:
            os._exit(in_child(partial(drive, name)))
        children.append(child)
    for child in children:
        _, told = os.waitpid(child, 0)
        assert told == 0, "a driver ended with something else than that it was replaced"


def meet_a_full_disk(root: Path) -> None:
    """No file may get longer than a limit: one of rows would, and then the table's metadata."""
    limit = 100_000  # SQLite has files of its own: they are smaller
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def fails(what: Callable[[], object]) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        with pytest.raises(OSError, match="File too large"):
            what()
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    root.mkdir()
    store = begun(root)
    fails(lambda: staged(store, batch(1), [records(*range(limit))]))
    with table(root).transaction() as change:
        change.set_properties({"long": "a" * limit})
    store.task(batch(1))  # as Spark's next attempt, which removes what the one before has staged
    fails(lambda: write(store, batch(1)))
    assert not orphans(root), orphans(root)
    with table(root).transaction() as change:
        change.remove_properties("long")
    write(store, batch(1))


if __name__ == "__main__":
    where = Path(sys.argv[1])
    records(0).to_pylist()  # imports what Arrow wants for it, once
    step_into_commits()
    die_while_the_table_is_made(where / "made")
    die_in_a_batch(where / "dies")
    take_from_each_other(where / "race")
    assert in_child(partial(meet_a_full_disk, where / "full")) == 0
