"""Goal: what a batch's table has is what the tasks staged whose attempts Spark chose, once; what
others left there is swept.

Method: PostgreSQL itself, tasks called as Spark's workers call them, and commits in every order
that a crash can leave.
"""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sql
from pyspark.sql import types as spark
from sqlalchemy.engine import Engine

from holdfast.pipelines.due import Due, Rows, Work
from holdfast.pipelines.fence import FencedError, open_engine
from holdfast.pipelines.intake.option_values import OptionError
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.planned import Batch, Reader
from holdfast.pipelines.sinks.database_url import connection_arguments
from holdfast.pipelines.sinks.postgresql_store import EMPTIED_ANEW_BYTES, Copied, PostgresqlStore
from holdfast.pipelines.sinks.store import StagingError
from holdfast.pipelines.sinks.target import Mode, Target, TargetError

pytestmark = [pytest.mark.slow, pytest.mark.postgresql]

FIELDS: dict[str, tuple[spark.DataType, pa.DataType, list[Any]]] = {
    "number": (spark.LongType(), pa.int64(), [1, -(2**63), None]),
    "text": (spark.StringType(), pa.string(), ['a "b",\n\\N', "", None]),
    "bytes": (spark.BinaryType(), pa.binary(), [b"\x00\xff", b"", None]),
    "truth": (spark.BooleanType(), pa.bool_(), [True, False, None]),
    "real": (spark.DoubleType(), pa.float64(), [0.1, float("inf"), None]),
    "day": (spark.DateType(), pa.date32(), [dt.date(2026, 2, 28), None, None]),
    "exact": (
        spark.DecimalType(20, 4),
        pa.decimal128(20, 4),
        [Decimal("1.1000"), Decimal("-9999999999999999.9999"), None],
    ),
    "moment": (
        spark.TimestampType(),
        pa.timestamp("us", tz="Europe/Vienna"),
        [
            dt.datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=dt.UTC),
            dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
            None,
        ],
    ),
    "local": (
        spark.TimestampNTZType(),
        pa.timestamp("us"),
        [dt.datetime(2026, 3, 29, 2, 30), None, None],  # noqa: DTZ001 - what is told
    ),
}
SCHEMA = spark.StructType([spark.StructField(name, kind) for name, (kind, _, _) in FIELDS.items()])
ALL = Work(rows=Rows.ALL)


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty database."""
    server: str = request.getfixturevalue("postgresql")
    engine = sql.create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("DROP DATABASE IF EXISTS store WITH (FORCE)")
        connection.exec_driver_sql("CREATE DATABASE store")
    engine.dispose()
    return server.replace("/postgres?", "/store?")


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = open_engine(url)
    yield engine
    engine.dispose()


Opened = Callable[..., PostgresqlStore]


@pytest.fixture
def opened(url: str) -> Iterator[Opened]:
    """Return what opens a store, as another driver of one query each time."""
    stores: list[PostgresqlStore] = []

    def another(**target: Any) -> PostgresqlStore:
        stores.append(PostgresqlStore(url, "q", Target(**{"table": "kept", **target})))
        stores[-1].open(SCHEMA, "spark://elsewhere:7077")
        return stores[-1]

    yield another
    for store in stores:
        store.close()


def batch(number: int = 0) -> Batch:
    return Batch(number=number, checkpoint="c", plan=f"plan {number}", stateful=False, ranges=())


def records(*numbers: int) -> pa.RecordBatch:
    """Return rows with a number, and nothing else."""
    columns = [
        pa.array(numbers if name == "number" else [None] * len(numbers), kind)
        for name, (_, kind, _) in FIELDS.items()
    ]
    return pa.RecordBatch.from_arrays(columns, list(FIELDS))


def copied(store: PostgresqlStore, number: int, *tasks: list[pa.RecordBatch]) -> Copied:
    """Run tasks as workers do, from what was pickled, and give back what Spark collects."""
    sent = pickle.dumps(store.task(batch(number)))
    done = [
        row for task in tasks for each in pickle.loads(sent)(iter(task)) for row in each.to_pylist()
    ]
    return Copied(tuple(row["attempt"] for row in done), sum(row["rows"] for row in done))


def numbers(engine: Engine) -> list[int]:
    with engine.begin() as connection:
        return [row[0] for row in connection.exec_driver_sql("SELECT number FROM kept ORDER BY 1")]


def staged(engine: Engine) -> int:
    """Return how many rows lie in staging tables, whoever has left them there."""
    names = [n for n in sql.inspect(engine).get_table_names() if n.startswith("holdfast_staging")]
    with engine.begin() as connection:
        return sum(
            connection.exec_driver_sql(f"SELECT count(*) FROM {n}").scalar() or 0 for n in names
        )


def test_every_type_arrives_as_it_was(opened: Opened, engine: Engine) -> None:
    store = opened()
    columns = [pa.array(values, kind) for _, kind, values in FIELDS.values()]
    rows = pa.RecordBatch.from_arrays(columns, list(FIELDS))
    store.commit(batch(), ALL, copied(store, 0, [rows]))
    with engine.begin() as connection:
        found = connection.exec_driver_sql("SELECT * FROM kept").all()
    assert [tuple(row) for row in found] == list(
        zip(*(values for _, _, values in FIELDS.values()), strict=True)
    )


def test_a_text_that_ends_a_copy_is_a_text(url: str, engine: Engine) -> None:
    """PostgreSQL reads no further than a line of a backslash and a dot, unless it is quoted."""
    store = PostgresqlStore(url, "q", Target(table="kept"))
    store.open(spark.StructType([spark.StructField("number", spark.StringType())]), "local")
    texts = ["\\.", None, "", "a", "\n\\.\n", '"']
    rows = pa.RecordBatch.from_pydict({"number": pa.array(texts, pa.string())})
    store.commit(batch(), ALL, copied(store, 0, [rows]))
    with engine.begin() as connection:
        found = [row[0] for row in connection.exec_driver_sql("SELECT number FROM kept")]
    assert found == texts
    store.close()


def test_what_tasks_copied_is_there_when_it_is_committed_and_not_before(
    opened: Opened, engine: Engine
) -> None:
    store = opened()
    rows = copied(store, 0, [records(1, 2), records(), records(3)], [], [records()], [records(4)])
    assert (rows.count, len(rows.attempts)) == (4, 2), "a task without rows has no attempt"
    assert (numbers(engine), staged(engine)) == ([], 4)
    store.commit(batch(), ALL, rows)
    assert (numbers(engine), staged(engine)) == ([1, 2, 3, 4], 0)


def test_an_attempt_that_spark_did_not_choose_is_swept(opened: Opened, engine: Engine) -> None:
    store = opened()
    copied(store, 0, [records(1)])
    store.commit(batch(), ALL, copied(store, 0, [records(1)]))
    assert (numbers(engine), staged(engine)) == ([1], 0)


def test_a_staging_table_does_not_grow_with_the_batches(
    url: str, opened: Opened, engine: Engine
) -> None:
    """Somebody's transaction keeps dead rows from being vacuumed. Seen to fail: all of them stayed.

    An attempt that still writes hinders no batch: its rows are swept with the next one.
    """
    store = opened()
    name = store._staging().name
    size = sql.text(f"SELECT pg_table_size('{name}')")
    with psycopg.connect(**connection_arguments(url)) as holding, engine.connect() as asking:
        holding.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holding.execute("SELECT 1")
        for number in range(8):
            store.commit(batch(number), ALL, copied(store, number, [records(*range(5_000))]))
            assert staged(engine) == 0
            assert (asking.scalar(size) or 0) < EMPTIED_ANEW_BYTES
            asking.rollback()
        with psycopg.connect(**connection_arguments(url)) as writing:
            writing.execute(f"LOCK TABLE {name} IN ROW EXCLUSIVE MODE")
            for number in range(8, 16):
                store.commit(batch(number), ALL, copied(store, number, [records(*range(5_000))]))
                assert staged(engine) == 0
            assert (asking.scalar(size) or 0) > EMPTIED_ANEW_BYTES
            asking.rollback()
        store.commit(batch(16), ALL, copied(store, 16, [records(1)]))
        assert asking.scalar(size) == 8192, "a new file, and a page of what else it has"
    assert len(numbers(engine)) == 16 * 5_000 + 1


def test_rows_that_are_missing_in_the_staging_table_end_the_batch(
    opened: Opened, engine: Engine
) -> None:
    store = opened()
    rows = copied(store, 0, [records(1, 2)])
    with engine.begin() as connection:
        name = store._staging().name
        connection.exec_driver_sql(f"DELETE FROM {name} WHERE number = 1")
    with pytest.raises(StagingError, match="2 rows were computed, and 1 of them"):
        store.commit(batch(), ALL, rows)
    assert numbers(engine) == []
    assert store.memory().last is None


def test_a_driver_that_was_replaced_commits_nothing_and_its_tasks_hinder_nobody(
    url: str, opened: Opened, engine: Engine
) -> None:
    """A task of the former driver is in the middle of its rows while the next one takes over."""
    before = opened()
    late = before.task(batch())(iter([records(1)]))
    with psycopg.connect(**connection_arguments(url)) as holding:
        holding.execute(f"LOCK TABLE {before._staging().name} IN ROW EXCLUSIVE MODE")
        after = opened()
        after.commit(batch(), ALL, copied(after, 0, [records(1)]))
    (result,) = late
    with pytest.raises(FencedError):
        before.commit(batch(), ALL, Copied(tuple(result["attempt"].to_pylist()), 1))
    assert numbers(engine) == [1]
    opened()
    assert staged(engine) == 0, "the next owner sweeps what could not be swept"


def test_a_driver_whose_table_does_not_fit_replaces_nobody(opened: Opened, engine: Engine) -> None:
    store = opened()
    with pytest.raises(TargetError, match="no primary key"):
        opened(keys=("text",), mode=Mode.UPSERT)
    store.commit(batch(), ALL, copied(store, 0, [records(1)]))
    assert numbers(engine) == [1]


def test_drivers_that_begin_together_make_one_table(url: str) -> None:
    """Seen to fail: all but one ended with a unique violation in PostgreSQL's own catalogue."""
    stores = [PostgresqlStore(url, f"q{n}", Target(table="kept")) for n in range(8)]
    with ThreadPoolExecutor(len(stores)) as drivers:
        list(drivers.map(lambda store: store.open(SCHEMA, "local"), stores))
    for store in stores:
        store.close()


def test_a_replay_after_the_commit_is_known(opened: Opened) -> None:
    store = opened()
    move = Due(Reader(Partition("t", 0)), 0, 0, 2, None, "id")
    store.commit(batch(), Work(rows=Rows.ALL, moves=(move,)), copied(store, 0, [records(1, 2)]))
    memory = opened().memory()
    assert memory.last is not None
    assert (memory.last.checkpoint, memory.last.batch) == ("c", 0)
    assert memory.offsets[Reader(Partition("t", 0))].next_offset == 2


def test_a_batch_without_rows_is_remembered(opened: Opened, engine: Engine) -> None:
    store = opened()
    store.commit(batch(0), ALL, None)
    store.commit(batch(1), ALL, copied(store, 1, []))
    last = store.memory().last
    assert last is not None
    assert (last.batch, numbers(engine)) == (1, [])


def test_an_upsert_chooses_among_the_attempts_that_count(opened: Opened, engine: Engine) -> None:
    store = opened(mode=Mode.UPSERT, keys=("number",), version="real")
    real = list(FIELDS).index("real")

    def row(value: float) -> pa.RecordBatch:
        return records(1).set_column(real, "real", pa.array([value]))

    copied(store, 0, [row(9.0)])
    store.commit(batch(0), ALL, copied(store, 0, [row(2.0)], [row(3.0)]))
    store.commit(batch(1), ALL, copied(store, 1, [row(1.0)]))
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT real FROM kept").all() == [(3.0,)]


def test_a_row_that_breaks_a_constraint_ends_its_batch(opened: Opened, engine: Engine) -> None:
    store = opened(keys=("number",))
    store.commit(batch(0), ALL, copied(store, 0, [records(1)]))
    with pytest.raises(sql.exc.IntegrityError):
        store.commit(batch(1), ALL, copied(store, 1, [records(1, 2)]))
    last = store.memory().last
    assert last is not None
    assert (last.batch, numbers(engine)) == (0, [1])


def test_a_password_is_a_reference_wherever_it_lies(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    with_user = url.replace("@/", ":{}@/", 1)
    with pytest.raises(TargetError, match="env:NAME") as refused:
        PostgresqlStore(with_user.format("swordfish"), "q", Target(table="t"))
    assert "swordfish" not in str(refused.value)
    monkeypatch.setenv("STORE_PASSWORD", "swordfish")
    store = PostgresqlStore(with_user.format("env:STORE_PASSWORD"), "q", Target(table="kept"))
    store.open(SCHEMA, "local")
    sent = pickle.dumps([store, store.task(batch())])
    assert b"swordfish" not in sent
    assert b"STORE_PASSWORD" in sent
    given = connection_arguments(with_user.format("env:STORE_PASSWORD"))
    assert given["password"] == "swordfish"
    store.commit(batch(), ALL, copied(store, 0, [records(1)]))
    store.close()
    monkeypatch.delenv("STORE_PASSWORD")
    with pytest.raises(OptionError, match="no environment variable 'STORE_PASSWORD'"):
        store.open(SCHEMA, "local")
