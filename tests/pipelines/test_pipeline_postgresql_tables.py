"""Goal: rights, policies, locks and names that a table of PostgreSQL may have stand in no query's
way that loses nothing by them; and the second look, in each commit, alters nothing.

Method: a real server with roles, partitions and locks of other sessions.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.engine import Engine
from tests.pipelines.sql_tables import (
    COLUMNS,
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

from holdfast.pipelines.fence import open_engine
from holdfast.pipelines.sinks.postgresql_store import PostgresqlStore
from holdfast.pipelines.sinks.target import Mode, Target, TargetError

pytestmark = [pytest.mark.slow, POSTGRESQL_ALONE]


@pytest.fixture
def opened(database: str) -> Iterator[Opened]:
    with opener(database, SCHEMA) as another:
        yield another


def as_role(engine: Engine, database: str, role: str) -> str:
    """Make a role that may nothing yet but make tables; return its URL."""
    with engine.begin() as connection:
        if connection.exec_driver_sql(f"SELECT FROM pg_roles WHERE rolname = '{role}'").first():
            connection.exec_driver_sql(f"DROP OWNED BY {role}")
        else:
            connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN")
        connection.exec_driver_sql(f"GRANT CREATE ON SCHEMA public TO {role}")
    return database.replace("holdfast@", f"{role}@")


def test_a_role_that_may_write_some_columns_may_append(
    engine: Engine, opened: Opened, database: str
) -> None:
    """Seen to fail: LOCK TABLE wants a right on the whole table."""
    url = as_role(engine, database, "of_columns")
    run(engine, table("TEXT PRIMARY KEY", f"{COLUMNS}, secret TEXT"))
    store = opened(url)
    with pytest.raises(TargetError, match=r"may not write to it .*GRANT INSERT ON kept"):
        write(store, 0, ("a", "1", 1, False))
    run(engine, "GRANT INSERT (id, version, number, gone) ON kept TO of_columns")
    write(store, 0, ("a", "1", 1, False))
    assert kept(engine) == [("a", 1)]


def test_a_policy_that_hides_nothing_keeps_no_upsert_away(
    engine: Engine, opened: Opened, database: str
) -> None:
    """Seen to fail: any policy was refused. One that comes later is found by the next commit."""
    url = as_role(engine, database, "sees_all")
    run(engine, table("TEXT PRIMARY KEY"),
        "GRANT INSERT, SELECT, UPDATE, DELETE ON kept TO sees_all",
        "ALTER TABLE kept ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY r ON kept FOR SELECT USING (true)",
        "CREATE POLICY w ON kept FOR UPDATE TO sees_all USING (true)",
        "CREATE POLICY i ON kept FOR INSERT WITH CHECK (true)",
        "CREATE POLICY other ON kept AS RESTRICTIVE TO holdfast USING (false)")  # fmt: skip
    store = opened(url, **UPSERT)
    write(store, 0, ("a", "1", 1, False))
    write(store, 1, ("a", "2", 2, False))
    assert kept(engine) == [("a", 2)]
    with pytest.raises(TargetError, match=r"hides rows from this role, or may \(DELETE\)"):
        opened(url, "deletes", **DELETES)
    run(engine, "CREATE POLICY d ON kept FOR DELETE USING (true)")
    opened(url, "deletes", **DELETES)
    run(engine, "CREATE POLICY m ON kept AS RESTRICTIVE FOR SELECT USING (number > 1)")
    with pytest.raises(TargetError, match="policies on SELECT is new: hide rows"):
        write(store, 2, ("a", "3", 3, False))


def test_what_a_table_hides_or_leaves_out_is_told_when_it_changes(
    engine: Engine, opened: Opened, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen to fail: the log said that the table was altered, and how with "()"."""
    url = as_role(engine, database, "appends")
    run(engine, table("TEXT PRIMARY KEY"), "GRANT INSERT ON kept TO appends")
    store = opened(url)
    write(store, 0, ("a", "1", 1, False))
    run(engine, "CREATE POLICY i ON kept FOR INSERT WITH CHECK (true)",
        "ALTER TABLE kept ENABLE ROW LEVEL SECURITY")  # fmt: skip
    with caplog.at_level(logging.WARNING):
        write(store, 1, ("b", "1", 2, False))
    assert "policies on DELETE is new: hide rows" in caplog.text


PARTITIONED = [
    f"CREATE TABLE kept (id TEXT, {COLUMNS}, PRIMARY KEY (id, number)) PARTITION BY RANGE (number)",
    "CREATE TABLE first PARTITION OF kept FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE second PARTITION OF kept FOR VALUES FROM (10) TO (20)",
]
KEYS: dict[str, Any] = {"mode": Mode.UPSERT, "keys": ("id", "number")}


@pytest.mark.parametrize("target", [{}, KEYS], ids=["append", "upsert"])
def test_a_commit_waits_for_no_partition_that_it_does_not_write(
    engine: Engine, opened: Opened, target: dict[str, Any]
) -> None:
    """Seen to fail: the look at the catalog locked each of them, with each commit."""
    run(engine, *PARTITIONED)
    store = opened(**target)
    write(store, 0, ("a", "1", 11, False))
    with ThreadPoolExecutor() as pool, engine.connect() as other:
        other.exec_driver_sql("LOCK TABLE first IN ACCESS EXCLUSIVE MODE")
        pool.submit(write, store, 1, ("b", "1", 13, False)).result(60)
        pool.submit(opened, **target).result(60)
    assert kept(engine, "id, number") == [("a", 11), ("b", 13)]


def test_what_a_partition_has_become_is_found(engine: Engine, opened: Opened) -> None:
    run(engine, *PARTITIONED)
    store = opened(**KEYS)
    write(store, 0, ("a", "1", 11, False))
    run(engine, "ALTER TABLE second SET UNLOGGED")
    with pytest.raises(TargetError, match="in its partition second"):
        write(store, 1, ("b", "1", 13, False))
    run(engine, "ALTER TABLE second SET LOGGED",
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER t BEFORE INSERT ON second FOR EACH ROW EXECUTE FUNCTION f()")  # fmt: skip
    with pytest.raises(TargetError, match="1 rows were to be written or deleted, and 0 were"):
        write(store, 1, ("b", "1", 13, False))


def test_what_a_partition_s_partition_has_become_is_found(engine: Engine, opened: Opened) -> None:
    run(engine, *PARTITIONED,
        "CREATE TABLE third PARTITION OF kept FOR VALUES FROM (20) TO (40) "
        "PARTITION BY RANGE (number)",
        "CREATE TABLE fourth PARTITION OF third FOR VALUES FROM (20) TO (30)")  # fmt: skip
    store = opened(**KEYS)
    write(store, 0, ("a", "1", 21, False))
    run(engine, "ALTER TABLE fourth SET UNLOGGED")
    with pytest.raises(TargetError, match="in its partition fourth"):
        write(store, 1, ("b", "1", 23, False))
    assert kept(engine, "id, number") == [("a", 21)]


@pytest.mark.parametrize("target", [{}, UPSERT], ids=["append", "upsert"])
def test_a_query_starts_while_an_index_is_made(
    engine: Engine, opened: Opened, target: dict[str, Any]
) -> None:
    """Seen to fail: it waited for hours, with the former driver's rows standing still as well."""
    run(engine, table("TEXT PRIMARY KEY"))
    with ThreadPoolExecutor() as pool, engine.connect() as other:
        other.exec_driver_sql("LOCK TABLE kept IN SHARE MODE")  # as CREATE INDEX does
        pool.submit(opened, **target).result(60)


@pytest.mark.parametrize("name", ["50%", "100%%", 'a"b', "Mixed", "select", "ü"])
def test_any_name_is_a_table_s(engine: Engine, opened: Opened, name: str) -> None:
    """Seen to fail: a table with % in its name was made, and not found."""
    store = opened(**DELETES, table=name)
    write(store, 0, ("a", "1", 1, False), ("b", "1", 1, False))
    write(store, 1, ("a", "2", 1, True))
    quoted = name.replace('"', '""').replace("%", "%%")
    assert kept(engine, "id", f'"{quoted}"') == [("b",)]


def test_a_name_is_as_long_as_the_database_has_it(engine: Engine, opened: Opened) -> None:
    """Seen to fail: a name of 40 letters was refused for the bytes that it has in UTF-8."""
    name = f"latin_{os.getpid()}"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name}")
        connection.exec_driver_sql(
            f"CREATE DATABASE {name} ENCODING LATIN1 TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    url = engine.url.set(database=name).render_as_string(hide_password=False)
    write(opened(url.replace("+psycopg", ""), **UPSERT, table="ü" * 40), 0, ("a", "1", 1, False))
    latin = open_engine(url)
    assert kept(latin, "id", f'"{"ü" * 40}"') == [("a",)]
    latin.dispose()


def test_a_commit_adds_no_column_that_somebody_drops(engine: Engine, opened: Opened) -> None:
    """Seen to fail: it was there again, without its values; and two queries met in a deadlock."""
    store = opened(**UPSERT, adds_columns=True)
    write(store, 0, ("a", "1", 1, False))
    run(engine, "ALTER TABLE kept DROP COLUMN number")
    with pytest.raises(TargetError, match="column 'number' is gone"):
        write(store, 1, ("b", "1", 2, False))
    assert kept(engine, "*") == [("a", "1", False)]


def test_a_table_that_is_dropped_while_a_commit_waits_is_told(
    engine: Engine, opened: Opened
) -> None:
    """Seen to fail: the database's own error, from a statement that nobody knows."""
    store = opened()
    with ThreadPoolExecutor() as pool, engine.connect() as other:
        other.exec_driver_sql("DROP TABLE kept")
        writing = pool.submit(write, store, 0, ("a", "1", 1, False))
        with watching(engine) as watcher:
            waits(watcher, 1, writing)
        other.commit()
        with pytest.raises(TargetError, match="is not there any more"):
            writing.result(60)


def test_rows_that_a_policy_hides_are_told_at_the_start(
    engine: Engine, opened: Opened, database: str
) -> None:
    """Seen to fail: a row that the role did not see was not deleted, and nothing said so."""
    role, url = "hidden_from", as_role(engine, database, "hidden_from")
    run(engine, table("TEXT PRIMARY KEY"), f"GRANT INSERT, SELECT ON kept TO {role}",
        "ALTER TABLE kept ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON kept USING (number > 0) WITH CHECK (true)")  # fmt: skip
    store = PostgresqlStore(url, "q", Target(table="kept", **UPSERT))
    with pytest.raises(TargetError, match="row level security hides"):
        store.open(SCHEMA, "local")
    store = PostgresqlStore(url, "q", Target(table="kept"))
    store.open(SCHEMA, "local")
    write(store, 0, ("a", "1", 1, False))
    store.close()
    assert kept(engine) == [("a", 1)]
    opened(**UPSERT, table="kept")
