"""Goal: any reader of Parquet sees each batch whole or not at all, and once, wherever its writer
dies and whoever writes beside it.

Method: real files; a writer that is killed before each of its steps on the disk in turn, by a hook
of the interpreter; a former owner that goes on at any of these steps after another has taken over.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import dataset, parquet
from pyspark.sql import types as spark
from tests.pipelines.parquet_writer import (
    LACKED,
    SCHEMA,
    TOLD_LACKED,
    WIDER,
    P,
    batch,
    begun,
    opened,
    records,
    staged,
    write,
)

from holdfast.pipelines.due import Due, Rows, Work, decide
from holdfast.pipelines.fence import FencedError
from holdfast.pipelines.offsets import RECORD
from holdfast.pipelines.sinks.parquet.store import ParquetStore
from holdfast.pipelines.sinks.store import StagingError
from holdfast.pipelines.sinks.target import Mode, Target, TargetError
from holdfast.pipelines.sinks.written_files import Files

ROOT = Path(__file__).parent.parent.parent


def numbers(root: Path) -> list[int]:
    """Read the folder as somebody who knows nothing of us does."""
    files = dataset.dataset(root, format="parquet", exclude_invalid_files=False).files
    found = [parquet.read_table(file)["number"].to_pylist() for file in files]
    return sorted(number for each in found for number in each)


def test_a_batch_is_there_when_it_is_committed_and_not_before(tmp_path: Path) -> None:
    store = begun(tmp_path)
    first = batch(1)
    files = staged(store, first, [records(0), records()], [], [records(1)])
    assert (files.count, len(files.names)) == (2, 2)
    assert numbers(tmp_path) == []
    store.commit(first, decide(first, store.memory(), (), "q"), files)
    assert numbers(tmp_path) == [0, 1]
    _, manifest = sorted(tmp_path.glob("kept/a%20query/c/*/_manifest.json"))
    told = json.loads(manifest.read_text())
    assert (told["rows"], told["epoch"], told["files"]) == (2, store._epoch, list(files.names))
    assert told["ranges"] == [
        {"topic": "t", "partition": 0, "source": 0, "topic_id": "id", "begin": 0, "end": 2}
    ]


def test_an_owner_of_before_the_folder_was_restored_commits_nothing(tmp_path: Path) -> None:
    """Goal: no batch is there twice. Seen to fail: both drivers had the same epoch, so the one of
    before committed batch 2, and so did the other one.
    """
    begun(tmp_path)
    shutil.copytree(tmp_path / "kept", tmp_path / "copy")
    before = opened(tmp_path)
    write(before, batch(1))
    shutil.rmtree(tmp_path / "kept")
    (tmp_path / "copy").rename(tmp_path / "kept")
    after = opened(tmp_path)
    with pytest.raises(FencedError):
        write(before, batch(2))
    write(after, batch(1))
    write(after, batch(2))
    assert numbers(tmp_path / "kept") == [0, 1, 2, 3]


def test_what_the_log_lacked_stands_in_the_manifest(tmp_path: Path) -> None:
    """Also what was found too late, when the batch before was planned."""
    store = begun(tmp_path)
    write(store, batch(1))
    write(store, batch(2, gaps=LACKED))
    told = json.loads(next(tmp_path.glob("kept/a%20query/c/*2-*/_manifest.json")).read_text())
    assert told["gaps"] == TOLD_LACKED


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
    assert not list(tmp_path.glob("kept/_holdfast/*/*/*"))


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


def test_other_columns_are_refused_unless_files_may_differ(tmp_path: Path) -> None:
    """Seen to fail: who was refused had fenced the writer whose columns are right."""
    writer = begun(tmp_path)
    with pytest.raises(TargetError, match="other columns"):
        opened(tmp_path, WIDER)
    write(writer, batch(1))
    store = opened(tmp_path, WIDER, adds_columns=True)
    more = batch(2)
    store.commit(more, decide(more, store.memory(), (), "q"), None)
    for name, kind in (("more", spark.LongType()), ("Number", spark.LongType())):
        odd = spark.StructType([spark.StructField(name, kind)])
        with pytest.raises(TargetError, match=f"and the query has '{name}', long"):
            opened(tmp_path, odd, adds_columns=True)
    # Of files that the last one is not like, too; and what the source notes is no other column.
    store = opened(tmp_path, adds_columns=True)
    more = batch(3)
    store.commit(more, decide(more, store.memory(), (), "q"), None)
    marked = spark.StructField("more", spark.LongType(), metadata={RECORD: "offset"})
    with pytest.raises(TargetError, match="a column 'more' of the type string"):
        opened(tmp_path, spark.StructType([marked]), adds_columns=True)
    noted = spark.StructField("number", spark.LongType(), metadata={RECORD: "offset"})
    opened(tmp_path, spark.StructType([noted]))
    twice = spark.StructType([*SCHEMA.fields, spark.StructField("NUMBER", spark.LongType())])
    with pytest.raises(TargetError, match="'NUMBER' is there twice"):
        opened(tmp_path, twice)
    with pytest.raises(TargetError, match="keys: a Parquet table"):
        opened(tmp_path, keys=("number",))


def of_query(root: Path, query: str, *fields: spark.StructField) -> ParquetStore:
    """Open another query's store in the same folder."""
    store = ParquetStore(f"parquet://{root}", query, Target(table="kept", adds_columns=True))
    store.open(spark.StructType(list(fields)), "local[2]")
    return store


def test_queries_that_share_a_folder_have_one_type_of_a_name(tmp_path: Path) -> None:
    """Seen to fail: both wrote, and who read the folder found an error."""
    number, text = (
        spark.StructField("number", kind) for kind in (spark.LongType(), spark.StringType())
    )
    of_query(tmp_path, "b", number, spark.StructField("its own", spark.DateType()))
    with pytest.raises(TargetError, match=r"'b' writes here, too, with a column 'number' .*rm /"):
        of_query(tmp_path, "c", text)
    of_query(tmp_path, "d", number)
    of_query(tmp_path, "c", number)
    writer = begun(tmp_path)  # of a table from before queries put down what they write
    write(writer, batch(1))
    for declared in (tmp_path / "kept" / "_holdfast" / "_columns").iterdir():
        declared.unlink()
    (tmp_path / "kept" / "odd" / "c" / "2026-11").mkdir(parents=True)  # somebody else's
    with pytest.raises(TargetError, match="query 'a query' writes here, too"):
        of_query(tmp_path, "c", text)
    of_query(tmp_path, "c", number)
    assert numbers(tmp_path) == [0, 1]


@pytest.mark.parametrize(
    "kind",
    [
        spark.DayTimeIntervalType(),
        spark.ArrayType(spark.NullType()),
        spark.MapType(spark.StringType(), spark.YearMonthIntervalType()),
        spark.StructType([spark.StructField("a", spark.VariantType())]),
        spark.StructType([spark.StructField("a", spark.StructType([]))]),
    ],
    ids=str,
)
def test_types_that_readers_find_as_others_are_refused(
    tmp_path: Path, kind: spark.DataType
) -> None:
    with pytest.raises(TargetError, match=r"column 'odd' has the type .* cast it in the query"):
        opened(tmp_path, spark.StructType([spark.StructField("odd", kind)]))
    assert not (tmp_path / "kept" / "_holdfast" / "_columns").exists()


@pytest.mark.parametrize("url", ["parquet://bucket/folder", "s3://bucket/folder", "parquet:"])
def test_what_has_no_rename_is_refused(url: str) -> None:
    with pytest.raises(TargetError, match="use parquet:///FOLDER"):
        ParquetStore(url, "q", Target(table="t"))


def test_an_upsert_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="only append"):
        opened(tmp_path, mode=Mode.UPSERT, keys=("number",))


# -- deaths, and former owners -----------------------------------------------------------------


def ran(what: str, folder: Path) -> list[Path]:
    """Run the writer once for each of its steps; return what each of them has left."""
    program = [sys.executable, "-m", "tests.pipelines.parquet_writer", what, str(folder)]
    done = subprocess.run(program, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return sorted(folder.iterdir())


@pytest.mark.slow
@pytest.mark.process
def test_a_writer_that_dies_at_any_step_leaves_each_batch_whole_or_not_at_all(
    tmp_path: Path,
) -> None:
    left = ran("die", tmp_path)
    assert len(left) > 20, "it came to its end too soon to have died anywhere"
    for root in left:
        assert numbers(root) in ([], [0, 1], [0, 1, 2, 3]), f"step {root.name}"
        successor = opened(root)
        for each in range(4):
            write(successor, batch(each))
        assert numbers(root) == list(range(6)), f"step {root.name}"


@pytest.mark.slow
@pytest.mark.process
def test_a_driver_that_is_replaced_at_any_step_writes_nothing_any_more(tmp_path: Path) -> None:
    """The other one has another checkpoint: no name of a folder keeps the two apart."""
    left = ran("be_replaced", tmp_path)
    assert len(left) > 20, "it came to its end too soon to have been replaced anywhere"
    for root in left:
        assert numbers(root) in ([0, 1], [0, 1, 2, 3]), f"step {root.name}"


@pytest.mark.slow
@pytest.mark.process
def test_what_a_former_owner_commits_while_it_is_replaced_is_known(tmp_path: Path) -> None:
    left = ran("take_over", tmp_path)
    assert len(left) > 20, "it came to its end too soon to have met anybody"
    for root in left:
        assert numbers(root) == [0, 1, 2, 3], f"step {root.name}"


@pytest.mark.parametrize("name", ["_kept", ".kept", "kept/_raw", "kept/.raw"])
def test_a_name_that_readers_pass_over_is_refused(tmp_path: Path, name: str) -> None:
    """Seen to fail: Spark, Arrow and pandas read no row of such a table, and say nothing."""
    with pytest.raises(TargetError, match=r"table: .* pass over when they read"):
        ParquetStore(f"parquet://{tmp_path}", "q", Target(table=name))
    with pytest.raises(TargetError, match=r"query: .* pass over when they read"):
        ParquetStore(f"parquet://{tmp_path}", name.rpartition("/")[2], Target(table="kept"))
    assert ParquetStore(f"parquet://{tmp_path}", "q_.", Target(table="a_.b/c_.")).query == "q_."
