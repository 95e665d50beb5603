"""Goal: who else writes to a table at the same moment loses no newer row, brings back no deleted
one, and ends no query.

Method: a real PostgreSQL, where another session, or another query, has changed a row and not
committed yet; the batch is let go on when the server says that it waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sql
from sqlalchemy.engine import Engine
from tests.pipelines.sql_tables import (
    DELETES,
    POSTGRESQL_ALONE,
    SCHEMA,
    UPSERT,
    Opened,
    kept,
    opener,
    run,
    table,
    waits,
    watching,
    write,
)

from holdfast.pipelines.sinks.sql_store import SqlStore
from holdfast.pipelines.sinks.target import Mode

pytestmark = [pytest.mark.slow, POSTGRESQL_ALONE]

BODY = "'BEGIN RETURN coalesce(NEW, OLD); END'"
HARMLESS = [
    f"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS {BODY}",
    "CREATE TRIGGER t BEFORE UPDATE OR DELETE ON kept FOR EACH ROW EXECUTE FUNCTION f()",
]
# Keeps a transaction open, with its rows changed, for as long as the test has this lock.
HELD = (
    "CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END'"
)


@pytest.fixture
def opened(database: str) -> Iterator[Opened]:
    with opener(database, SCHEMA) as another:
        yield another


def beside(engine: Engine, statement: str, store: SqlStore, *row: Any) -> None:
    """Write a row while another session has changed the table, which commits then."""
    with ThreadPoolExecutor() as pool, engine.connect() as other, watching(engine) as watcher:
        other.exec_driver_sql(statement)
        writing = pool.submit(write, store, 1, tuple(row))
        waits(watcher, 1, writing)
        other.commit()
        writing.result(60)


@pytest.mark.parametrize("strict", [False, True])
def test_a_delete_spares_a_row_that_was_given_a_higher_version(
    engine: Engine, opened: Opened, *, strict: bool
) -> None:
    """Seen to fail: it waited for the row's lock, and then deleted what it had not looked at."""
    run(engine, table("TEXT PRIMARY KEY"))
    if strict:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            name = connection.exec_driver_sql("SELECT current_database()").scalar()
            connection.exec_driver_sql(
                f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'"
            )
        engine.dispose()
    store = opened(query="q", **DELETES)
    write(store, 0, ("a", "1", 1, False))
    beside(engine, "UPDATE kept SET version = '9' WHERE id = 'a'", store, "a", "2", 2, True)
    assert kept(engine, "id, version") == [("a", "9")]
    assert kept(engine, "id", "holdfast_deleted_kept") == []
    write(store, 2, ("a", "9", 2, True))
    assert kept(engine) == []


def two_at_once(engine: Engine, first: tuple[SqlStore, Any], second: tuple[SqlStore, Any]) -> None:
    """Let a query commit a row while another one has written its own, and is kept from its end."""
    with ThreadPoolExecutor() as pool, engine.connect() as other, watching(engine) as watcher:
        other.execute(sql.select(sql.func.pg_advisory_lock(7)))
        begun = pool.submit(write, first[0], 5, first[1])
        waits(watcher, 1, begun)
        later = pool.submit(write, second[0], 5, second[1])
        waits(watcher, 2, begun, later)
        other.execute(sql.select(sql.func.pg_advisory_unlock(7)))
        for each in (begun, later):
            each.result(60)


def test_of_two_queries_none_deletes_the_other_ones_newer_row(
    engine: Engine, opened: Opened
) -> None:
    run(engine, table("TEXT PRIMARY KEY"), HELD,
        "CREATE TRIGGER s AFTER UPDATE ON kept FOR EACH ROW EXECUTE FUNCTION held()")  # fmt: skip
    one, two = opened(query="one", **DELETES), opened(query="two", **DELETES)
    write(one, 0, ("a", "1", 1, False))
    two_at_once(engine, (two, ("a", "9", 9, False)), (one, ("a", "2", 2, True)))
    assert kept(engine, "id, version") == [("a", "9")]


def test_of_two_queries_none_brings_back_what_the_other_one_deletes(
    engine: Engine, opened: Opened
) -> None:
    """Seen to fail: it saw neither the row nor what its deletion had left behind."""
    run(engine, table("TEXT PRIMARY KEY"), HELD,
        "CREATE TRIGGER s AFTER DELETE ON kept FOR EACH ROW EXECUTE FUNCTION held()")  # fmt: skip
    one, two = opened(query="one", **DELETES), opened(query="two", **DELETES)
    write(one, 0, ("a", "1", 1, False))
    two_at_once(engine, (one, ("a", "5", 5, True)), (two, ("a", "3", 3, False)))
    assert kept(engine) == []
    assert kept(engine, "id, version", "holdfast_deleted_kept") == [("a", "5")]


def test_queries_into_different_tables_wait_for_nobody(engine: Engine, opened: Opened) -> None:
    run(engine, table("TEXT PRIMARY KEY"), HELD,
        "CREATE TRIGGER s AFTER INSERT ON kept FOR EACH ROW EXECUTE FUNCTION held()")  # fmt: skip
    one, two = opened(query="one", **UPSERT), opened(query="two", **UPSERT, table="beside")
    with ThreadPoolExecutor() as pool, engine.connect() as other, watching(engine) as watcher:
        other.execute(sql.select(sql.func.pg_advisory_lock(7)))
        begun = pool.submit(write, one, 5, ("a", "1", 1, False))
        waits(watcher, 1, begun)
        pool.submit(write, two, 5, ("a", "2", 2, False)).result(60)
        assert not begun.done()
        other.execute(sql.select(sql.func.pg_advisory_unlock(7)))
        begun.result(60)
    assert kept(engine, "id, version", "beside") == [("a", "2")]


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize(
    "changed", ["DELETE FROM kept WHERE id = 'a'", "UPDATE kept SET version = '5' WHERE id = 'a'"]
)
def test_a_harmless_trigger_and_somebody_else_end_no_query(
    engine: Engine, opened: Opened, changed: str, *, deleted: bool
) -> None:
    """Seen to fail: rows were counted as they were before the other one's commit."""
    run(engine, table("TEXT PRIMARY KEY"), *HARMLESS)
    store = opened(query="q", **DELETES)
    write(store, 0, ("a", "1", 1, False))
    beside(engine, changed, store, "a", "2", 2, deleted)
    is_gone = changed.startswith("DELETE")
    expected = [] if is_gone and deleted else [("a", "2")] if is_gone else [("a", "5")]
    assert kept(engine, "id, version") == expected


def test_a_trigger_that_leaves_out_what_changes_nothing_is_harmless(
    engine: Engine, opened: Opened
) -> None:
    """Seen to fail: a batch that came again, or a row twice in two batches, ended the query."""
    run(engine, table("TEXT PRIMARY KEY"),
        "CREATE TRIGGER z BEFORE UPDATE ON kept FOR EACH ROW "
        "EXECUTE FUNCTION suppress_redundant_updates_trigger()")  # fmt: skip
    for query, target in (("q", UPSERT), ("r", {"mode": Mode.UPSERT, "keys": ("id",)})):
        store = opened(query=query, **target)
        for number in range(3):
            write(store, number, ("a", "1", None, False), ("b", "1", number, False))
        assert sorted(kept(engine)) == [("a", None), ("b", 2)]
