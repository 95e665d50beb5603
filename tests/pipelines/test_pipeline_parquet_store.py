"""Goal: any reader of Parquet sees each batch whole or not at all, and once, wherever its writer
dies and whoever writes beside it.

Method: real files; a writer that is killed before each of its steps on the disk in turn, by a hook
of the interpreter; a former owner that goes on at any of these steps after another has taken over.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import dataset, parquet
from pyspark.sql import types as spark

from holdfast.pipelines.due import Due, Rows, Work, decide
from holdfast.pipelines.fence import FencedError
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.planned import Batch, Planned, Reader
from holdfast.pipelines.sinks.parquet_store import Files, ParquetStore
from holdfast.pipelines.sinks.sql_store import StagingError
from holdfast.pipelines.sinks.target import Mode, Target, TargetError

SCHEMA = spark.StructType([spark.StructField("number", spark.LongType())])
WIDER = spark.StructType([*SCHEMA.fields, spark.StructField("more", spark.StringType())])
P = Reader(Partition("t", 0))
KILLED = 9


def opened(root: Path, schema: spark.StructType = SCHEMA, **target: Any) -> ParquetStore:
    store = ParquetStore(f"parquet://{root}", "a query", Target(**{"table": "kept", **target}))
    store.open(schema, "local[2]")
    return store


def batch(number: int, *, checkpoint: str = "c") -> Batch:
    """Return a batch of two offsets. Batch 0 is empty, as the source plans it."""
    begin, end = (0, 0) if number == 0 else (2 * number - 2, 2 * number)
    return Batch(
        number=number,
        checkpoint=checkpoint,
        plan=f"{checkpoint} {number}",
        stateful=False,
        ranges=(Planned(P, begin, end, "id"),),
    )


def records(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"number": numbers}, schema=pa.schema([("number", pa.int64())])
    )


def staged(store: ParquetStore, what: Batch, *tasks: list[pa.RecordBatch]) -> Files:
    """Run tasks as workers do, from what was pickled, and give back what Spark collects."""
    sent = pickle.dumps(store.task(what))
    done = [
        row for task in tasks for each in pickle.loads(sent)(iter(task)) for row in each.to_pylist()
    ]
    return Files(
        store._staging(what), tuple(row["name"] for row in done), sum(row["rows"] for row in done)
    )


def begun(root: Path, **more: Any) -> ParquetStore:
    """Return a store that has had batch 0."""
    store = opened(root, **more)
    write(store, batch(0))
    return store


def write(store: ParquetStore, what: Batch) -> None:
    """Do with a batch what the sink does: write what is due of it."""
    work = decide(what, store.memory(), (), store.query)
    if work.replay or work.rows is Rows.NONE:
        if not work.replay:
            store.commit(what, work, None)
        return
    due = [number for move in work.moves for number in range(move.begin, move.end)]
    tasks = [[records(number)] for number in due]
    store.commit(what, work, staged(store, what, *tasks))


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
    assert (told["rows"], told["epoch"], told["files"]) == (2, 1, list(files.names))
    assert told["ranges"] == [
        {"topic": "t", "partition": 0, "source": 0, "topic_id": "id", "begin": 0, "end": 2}
    ]


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
    begun(tmp_path)
    with pytest.raises(TargetError, match="other columns"):
        opened(tmp_path, WIDER)
    opened(tmp_path, WIDER, adds_columns=True)


@pytest.mark.parametrize("url", ["parquet://bucket/folder", "s3://bucket/folder", "parquet:"])
def test_what_has_no_rename_is_refused(url: str) -> None:
    with pytest.raises(TargetError, match="use parquet:///FOLDER"):
        ParquetStore(url, "q", Target(table="t"))


def test_an_upsert_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="only append"):
        opened(tmp_path, mode=Mode.UPSERT, keys=("number",))


# -- deaths, and former owners -----------------------------------------------------------------

_STEPS = ("os.rename", "os.mkdir", "open", "os.rmdir", "os.remove", "os.listdir", "os.scandir")


def at_step(number: int, act: Any) -> list[int]:
    """Have `act` called before the n-th step on the disk from now on. Returns the steps so far.

    A hook stays as long as its interpreter: this is for processes that end by it.
    """
    steps = [0]

    def hook(event: str, _arguments: tuple[object, ...]) -> None:
        if event in _STEPS and steps[0] >= 0:
            steps[0] += 1
            if steps[0] == number:
                steps[0] = -1  # what is done meanwhile counts for nothing
                act()

    sys.addaudithook(hook)
    return steps


def die(root: Path, number: int) -> None:
    """Write two batches, and end before the n-th step. Runs in a process of its own."""
    at_step(number, lambda: os._exit(KILLED))
    store = opened(root)
    for each in range(3):
        write(store, batch(each))


def be_replaced(root: Path, number: int) -> None:
    """Write two batches; before the n-th step another driver takes over and writes them."""

    def successor() -> None:
        store = opened(root)
        write(store, batch(0, checkpoint="anew"))
        write(store, batch(1, checkpoint="anew"))

    store = begun(root)
    at_step(number, successor)
    try:
        write(store, batch(1))
        write(store, batch(2))
    except FencedError:
        os._exit(KILLED)


def in_child(what: str, root: Path, number: int) -> bool:
    """Run one of the two above. Returns whether it was killed, or fenced, on its way."""
    code = f"from {__name__} import Path, {what}; {what}(Path({str(root)!r}), {number})"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode in {0, KILLED}, done.stderr
    return done.returncode == KILLED


@pytest.mark.slow
def test_a_writer_that_dies_at_any_step_leaves_each_batch_whole_or_not_at_all(
    tmp_path: Path,
) -> None:
    number, died = 0, True
    while died:
        number += 3
        root = tmp_path / str(number)
        root.mkdir()
        died = in_child("die", root, number)
        assert numbers(root) in ([], [0, 1], [0, 1, 2, 3]), f"step {number}"
        successor = opened(root)
        for each in range(4):
            write(successor, batch(each))
        assert numbers(root) == list(range(6)), f"step {number}"
    assert number > 30, "it came to its end too soon to have died anywhere"


@pytest.mark.slow
def test_a_driver_that_is_replaced_at_any_step_writes_nothing_any_more(tmp_path: Path) -> None:
    """The other one has another checkpoint: no name of a folder keeps the two apart."""
    number, replaced = 0, True
    while replaced:
        number += 3
        root = tmp_path / str(number)
        root.mkdir()
        replaced = in_child("be_replaced", root, number)
        assert numbers(root) in ([0, 1], [0, 1, 2, 3]), f"step {number}"
    assert number > 20, "it came to its end too soon to have been replaced anywhere"
