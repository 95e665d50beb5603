"""A writer of Parquet batches without Spark, and deaths of it at any step on the disk.

    python -m tests.pipelines.parquet_writer die|be_replaced|take_over FOLDER

runs it again and again, each time in a process of its own, in FOLDER/STEP, until it comes to its
end before the step at which it was to die, to be replaced, or to meet the former owner.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import types as spark

from holdfast.pipelines.due import Rows, decide
from holdfast.pipelines.fence import FencedError
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.planned import Batch, Planned, Reader
from holdfast.pipelines.sinks.parquet.store import ParquetStore
from holdfast.pipelines.sinks.parquet.task import ParquetTask
from holdfast.pipelines.sinks.store import Store
from holdfast.pipelines.sinks.target import Target
from holdfast.pipelines.sinks.written_files import Files

SCHEMA = spark.StructType([spark.StructField("number", spark.LongType())])
WIDER = spark.StructType([*SCHEMA.fields, spark.StructField("more", spark.StringType())])
P = Reader(Partition("t", 0))
# Of batch 2, which begins at 2: what was found too late, and what is its own. And how it is told.
LACKED = ((0, 1), (3, 4))
_PLACE = {"topic": "t", "partition": 0, "source": 0, "topic_id": "id"}
TOLD_LACKED = [{**_PLACE, "first": first, "next": behind} for first, behind in LACKED]


class FileStore(Store, Protocol):
    """A store whose tasks write files."""

    def task(self, batch: Batch) -> ParquetTask: ...

    def told_if_fenced(self) -> AbstractContextManager[None]: ...

    def _staging(self, batch: Batch) -> Path: ...


def opened(root: Path, schema: spark.StructType = SCHEMA, **target: Any) -> ParquetStore:
    store = ParquetStore(f"parquet://{root}", "a query", Target(**{"table": "kept", **target}))
    store.open(schema, "local[2]")
    return store


def batch(number: int, *, checkpoint: str = "c", gaps: tuple[tuple[int, int], ...] = ()) -> Batch:
    """Return a batch of two offsets. Batch 0 is empty, as the source plans it."""
    begin, end = (0, 0) if number == 0 else (2 * number - 2, 2 * number)
    return Batch(
        number=number,
        checkpoint=checkpoint,
        plan=f"{checkpoint} {number}",
        stateful=False,
        ranges=(Planned(P, begin, end, "id", gaps=gaps),),
    )


def records(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"number": numbers}, schema=pa.schema([("number", pa.int64())])
    )


def staged(store: FileStore, what: Batch, *tasks: list[pa.RecordBatch]) -> Files:
    """Run tasks as workers do, from what was pickled, and give back what Spark collects."""
    with store.told_if_fenced():
        sent = pickle.dumps(store.task(what))
        results = [each for task in tasks for each in pickle.loads(sent)(iter(task))]
    done = [row for each in results for row in each.to_pylist()]
    return Files(
        store._staging(what), tuple(row["name"] for row in done), sum(row["rows"] for row in done)
    )


def begun(root: Path, **more: Any) -> ParquetStore:
    """Return a store that has had batch 0."""
    store = opened(root, **more)
    write(store, batch(0))
    return store


def write(store: FileStore, what: Batch) -> None:
    """Do with a batch what the sink does: write what is due of it."""
    work = decide(what, store.memory(), (), store.query)
    if work.replay or work.rows is Rows.NONE:
        if not work.replay:
            store.commit(what, work, None)
        return
    due = [number for move in work.moves for number in range(move.begin, move.end)]
    tasks = [[records(number)] for number in due]
    store.commit(what, work, staged(store, what, *tasks))


CHANGES = frozenset({"os.rename", "os.mkdir", "os.rmdir", "os.remove"})
LOOKS = frozenset({"os.listdir", "os.scandir"})
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT  # of a file that is opened
# Events of our own, for what Python sees no steps of.
CHANGE, LOOK = "holdfast.change", "holdfast.look"
STOPPED = 9


def at_step(root: Path, number: int, act: Callable[[], None], *, looks: bool = True) -> None:
    """Have `act` called before the n-th step below `root` from now on.

    Without `looks` only what changes something is a step: who dies before a look leaves the same
    as who dies before the next change. A hook stays as long as its interpreter: this is for
    processes that end by it.
    """
    steps = [0]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if steps[0] < 0:
            return
        changes = event in {*CHANGES, CHANGE} or (event == "open" and arguments[2] & WRITES)
        if not changes and not (looks and event in {*LOOKS, LOOK, "open"}):
            return
        if event in {CHANGE, LOOK} or _is_below(root, arguments[0]):
            steps[0] += 1
            if steps[0] == number:
                steps[0] = -1  # what is done meanwhile counts for nothing
                act()

    sys.addaudithook(hook)


def _is_below(root: Path, path: object) -> bool:
    """Whether a step is ours. What is told by a descriptor or a bare name is: rmtree's."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    return not Path(text).is_absolute() or text.startswith(str(root))


Opened = Callable[[Path], FileStore]


def die(root: Path, number: int, opened: Opened) -> None:
    """Write two batches, and end before the n-th step."""
    at_step(root, number, lambda: os._exit(STOPPED), looks=False)
    store = opened(root)
    for each in range(3):
        write(store, batch(each))


def be_replaced(root: Path, number: int, opened: Opened) -> None:
    """Write two batches; before the n-th step another driver takes over, and writes the first."""

    def successor() -> None:
        store = opened(root)
        for each in range(2):
            write(store, batch(each, checkpoint="anew"))

    store = opened(root)
    write(store, batch(0))
    at_step(root, number, successor)
    try:
        for each in range(1, 3):
            write(store, batch(each))
    except FencedError:
        os._exit(STOPPED)


def take_over(root: Path, number: int, opened: Opened) -> None:
    """Take a query over; before the n-th step its owner commits once more, if it still can."""
    before = opened(root)
    write(before, batch(0))

    def owner() -> None:
        with suppress(FencedError):
            write(before, batch(1))
        left[0] = False

    left = [True]
    at_step(root, number, owner)
    after = opened(root)
    for each in range(3):
        write(after, batch(each, checkpoint="anew"))
    if not left[0]:
        os._exit(STOPPED)


def main(what: str, folder: Path, opened: Opened) -> None:
    records(0).to_pylist()  # imports what Arrow wants for it, once
    for number in count(1):
        root = folder / f"{number:04}"
        root.mkdir()
        child = os.fork()
        if not child:
            todo = {"die": die, "be_replaced": be_replaced, "take_over": take_over}[what]
            todo(root, number, opened)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in {0, STOPPED}, f"step {number}: exit status {code}"
        if code == 0:
            return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), opened)
