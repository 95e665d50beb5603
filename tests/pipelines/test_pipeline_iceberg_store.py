"""Goal: any reader of an Iceberg table sees each batch whole or not at all, and once, whoever
writes beside its writer, whatever is done to the table, and whatever the catalog does not answer.

Method: real catalogs and tables, read through pyiceberg's own catalog and files. Deaths and a full
disk: test_pipeline_iceberg_deaths.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sql
from pyarrow import parquet
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, IntegerType, LongType, NestedField, PrimitiveType
from pyspark.sql import types as spark
from tests.pipelines.iceberg_tables import (
    catalog,
    committed,
    folder,
    numbers,
    orphans,
    table,
    there,
)
from tests.pipelines.iceberg_writer import begun, opened, url_of
from tests.pipelines.parquet_writer import (
    LACKED,
    SCHEMA,
    TOLD_LACKED,
    WIDER,
    P,
    batch,
    records,
    staged,
    write,
)
from tests.pipelines.test_pipeline_delta_store import KINDS, MOMENT

from holdfast.pipelines.due import Due, Rows, Work, decide
from holdfast.pipelines.fence import FencedError
from holdfast.pipelines.planned import Planned
from holdfast.pipelines.sinks.iceberg.catalog import OwnersCatalog, Place
from holdfast.pipelines.sinks.iceberg.store import IcebergStore
from holdfast.pipelines.sinks.store import StagingError
from holdfast.pipelines.sinks.target import Mode, Target, TargetError
from holdfast.pipelines.sinks.written_files import Files


def told(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(table(root).properties["holdfast.query.a query"])
    return found


def work_of(store: IcebergStore, number: int) -> Work:
    return decide(batch(number), store.memory(), (), "q")


@pytest.mark.slow
def test_what_the_log_lacked_stands_in_a_snapshot_once(tmp_path: Path) -> None:
    """Of a batch without rows in one without files: what is remembered does not grow by gaps."""
    store = begun(tmp_path)
    lacking = batch(1, gaps=LACKED[:1])
    store.commit(lacking, decide(lacking, store.memory(), (), "q"), staged(store, lacking, []))
    assert "gaps" not in told(tmp_path)
    assert numbers(tmp_path) == []
    again = opened(tmp_path)
    write(again, batch(2, gaps=LACKED[1:]))
    nothing = Planned(P, 4, 4, "id", gaps=((3, 4),))
    write(again, replace(batch(3), ranges=(nothing,)))
    write(again, replace(batch(3), number=4))
    summaries = [each.summary for each in table(tmp_path).metadata.snapshots]
    found = [json.loads(str(each["holdfast"])).get("gaps") for each in summaries if each]
    assert found == [TOLD_LACKED[:1], TOLD_LACKED[1:], TOLD_LACKED[1:], None]
    assert numbers(tmp_path) == [2, 3, 4, 5]


def test_a_batch_is_there_when_it_is_committed_and_not_before(tmp_path: Path) -> None:
    store = begun(tmp_path)
    files = staged(store, batch(1), [records(0), records()], [], [records(1)])
    assert (files.count, len(files.names)) == (2, 2)
    assert numbers(tmp_path) == []
    store.commit(batch(1), work_of(store, 1), files)
    assert numbers(tmp_path) == [0, 1]
    assert told(tmp_path)["batch"] == 1
    (offset,) = told(tmp_path)["offsets"]
    assert (offset["partition"], offset["next"], offset["topic_id"]) == (0, 2, "id")
    (snapshot,) = table(tmp_path).metadata.snapshots
    assert snapshot.summary is not None
    assert json.loads(str(snapshot.summary["holdfast"]))["turn"] == told(tmp_path)["turn"]
    assert there(tmp_path) == committed(tmp_path)
    assert orphans(tmp_path) == set()


def test_each_batch_once_over_restarts_and_lost_checkpoints(tmp_path: Path) -> None:
    for number in range(4):
        store = opened(tmp_path)
        write(store, batch(number))
        write(store, batch(number))
    again = opened(tmp_path)
    for number in range(5):
        write(again, batch(number, checkpoint="anew"))
    assert numbers(tmp_path) == list(range(8))
    assert orphans(tmp_path) == set()


def test_what_tasks_staged_that_spark_did_not_choose_or_changed_is_not_there(
    tmp_path: Path,
) -> None:
    store = begun(tmp_path)
    files = staged(store, batch(1), [records(0, 1)])
    parquet.write_table(pa.table({"number": [0]}), files.folder / files.names[0])
    with pytest.raises(StagingError, match="2 rows were computed, and 1"):
        store.commit(batch(1), work_of(store, 1), files)
    assert numbers(tmp_path) == []
    sent = store.task(batch(1))
    list(sent(iter([records(0, 1)])))
    (result,) = sent(iter([records(0, 1)]))
    (row,) = result.to_pylist()
    files = Files(store._staging(batch(1)), (row["name"],), row["rows"])
    store.commit(batch(1), work_of(store, 1), files)
    assert numbers(tmp_path) == [0, 1]
    assert there(tmp_path) == committed(tmp_path)


def test_offsets_that_somebody_changed_end_the_batch(tmp_path: Path) -> None:
    store = opened(tmp_path)
    work = Work(rows=Rows.ALL, moves=(Due(P, 0, 0, 2, 7, "id"),))
    with pytest.raises(FencedError, match="no longer 7"):
        store.commit(batch(1), work, staged(store, batch(1), [records(0, 1)]))


def test_two_queries_share_a_table_in_either_catalog(tmp_path: Path, database: str) -> None:
    plain = database.replace("postgresql+psycopg", "postgresql")
    url = f"iceberg+{plain}{'&' if '?' in plain else '?'}warehouse={tmp_path}/a%20house&catalog=c"
    one = begun(tmp_path, url=url)
    other = IcebergStore(url, "other", Target(table="db.kept"))
    other.open(SCHEMA, "local[2]")
    for number in range(3):
        write(other, batch(number))
        write(one, batch(number))
    before = one
    write(opened(tmp_path, url=url), batch(3))
    with pytest.raises(FencedError, match="was taken over"):
        write(before, batch(3))
    reader = SqlCatalog("c", uri=str(sql.make_url(database).render_as_string(False)))
    found = reader.load_table("db.kept")
    assert found.location() == f"file://{tmp_path}/a house/db/kept"
    assert sorted(found.scan().to_arrow()["number"].to_pylist()) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 5]
    reader.close()


def test_all_is_on_disk_before_the_catalog_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: pyiceberg's own files are synced by nobody."""
    store = begun(tmp_path)
    synced: set[str] = set()
    plain = os.fsync

    def fsync(descriptor: int) -> None:
        plain(descriptor)
        synced.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", fsync)
    before = {str(path) for path in folder(tmp_path).rglob("*")}
    missing: list[str] = []

    def look(_connection: object) -> None:
        new = {
            str(path)
            for path in folder(tmp_path).rglob("*")
            if path.suffix in {".json", ".avro", ".parquet"}
        } - before
        names = {Path(name).name for name in synced}
        missing.extend(name for name in new if Path(name).name not in names)
        missing.extend(
            str(Path(name).parent) for name in new if str(Path(name).parent) not in synced
        )
        assert len(new) > 3

    sql.event.listen(store.catalog.engine, "commit", look)
    write(store, batch(1))
    assert missing == []
    pragma = "PRAGMA synchronous"
    with store.catalog.engine.connect() as connection:
        assert connection.exec_driver_sql(pragma).scalar() == 2  # FULL


# -- the columns -------------------------------------------------------------------------------


def test_other_columns_are_refused_before_anybody_is_fenced(tmp_path: Path) -> None:
    writer = begun(tmp_path)
    with pytest.raises(TargetError, match="has no column 'more'"):
        opened(tmp_path, WIDER)
    write(writer, batch(1))
    wider = opened(tmp_path, WIDER, adds_columns=True)
    with pytest.raises(FencedError):
        write(writer, batch(2))
    row = pa.record_batch({"number": pa.array([2]), "more": pa.array(["x"])})
    wider.commit(batch(2), work_of(wider, 2), staged(wider, batch(2), [row]))
    found = table(tmp_path).scan().to_arrow().sort_by("number").to_pylist()
    assert found == [
        {"number": 0, "more": None}, {"number": 1, "more": None}, {"number": 2, "more": "x"},
    ]  # fmt: skip


def test_a_table_that_changes_while_a_query_runs_is_seen_before_a_commit(tmp_path: Path) -> None:
    """Columns that are added leave the query alone; one that is made anew has another id."""
    store = begun(tmp_path)
    with table(tmp_path).update_schema() as change:
        change.add_column("more", LongType())
    write(store, batch(1))
    assert numbers(tmp_path) == [0, 1]
    files = staged(store, batch(2), [records(2, 3)])
    with table(tmp_path).update_schema() as change:
        change.delete_column("number")
    with table(tmp_path).update_schema() as change:
        change.add_column("number", LongType())
    with pytest.raises(TargetError, match="columns were changed while"):
        store.commit(batch(2), work_of(store, 2), files)
    assert there(tmp_path) == committed(tmp_path)


def made(root: Path, fields: list[tuple[str, PrimitiveType, bool]], **more: Any) -> None:
    (root / "warehouse").mkdir()
    opened_here = catalog(root)
    opened_here.create_tables()
    opened_here.create_namespace("db")
    numbered = [NestedField(n, *field) for n, field in enumerate(fields, 1)]
    opened_here.create_table("db.kept", Schema(*numbered), **more)
    opened_here.close()


DAYS = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))
NUMBER = ("number", LongType(), False)


@pytest.mark.parametrize(
    ("fields", "more", "said"),
    [
        ([("number", IntegerType(), False)], {}, "'number' is int, and the query's is long"),
        ([("Number", LongType(), False)], {}, "'Number' is spelt otherwise"),
        ([("number", LongType(), True)], {}, "'number' must not be null, and the query's may"),
        ([NUMBER, ("b", LongType(), True)], {}, "'b' must not be null, and the"),
        ([NUMBER, ("day", DateType(), False)], {"partition_spec": DAYS}, r"partitioned \(day\)"),
        ([NUMBER], {"properties": {"write.data.path": "file:///x"}}, r"write\.data\.path=file"),
        ([NUMBER], {"properties": {"write.wap.enabled": "true"}}, r"write\.wap\.enabled=true"),
        (
            [NUMBER],
            {"properties": {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}},
            "other code than ours",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    tmp_path: Path, fields: list[tuple[str, PrimitiveType, bool]], more: dict[str, Any], said: str
) -> None:
    made(tmp_path, fields, **more)
    with pytest.raises(TargetError, match=said):
        opened(tmp_path, adds_columns=True)
    assert len(list((folder(tmp_path) / "metadata").iterdir())) == 1
    assert [path.name for path in folder(tmp_path).iterdir()] == ["metadata"]


def test_a_table_of_a_later_format_is_refused(tmp_path: Path) -> None:
    """It can be read with pyiceberg, and not written."""
    made(tmp_path, [NUMBER])
    (metadata,) = (folder(tmp_path) / "metadata").iterdir()
    later = {**json.loads(metadata.read_text()), "format-version": 3, "next-row-id": 0}
    metadata.write_text(json.dumps(later))
    with pytest.raises(TargetError, match="it has format 3"):
        opened(tmp_path)


def test_a_table_of_somebody_elses_making_is_taken(tmp_path: Path) -> None:
    """Of format 1, say, elsewhere than in the warehouse."""
    where = f"file://{tmp_path}/elsewhere/t"
    made(tmp_path, [NUMBER], location=where, properties={"format-version": "1"})
    write(begun(tmp_path), batch(1))
    assert numbers(tmp_path) == [0, 1]
    assert len(list((tmp_path / "elsewhere" / "t" / "data").iterdir())) == 2


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    folder(tmp_path).mkdir(parents=True)
    (folder(tmp_path) / "something").touch()
    with pytest.raises(TargetError, match="it is not empty: it has something"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("names", "said"),
    [(["a.b"], "without one"), (["a", "A"], "one name"), (["holdfast_a"], "are ours")],
)
def test_names_that_readers_do_not_have_are_refused(
    tmp_path: Path, names: list[str], said: str
) -> None:
    fields = [spark.StructField(name, spark.LongType()) for name in names]
    with pytest.raises(TargetError, match=said):
        opened(tmp_path, spark.StructType(fields))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("iceberg:///folder", r"use iceberg\+sqlite:///FILE"),
        ("iceberg+mysql://host/db?warehouse=/w", "a catalog in mysql is not built"),
        ("iceberg+sqlite:///:memory:?warehouse=/w", "gone with its process"),
        ("iceberg+sqlite:////c.db", "one warehouse"),
        ("iceberg+sqlite:////c.db?warehouse=s3://bucket/w", "only folders are built"),
        ("iceberg+sqlite:////c.db?warehouse=s3://key:secret@b/w", "=s3://...: only folders are"),
        ("iceberg+sqlite:////c.db?warehouse=w", "only folders are built"),
        ("iceberg+sqlite:////c.db?warehouse=/a%2520b", "for an escape"),
        ("iceberg+sqlite:////c.db?warehouse=/w&token=secret", "it has token behind"),
        ("iceberg+sqlite:////c.db?warehouse=/w&uri=true&mode=memory", "it has mode, uri behind"),
        (
            "iceberg+postgresql://u@h/db?warehouse=/w&s3.access-key=secret",
            "it has s3.access-key behind",
        ),
        ("iceberg+postgresql://u:secret@host/db?warehouse=/w", "is not written into a query"),
    ],
)
def test_what_is_no_catalog_or_warehouse_of_ours_is_refused(url: str, said: str) -> None:
    with pytest.raises(TargetError, match=said) as refused:
        IcebergStore(url, "q", Target(table="db.t"))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"mode": Mode.UPSERT, "keys": ("number",)}, "is not built"),
        ({"keys": ("number",)}, "no primary key"),
        ({"table": "t"}, 'use "default.t"'),
        ({"table": "db._t"}, "without / and _"),
        ({"table": "db..t"}, "without / and _"),
    ],
)
def test_what_is_not_built_is_refused(target: dict[str, Any], said: str) -> None:
    with pytest.raises(TargetError, match=said):
        IcebergStore(
            "iceberg+sqlite:////c.db?warehouse=/w", "q", Target(**{"table": "db.t", **target})
        )


def test_sqlite_is_refused_on_a_cluster_and_a_password_stays_a_reference(tmp_path: Path) -> None:
    store = IcebergStore(url_of(tmp_path), "q", Target(table="db.t"))
    with pytest.raises(TargetError, match="for one machine"):
        store.open(SCHEMA, "spark://somewhere:7077")
    place = Place.parse("iceberg+postgresql://u:env:PW@h/db?warehouse=/w/&host=/run")
    assert sql.make_url(place.url).password == "env:PW"
    assert (place.catalog, place.warehouse) == ("default", "/w")


@pytest.mark.parametrize(
    ("kind", "arrow", "values"), KINDS, ids=[kind.simpleString() for kind, *_ in KINDS]
)
def test_each_simple_type_arrives_as_it_was(
    tmp_path: Path, kind: spark.DataType, arrow: pa.DataType, values: list[Any]
) -> None:
    """Nulls too. Seen to fail: without its cast a file has moments in the session's zone."""
    store = begun(tmp_path, schema=spark.StructType([spark.StructField("value", kind)]))
    rows = pa.record_batch({"value": pa.array([*values, None], arrow)})
    store.commit(batch(1), work_of(store, 1), staged(store, batch(1), [rows]))
    found = table(tmp_path)
    (name,) = committed(tmp_path)
    in_file = parquet.read_table(folder(tmp_path) / "data" / name)["value"]
    expected = pa.array([*values, None], arrow).cast(in_file.type).to_pylist()
    for column in (in_file, found.scan().to_arrow()["value"]):
        assert [*map(repr, column.cast(in_file.type).to_pylist())] == [*map(repr, expected)]
    assert found.scan("value is null").to_arrow().num_rows == 1
    assert found.scan("value is not null").to_arrow().num_rows == len(values)
    if isinstance(kind, spark.TimestampType):
        assert in_file.type == pa.timestamp("us", "UTC")
        assert in_file[0].as_py() == MOMENT


# -- what others do to the table -----------------------------------------------------------------


def test_rows_of_others_and_their_upkeep_are_in_nobodys_way(tmp_path: Path) -> None:
    """Appends, manifests that are merged, snapshots that expire: memory and rows stay."""
    store = begun(tmp_path)
    with table(tmp_path).transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "2"})
    write(store, batch(1))
    table(tmp_path).append(pa.table({"number": [100]}))
    write(store, batch(2))
    files = staged(store, batch(3), [records(4, 5)])
    before = table(tmp_path)
    old = [snapshot.snapshot_id for snapshot in before.metadata.snapshots][:-1]
    before.maintenance.expire_snapshots().by_ids(old).commit()
    store.commit(batch(3), work_of(store, 3), files)
    assert numbers(tmp_path) == [0, 1, 2, 3, 4, 5, 100]
    assert len(table(tmp_path).current_snapshot().manifests(before.io)) == 1  # type: ignore[union-attr]
    after = opened(tmp_path)
    for number in range(5):
        write(after, batch(number, checkpoint="anew"))
    assert numbers(tmp_path) == [*range(8), 100]


def test_a_table_that_is_dropped_or_made_anew_is_named(tmp_path: Path) -> None:
    store = begun(tmp_path)
    files = staged(store, batch(1), [records(0, 1)])
    work = work_of(store, 1)
    opened_here = catalog(tmp_path)
    opened_here.rename_table("db.kept", "db.other")
    with pytest.raises(TargetError, match="the catalog has it no more"):
        store.commit(batch(1), work, files)
    opened_here.create_table("db.kept", Schema(NestedField(1, *NUMBER)))
    with pytest.raises(FencedError, match="has turn 0"):
        store.memory()
    opened_here.drop_table("db.kept")
    opened_here.rename_table("db.other", "db.kept")
    opened_here.close()
    write(opened(tmp_path), batch(1))
    assert numbers(tmp_path) == [0, 1]


# -- two owners --------------------------------------------------------------------------------


def before_next_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Have `act` done after a handle was read and checked, and before the catalog is asked."""
    commit = OwnersCatalog.commit_table

    def later(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(OwnersCatalog, "commit_table", commit)
        act()
        return commit(*arguments, **named)

    monkeypatch.setattr(OwnersCatalog, "commit_table", later)


def before_next_update(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Have `act` done after the catalog was compared, and before its row is set."""
    write_metadata = SqlCatalog._write_metadata

    def later(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(write_metadata))
        write_metadata(*arguments, **named)
        act()

    monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(later))


BETWEEN = pytest.mark.parametrize("between", [before_next_commit, before_next_update])


@BETWEEN
@pytest.mark.parametrize("rows", [True, False])
def test_of_two_handles_that_read_the_same_one_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: Callable[..., None], rows: bool
) -> None:
    """Also where the other one has only taken over: that adds no snapshot."""
    before = begun(tmp_path)

    def replace() -> None:
        after = opened(tmp_path)
        if rows:
            write(after, batch(1))

    between(monkeypatch, replace)
    with pytest.raises(FencedError, match="was taken over"):
        write(before, batch(1))
    assert numbers(tmp_path) == ([0, 1] if rows else [])
    assert there(tmp_path) == committed(tmp_path)
    write(opened(tmp_path), batch(1))
    assert numbers(tmp_path) == [0, 1]
    assert orphans(tmp_path) == set()


@BETWEEN
def test_of_two_that_take_a_query_over_at_once_the_later_one_owns_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: Callable[..., None]
) -> None:
    others: list[IcebergStore] = []
    begun(tmp_path)
    between(monkeypatch, lambda: others.append(opened(tmp_path)))
    last = opened(tmp_path)
    with pytest.raises(FencedError):
        others[0].memory()
    write(last, batch(1))
    assert numbers(tmp_path) == [0, 1]
    assert orphans(tmp_path) == set()


@BETWEEN
def test_a_commit_of_somebody_else_in_between_is_waited_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: Callable[..., None]
) -> None:
    store = begun(tmp_path)
    between(monkeypatch, lambda: table(tmp_path).append(pa.table({"number": [100]})))
    write(store, batch(1))
    write(store, batch(2))
    assert numbers(tmp_path) == [0, 1, 2, 3, 100]
    assert there(tmp_path) == committed(tmp_path)
    assert orphans(tmp_path) == set()


def test_two_that_make_the_table_at_once_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[IcebergStore] = []
    before_next_update(monkeypatch, lambda: others.append(begun(tmp_path)))
    write(begun(tmp_path), batch(1))
    assert len(others) == 1
    assert numbers(tmp_path) == [0, 1]
    assert orphans(tmp_path) == set()


# -- no answer -----------------------------------------------------------------------------------


def no_answer(store: IcebergStore, monkeypatch: pytest.MonkeyPatch, *, commits: bool) -> list[str]:
    """Have the catalog's next commit break off; return where it keeps what was to be set."""
    dialect = store.catalog.engine.dialect
    commit = dialect.do_commit
    asked: list[str] = []

    def breaks(connection: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("SELECT metadata_location FROM iceberg_tables")
        asked.append(cursor.fetchone()[0])
        cursor.close()
        monkeypatch.setattr(dialect, "do_commit", commit)
        if commits:
            commit(connection)
        raise sqlite3.OperationalError("no answer")

    monkeypatch.setattr(dialect, "do_commit", breaks)
    return asked


def test_a_commit_without_an_answer_that_was_made_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = begun(tmp_path)
    no_answer(store, monkeypatch, commits=True)
    write(store, batch(1))
    assert "written, but then" in caplog.text
    write(store, batch(1))
    write(store, batch(2))
    assert numbers(tmp_path) == [0, 1, 2, 3]
    assert orphans(tmp_path) == set()


def set_to(root: Path, before: str, location: str) -> int:
    with sql.create_engine(f"sqlite:///{root}/catalog.db").begin() as connection:
        where = "UPDATE iceberg_tables SET metadata_location = :to WHERE metadata_location = :was"
        return connection.execute(sql.text(where), {"to": location, "was": before}).rowcount


def test_a_commit_without_an_answer_may_come_until_the_query_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So its files stay until then; afterwards it changes nothing, and they are swept."""
    store = begun(tmp_path)
    before = table(tmp_path).metadata_location
    asked = no_answer(store, monkeypatch, commits=False)
    with pytest.raises(sql.exc.OperationalError, match="no answer"):
        write(store, batch(1))
    assert numbers(tmp_path) == []
    with monkeypatch.context():
        assert set_to(tmp_path, before, asked[0]) == 1
        assert numbers(tmp_path) == [0, 1]
        assert set_to(tmp_path, asked[0], before) == 1
    after = opened(tmp_path)
    assert set_to(tmp_path, before, asked[0]) == 0
    assert there(tmp_path) == set()
    assert orphans(tmp_path) == set()
    write(after, batch(1))
    assert numbers(tmp_path) == [0, 1]


def test_pyiceberg_keeps_to_what_the_protocol_stands_on(tmp_path: Path) -> None:
    """Its commits are tried again behind others; and of properties nobody is asked.

    So of two handles that have read the same both commit. Ours is asked for all of it.
    """
    store = begun(tmp_path)
    one, other = table(tmp_path), table(tmp_path)
    one.append(pa.table({"number": [1]}))
    other.append(pa.table({"number": [1]}))
    with other.transaction() as change:
        change.set_properties({"a": "1"})
    with one.transaction() as change:
        change.set_properties({"a": "2"})
    assert numbers(tmp_path) == [1, 1]
    stale = store.catalog.load_table("db.kept")
    with table(tmp_path).transaction() as change:
        change.set_properties({"a": "3"})
    with pytest.raises(Exception, match="changed since it was read") as failure:
        stale.append(pa.table({"number": [2]}))
    assert not isinstance(failure.value, CommitFailedException)
    assert numbers(tmp_path) == [1, 1]


# -- one folder, another table -----------------------------------------------------------------


def test_a_restart_changes_nothing_of_what_is_remembered(tmp_path: Path) -> None:
    """Seen to fail where the property had no room for how sources are told apart."""
    store = begun(tmp_path)
    write(store, batch(1))
    before = store.memory()
    assert before.last is not None
    assert before.last.by_place
    assert opened(tmp_path).memory() == before


def test_another_catalog_is_refused_the_folder_of_a_table(tmp_path: Path) -> None:
    """Two catalogs have no common fence: each took the other's files for its own left-overs."""
    prod = begun(tmp_path, url=f"{url_of(tmp_path)}&catalog=prod")
    write(prod, batch(1))
    with pytest.raises(TargetError, match="not empty: it has data"):
        opened(tmp_path, url=f"{url_of(tmp_path)}&catalog=dev")


@pytest.mark.slow
def test_tables_that_share_a_folder_leave_each_others_files_alone(tmp_path: Path) -> None:
    """Goal: whoever starts in another catalog before there is a row costs the other one nothing.

    Method: it starts again and again, with staged files of the other there, and amid its commit.
    """
    prod = opened(tmp_path, url=f"{url_of(tmp_path)}&catalog=prod")
    write(prod, batch(0))
    dev = f"{url_of(tmp_path)}&catalog=dev"
    opened(tmp_path, url=dev)
    due = decide(batch(1), prod.memory(), (), prod.query)
    files = staged(prod, batch(1), [records(0, 1)])
    for _ in range(3):
        opened(tmp_path, url=dev)
    prod.commit(batch(1), due, files)
    files = staged(prod, batch(2), [records(2, 3)])
    due = decide(batch(2), prod.memory(), (), prod.query)
    plain = prod.catalog.commit_table

    def others_start(*asked: Any) -> Any:
        for _ in range(3):
            opened(tmp_path, url=dev)
        return plain(*asked)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prod.catalog, "commit_table", others_start)
        prod.commit(batch(2), due, files)
    catalog = SqlCatalog("prod", uri=f"sqlite:///{tmp_path}/catalog.db")
    rows = catalog.load_table("db.kept").scan().to_arrow()["number"].to_pylist()
    assert sorted(rows) == [0, 1, 2, 3]


def test_a_comment_on_a_column_ends_nothing(tmp_path: Path) -> None:
    store = begun(tmp_path)
    with table(tmp_path).update_schema() as change:
        change.update_column("number", doc="which one it is")
    write(store, batch(1))
    assert numbers(tmp_path) == [0, 1]
