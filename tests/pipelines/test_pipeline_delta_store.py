"""Goal: any reader of a Delta table sees each batch whole or not at all, and once, wherever its
writer dies, whoever writes beside it, and whatever is done to the table meanwhile.

Method: real tables, read through deltalake and by a reader of Delta's log that is no line of it.
Deaths and a full disk: test_pipeline_delta_deaths.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from pyarrow import parquet
from pyspark.sql import types as spark
from tests.pipelines.delta_tables import committed, delta_numbers, numbers, schema_of, there
from tests.pipelines.delta_writer import begun, opened
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
from tests.pipelines.power import Disk

from holdfast.pipelines.due import Due, Rows, Work, decide
from holdfast.pipelines.fence import FencedError
from holdfast.pipelines.sinks import delta_store, delta_table
from holdfast.pipelines.sinks.delta_store import DeltaStore
from holdfast.pipelines.sinks.store import StagingError
from holdfast.pipelines.sinks.target import Mode, Target, TargetError
from holdfast.pipelines.sinks.written_files import Files


@pytest.mark.slow
def test_a_batch_is_there_when_it_is_committed_and_not_before(tmp_path: Path) -> None:
    store = begun(tmp_path)
    first = batch(1)
    files = staged(store, first, [records(0), records()], [], [records(1)])
    assert (files.count, len(files.names)) == (2, 2)
    assert numbers(tmp_path) == []
    store.commit(first, decide(first, store.memory(), (), "q"), files)
    assert numbers(tmp_path) == [0, 1]
    (memory,) = tmp_path.glob("kept/_holdfast/a%20query/memory/*")
    told = json.loads(memory.read_text())
    assert (told["rows"], told["files"]) == (2, list(files.names))
    assert told["ranges"] == [
        {"topic": "t", "partition": 0, "source": 0, "topic_id": "id", "begin": 0, "end": 2}
    ]
    assert DeltaTable(tmp_path / "kept").transaction_version("holdfast:a query") == told["turn"]


def test_an_owner_of_before_the_folder_was_restored_commits_nothing(tmp_path: Path) -> None:
    """Method: a copy of the table, with `_holdfast`, from before that owner took it over."""
    begun(tmp_path)
    shutil.copytree(tmp_path / "kept", tmp_path / "copy")
    before = opened(tmp_path)
    shutil.rmtree(tmp_path / "kept")
    (tmp_path / "copy").rename(tmp_path / "kept")
    after = opened(tmp_path)
    with pytest.raises(FencedError):
        write(before, batch(1))
    write(after, batch(1))
    assert numbers(tmp_path) == [0, 1]


def test_what_the_log_lacked_stands_in_the_history_once(tmp_path: Path) -> None:
    store = begun(tmp_path)
    write(store, batch(1))
    write(store, batch(2, gaps=LACKED))
    write(opened(tmp_path), batch(3))
    history = DeltaTable(tmp_path / "kept").history()
    told = [each["userMetadata"] for each in history if "userMetadata" in each]
    found = [json.loads(text)["holdfast"].get("gaps") for text in told]
    assert [gaps for gaps in found if gaps] == [TOLD_LACKED]


@pytest.mark.slow
def test_each_batch_once_over_restarts_and_lost_checkpoints(tmp_path: Path) -> None:
    for number in range(4):
        store = opened(tmp_path)
        write(store, batch(number))
        write(store, batch(number))
    again = opened(tmp_path)
    for number in range(5):
        write(again, batch(number, checkpoint="anew"))
    assert numbers(tmp_path) == list(range(8))


def test_files_of_attempts_that_spark_did_not_choose_are_not_there(tmp_path: Path) -> None:
    store = begun(tmp_path)
    first = batch(1)
    sent = store.task(first)
    list(sent(iter([records(0, 1)])))
    (result,) = sent(iter([records(0, 1)]))
    (row,) = result.to_pylist()
    files = Files(store._staging(first), (row["name"],), row["rows"])
    store.commit(first, decide(first, store.memory(), (), "q"), files)
    assert numbers(tmp_path) == [0, 1]
    assert there(tmp_path) == committed(tmp_path)
    assert not list(tmp_path.glob("kept/_holdfast/*/staged/*/*"))


def test_a_file_that_has_other_rows_than_its_task_told_ends_the_batch(tmp_path: Path) -> None:
    store = begun(tmp_path)
    first = batch(1)
    files = staged(store, first, [records(0, 1)])
    parquet.write_table(pa.table({"number": [0]}), files.folder / files.names[0])
    with pytest.raises(StagingError, match="2 rows were computed, and 1"):
        store.commit(first, decide(first, store.memory(), (), "q"), files)
    assert numbers(tmp_path) == []


def test_offsets_that_somebody_changed_end_the_batch(tmp_path: Path) -> None:
    store = opened(tmp_path)
    work = Work(rows=Rows.ALL, moves=(Due(P, 0, 0, 2, 7, "id"),))
    with pytest.raises(FencedError, match="no longer 7"):
        store.commit(batch(1), work, staged(store, batch(1), [records(0, 1)]))


def test_two_queries_share_a_table(tmp_path: Path) -> None:
    one = begun(tmp_path)
    other = DeltaStore(f"delta://{tmp_path}", "other", Target(table="kept"))
    other.open(SCHEMA, "local[2]")
    for number in range(3):
        write(other, batch(number))
        write(one, batch(number))
    assert numbers(tmp_path) == [0, 0, 1, 1, 2, 2, 3, 3]


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
    wider.commit(batch(2), _work(wider, 2), staged(wider, batch(2), [row]))
    found = DeltaTable(tmp_path / "kept").to_pyarrow_table().sort_by("number").to_pylist()
    assert found == [
        {"number": 0, "more": None}, {"number": 1, "more": None}, {"number": 2, "more": "x"},
    ]  # fmt: skip


def _work(store: DeltaStore, number: int) -> Work:
    return decide(batch(number), store.memory(), (), "q")


def test_a_table_that_changes_while_a_query_runs_is_seen_before_a_commit(tmp_path: Path) -> None:
    """Columns that are added leave the query alone; a rule for rows ends it."""
    store = begun(tmp_path)
    table = DeltaTable(tmp_path / "kept")
    table.alter.add_columns(schema_of([("more", "string", True)]).fields)
    write(store, batch(1))
    assert numbers(tmp_path) == [0, 1]
    DeltaTable(tmp_path / "kept").alter.add_constraint({"small": "number < 100"})
    with pytest.raises(TargetError, match=r"delta\.constraints\.small"):
        write(store, batch(2))
    assert numbers(tmp_path) == [0, 1]
    assert there(tmp_path) == committed(tmp_path)


@pytest.mark.parametrize(
    ("fields", "more", "said"),
    [
        ([("number", "integer", True)], {}, "'number' is integer, and the query's is long"),
        ([("Number", "long", True)], {}, "'Number' is spelt otherwise"),
        ([("number", "long", False)], {}, "'number' must not be null, and the query's may"),
        ([("number", "long", True), ("b", "long", False)], {}, "'b' must not be null, and the"),
        (
            [("number", "long", True), ("day", "date", True)],
            {"partition_by": ["day"]},
            "partitioned by day",
        ),
        (
            [("number", "long", True)],
            {"configuration": {"delta.setTransactionRetentionDuration": "interval 1 days"}},
            "setTransactionRetentionDuration",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    tmp_path: Path, fields: list[tuple[str, str, bool]], more: dict[str, Any], said: str
) -> None:
    DeltaTable.create(tmp_path / "kept", schema_of(fields), **more)
    with pytest.raises(TargetError, match=said):
        opened(tmp_path, adds_columns=True)
    assert DeltaTable(tmp_path / "kept").version() == 0


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "something").touch()
    with pytest.raises(TargetError, match="no Delta table, and not empty: it has something"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("names", "said"),
    [(["a b"], "no such name"), (["a", "A"], "one name"), (["holdfast_a"], "are ours")],
)
def test_names_that_delta_does_not_have_are_refused(
    tmp_path: Path, names: list[str], said: str
) -> None:
    fields = [spark.StructField(name, spark.LongType()) for name in names]
    with pytest.raises(TargetError, match=said):
        opened(tmp_path, spark.StructType(fields))


@pytest.mark.parametrize(
    "url",
    ["delta://bucket/folder", "s3://bucket/folder", "delta:", "delta://key:swordfish@bucket/x"],
)
def test_what_is_no_folder_of_this_machine_is_refused(url: str) -> None:
    with pytest.raises(TargetError, match="use delta:///FOLDER") as refused:
        DeltaStore(url, "q", Target(table="t"))
    assert "swordfish" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "more", "said"),
    [
        ("delta:///folder", {"mode": Mode.UPSERT, "keys": ("number",)}, "is not built"),
        ("delta:///folder", {"keys": ("number",)}, "no primary key"),
        ("delta:///fol%2520der", {}, "for an escape"),
    ],
)
def test_what_is_not_built_is_refused(url: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(TargetError, match=said):
        DeltaStore(url, "q", Target(table="t", **more))


def test_folders_have_any_other_name(tmp_path: Path) -> None:
    root = tmp_path / "a #b?ü"
    write(opened_at(root), batch(0))
    write(opened_at(root), batch(1))
    assert numbers(root) == [0, 1]


def opened_at(root: Path) -> DeltaStore:
    store = DeltaStore("delta:///unused", "a query", Target(table="kept"))
    store._root = root / "kept"
    store.open(SCHEMA, "local[2]")
    return store


MOMENT = datetime(2024, 2, 29, 12, 30, 1, 123456, UTC)
LOCAL = pa.timestamp("us", "America/New_York")  # as Spark tells moments: in the session's zone
KINDS: tuple[tuple[spark.DataType, pa.DataType, list[Any]], ...] = (
    (spark.BooleanType(), pa.bool_(), [True, False]),
    (spark.ByteType(), pa.int8(), [-(2**7), 2**7 - 1]),
    (spark.ShortType(), pa.int16(), [-(2**15), 2**15 - 1]),
    (spark.IntegerType(), pa.int32(), [-(2**31), 2**31 - 1]),
    (spark.LongType(), pa.int64(), [-(2**63), 2**63 - 1]),
    (spark.FloatType(), pa.float32(), [float("nan"), float("-inf"), -0.0, 0.5]),
    (spark.DoubleType(), pa.float64(), [float("nan"), float("inf"), -0.0, 1e308]),
    (spark.StringType(), pa.string(), ["", "a\nb", "\u00fc\U0001f40d", '"', "NULL"]),
    (spark.BinaryType(), pa.binary(), [b"", b"\x00\xff", b"\\x00"]),
    (spark.DateType(), pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
    (
        spark.TimestampType(),
        LOCAL,
        [MOMENT, datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(1800, 1, 1, tzinfo=UTC)],
    ),
    (
        spark.TimestampNTZType(),
        pa.timestamp("us"),
        [datetime(2024, 2, 29, 12, 30, 1, 123456), datetime(1800, 1, 1)],  # noqa: DTZ001 - it has none
    ),
    (spark.DecimalType(5, 2), pa.decimal128(5, 2), [Decimal("-999.99"), Decimal("0.00")]),
    (spark.DecimalType(38, 18), pa.decimal128(38, 18), [Decimal("9" * 20 + ".000000000000000001")]),
)


@pytest.mark.parametrize(
    ("kind", "arrow", "values"), KINDS, ids=[kind.simpleString() for kind, *_ in KINDS]
)
def test_each_simple_type_arrives_as_it_was(
    tmp_path: Path, kind: spark.DataType, arrow: pa.DataType, values: list[Any]
) -> None:
    """Seen to fail: without its cast a file has moments in the session's zone, not in UTC."""
    schema = spark.StructType([spark.StructField("value", kind)])
    store = opened(tmp_path, schema)
    write(store, batch(0))
    rows = pa.record_batch({"value": pa.array([*values, None], arrow)})
    store.commit(batch(1), _work(store, 1), staged(store, batch(1), [rows]))
    table = DeltaTable(tmp_path / "kept")
    (field,) = table.schema().fields
    assert (field.name, json.loads(field.type.to_json())) == ("value", kind.jsonValue())
    found = table.to_pyarrow_table()["value"]
    scanned = pa.table(table.scan().read_all())["value"]
    (name,) = committed(tmp_path)
    in_file = parquet.read_table(tmp_path / "kept" / name)["value"]
    for column in (found, scanned, in_file):
        assert [*map(repr, column.cast(in_file.type).to_pylist())] == [
            *map(repr, in_file.to_pylist())
        ]
    assert [*map(repr, in_file.to_pylist())] == [
        *map(repr, pa.array([*values, None], in_file.type).to_pylist())
    ]
    if isinstance(kind, spark.TimestampType):
        assert in_file.type == pa.timestamp("us", "UTC")
        assert in_file[0].as_py() == MOMENT


# -- what others do to the table -----------------------------------------------------------------


def cut_log(root: Path) -> None:
    """Have Delta forget the commits that its checkpoint has."""
    short = {"delta.logRetentionDuration": "interval 0 days"}
    DeltaTable(root / "kept").alter.set_table_properties(short)
    DeltaTable(root / "kept").create_checkpoint()
    DeltaTable(root / "kept").cleanup_metadata()
    assert len(list((root / "kept" / "_delta_log").glob("*.json"))) == 1


@pytest.mark.slow
def test_rows_of_others_and_their_upkeep_are_in_nobodys_way(tmp_path: Path) -> None:
    """Appends, a merge of files, VACUUM and a log that was cut: memory and rows stay."""
    store = begun(tmp_path)
    write(store, batch(1))
    write_deltalake(tmp_path / "kept", pa.table({"number": [100]}), mode="append")
    write(store, batch(2))
    table = DeltaTable(tmp_path / "kept")
    table.optimize.compact()
    write(store, batch(3))
    files = staged(store, batch(4), [records(6, 7)])
    DeltaTable(tmp_path / "kept").vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True
    )
    cut_log(tmp_path)
    store.commit(batch(4), _work(store, 4), files)
    assert delta_numbers(tmp_path) == [0, 1, 2, 3, 4, 5, 6, 7, 100]
    after = opened(tmp_path)
    for number in range(6):
        write(after, batch(number, checkpoint="anew"))
    assert delta_numbers(tmp_path) == [*range(10), 100]


def test_a_commit_that_was_cut_off_by_death_or_power_is_in_nobodys_way(tmp_path: Path) -> None:
    """It is N.json#1, linked as N.json; nothing had synced it, so it may be empty."""
    store = begun(tmp_path)
    write(store, batch(1))
    log = tmp_path / "kept" / "_delta_log"
    version = DeltaTable(tmp_path / "kept").version()
    (log / f"{version + 1:020}.json").touch()
    (log / f"{version + 2:020}.json#1").write_text("{")
    after = opened(tmp_path)
    for number in range(3):
        write(after, batch(number))
    assert numbers(tmp_path) == [0, 1, 2, 3]


def test_a_batch_costs_no_look_at_the_whole_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: each batch read the table four times, so it cost more with each file."""
    store = begun(tmp_path)
    with monkeypatch.context() as patched:
        patched.delattr(delta_table, "loaded")
        for number in range(1, 4):
            write(store, batch(number))
    write_deltalake(tmp_path / "kept", pa.table({"number": [100]}), mode="append")
    write(store, batch(4))
    assert numbers(tmp_path) == [*range(8), 100]


def test_a_log_that_went_back_is_seen(tmp_path: Path) -> None:
    """Not read on from where it was: the commit would leave a hole, which no reader comes over."""
    store = begun(tmp_path)
    shutil.copytree(tmp_path / "kept", tmp_path / "copy")
    write(store, batch(1))
    shutil.rmtree(tmp_path / "kept")
    (tmp_path / "copy").rename(tmp_path / "kept")
    with pytest.raises(FencedError, match="was taken over"):
        write(store, batch(2))
    again = opened(tmp_path)
    for number in range(3):
        write(again, batch(number))
    assert numbers(tmp_path) == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("interval", [4, 100])
def test_checkpoints_are_made_when_they_are_due_and_outlast_a_power_cut(
    tmp_path: Path, interval: int
) -> None:
    """A torn one hides the table. Seen to fail: nobody synced it."""
    properties = {} if interval == 100 else {"delta.checkpointInterval": str(interval)}
    columns = delta_table.Columns(SCHEMA).schema
    DeltaTable.create(tmp_path / "kept", columns, configuration=properties)
    disk = Disk(tmp_path)
    with disk.watched():
        store = opened(tmp_path)
        for number in range(interval + 1):
            write(store, batch(number))
            assert disk.lost() == []
    made = sorted((tmp_path / "kept" / "_delta_log").glob("*.checkpoint.parquet"))
    version = DeltaTable(tmp_path / "kept").version()
    due = [number for number in range(version + 1) if (number + 1) % interval == 0]
    assert [int(path.name.partition(".")[0]) for path in made] == due
    assert due
    assert delta_numbers(tmp_path) == [*range(2 * interval)]


@pytest.mark.slow
def test_what_others_have_written_to_the_log_outlasts_a_power_cut(tmp_path: Path) -> None:
    """A torn entry before ours hides the table. deltalake syncs none; nor may who made the table
    have done so yet.
    """
    disk = Disk(tmp_path)
    with disk.watched():
        DeltaTable.create(tmp_path / "kept", delta_table.Columns(SCHEMA).schema)
        store = opened(tmp_path)
        for number in range(3):
            table = DeltaTable(tmp_path / "kept")
            table.alter.set_table_properties({"delta.appendOnly": str(bool(number)).lower()})
            write(store, batch(number))
            lost = [name for name in disk.lost() if "_delta_log" in name]
            assert lost == []


@pytest.mark.slow
def test_old_entries_are_removed_once_their_checkpoint_is_on_disk(tmp_path: Path) -> None:
    """Seen to fail: deltalake removed them, and the checkpoint was synced behind that."""
    columns = delta_table.Columns(SCHEMA).schema
    properties = {"delta.checkpointInterval": "4", "delta.logRetentionDuration": "interval 0 days"}
    DeltaTable.create(tmp_path / "kept", columns, configuration=properties)
    log = tmp_path / "kept" / "_delta_log"
    disk = Disk(tmp_path)
    found: list[tuple[bool, list[str]]] = []
    tidy = delta_table.tidy

    def seen(folder: Path) -> None:
        found.append(((log / f"{0:020}.json").exists(), disk.lost()))
        tidy(folder)

    with disk.watched(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(delta_store, "tidy", seen)
        store = opened(tmp_path)
        for path in log.glob("*.json"):
            os.utime(path, (1_000_000_000, 1_000_000_000))
        for number in range(4):
            write(store, batch(number))
    assert found[0] == (True, [])
    assert not (log / f"{0:020}.json").exists()
    write(opened(tmp_path), batch(4))
    assert delta_numbers(tmp_path) == [*range(8)]


def test_a_log_whose_next_entry_was_removed_is_read_anew_at_the_next_try(tmp_path: Path) -> None:
    """Others clean up in no order. Seen to fail: the version before it was taken for the newest at
    each try, until the query was started anew.
    """
    store = begun(tmp_path)
    log = tmp_path / "kept" / "_delta_log"
    next_one = DeltaTable(tmp_path / "kept").version() + 1
    for number in range(3):
        table = DeltaTable(tmp_path / "kept")
        table.alter.set_table_properties({"delta.appendOnly": str(bool(number)).lower()})
    DeltaTable(tmp_path / "kept").create_checkpoint()
    (log / f"{next_one:020}.json").unlink()
    with suppress(DeltaError):
        write(store, batch(1))
    write(store, batch(1))
    assert delta_numbers(tmp_path) == [0, 1]


def test_a_table_that_is_gone_is_named(tmp_path: Path) -> None:
    store = begun(tmp_path)
    (tmp_path / "kept").rename(tmp_path / "elsewhere")
    with pytest.raises(TargetError, match="there is no Delta table any more"):
        store.memory()
    (tmp_path / "elsewhere").rename(tmp_path / "kept")
    write(store, batch(1))
    assert numbers(tmp_path) == [0, 1]


def test_a_table_without_its_memory_is_refused(tmp_path: Path) -> None:
    """A copy of what Delta's log names, say. Rows would come twice."""
    write(begun(tmp_path), batch(1))
    (memory,) = tmp_path.glob("kept/_holdfast/*/memory/*")
    memory.unlink()
    with pytest.raises(TargetError, match="says how far the table is"):
        opened(tmp_path)


def test_a_disk_that_does_not_sync_ends_the_query_and_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is there; whether it would outlive the power, nobody knows."""
    store = begun(tmp_path)

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "the disk")

    with monkeypatch.context() as patched:
        patched.setattr(delta_store, "sync_log", fails)
        with pytest.raises(OSError, match="the disk"):
            write(store, batch(1))
    assert numbers(tmp_path) == [0, 1]
    write(store, batch(1))
    write(opened(tmp_path), batch(1))
    assert numbers(tmp_path) == [0, 1]


# -- two owners --------------------------------------------------------------------------------


def before_next_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Have `act` done after a handle was read and checked, and before it is written through."""
    commit = DeltaTable.create_write_transaction

    def later(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)
        act()
        commit(*arguments, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", later)


def test_of_two_handles_that_read_the_same_one_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = begun(tmp_path)

    def replace() -> None:
        write(opened(tmp_path), batch(1))

    before_next_commit(monkeypatch, replace)
    with pytest.raises(FencedError, match="was taken over"):
        write(before, batch(1))
    assert numbers(tmp_path) == [0, 1]


def test_a_former_owner_whose_version_was_forgotten_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It slept until the commits after the one that it had read were gone from the log."""
    before = begun(tmp_path)

    def replace() -> None:
        after = opened(tmp_path)
        for number in range(2):
            write(after, batch(number, checkpoint="anew"))
        cut_log(tmp_path)

    before_next_commit(monkeypatch, replace)
    with pytest.raises(FencedError, match="was taken over"):
        write(before, batch(1))
    assert delta_numbers(tmp_path) == [0, 1]


def test_of_two_that_take_a_query_over_at_once_the_later_one_owns_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[DeltaStore] = []
    before_next_commit(monkeypatch, lambda: others.append(opened(tmp_path)))
    last = opened(tmp_path)
    with pytest.raises(FencedError):
        others[0].memory()
    for number in range(2):
        write(last, batch(number))
    assert numbers(tmp_path) == [0, 1]


def test_a_commit_of_somebody_else_in_between_is_waited_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = begun(tmp_path)
    more = pa.table({"number": [100]})
    before_next_commit(monkeypatch, lambda: write_deltalake(tmp_path / "kept", more, mode="append"))
    write(store, batch(1))
    write(store, batch(2))
    assert numbers(tmp_path) == [0, 1, 2, 3, 100]


def test_deltalake_keeps_to_what_the_protocol_stands_on(tmp_path: Path) -> None:
    """Without retries a commit is made at the next version or not at all; a handle stays stale.

    And an app transaction alone would not do: its version may go back, and nobody is asked.
    """
    begun(tmp_path)
    app = "holdfast:a query"

    def commit(table: DeltaTable, turn: int) -> None:
        once = CommitProperties(max_commit_retries=0, app_transactions=[Transaction(app, turn)])
        table.create_write_transaction([], "append", table.schema(), commit_properties=once)

    one, other = DeltaTable(tmp_path / "kept"), DeltaTable(tmp_path / "kept")
    commit(one, 50)
    for stale in (one, other):
        with pytest.raises(Exception, match="Failed to commit"):
            commit(stale, 60)
    commit(DeltaTable(tmp_path / "kept"), 40)
    assert DeltaTable(tmp_path / "kept").transaction_version(app) == 40
