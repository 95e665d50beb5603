"""Goal: a record that is no text ends a query with the column's name, and before it is written.

Method: batches with bytes that are not UTF-8, at any depth, given to each kind of task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.pipelines.sinks.key_value.task import WriteTask
from holdfast.pipelines.sinks.parquet.task import ParquetTask
from holdfast.pipelines.sinks.postgresql_copy import CopyTask
from holdfast.pipelines.sinks.readable_texts import readable
from holdfast.pipelines.sinks.target import Mode, Target, TargetError

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def text(value: bytes) -> pa.Array:
    """A column as Spark gives it: nobody has looked at the bytes."""
    size = pa.array([0, len(value)], pa.int32()).buffers()[1]
    return pa.StringArray.from_buffers(1, size, pa.py_buffer(value))


def batch(column: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([7]), column], ["number", "body"])


FINE = batch(text("é".encode()))
BAD = batch(text(b"\xff\xfe"))
NESTED = batch(pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), text(b"a\xff")))


@pytest.mark.parametrize("bad", [BAD, NESTED])
def test_what_is_no_text_is_refused_by_name(bad: pa.RecordBatch) -> None:
    assert list(readable([FINE])) == [FINE]
    with pytest.raises(TargetError, match=r"column 'body': a text is not UTF-8.*make_valid_utf8"):
        list(readable([FINE, bad]))


def test_bytes_are_bytes_and_a_zero_is_refused_where_there_is_none() -> None:
    raw = batch(pa.array([b"\xff\0"], pa.binary()))
    zero = batch(text(b"a\0b"))
    assert list(readable([raw], zero_bytes=False)) == [raw]
    assert list(readable([zero])) == [zero]
    with pytest.raises(TargetError, match="column 'body': a text has a zero byte"):
        list(readable([FINE, zero], zero_bytes=False))


def tasks(folder: Path) -> list[Task]:
    nobody = "postgresql://nobody@127.0.0.1:1/none"
    target = Target(table="t", mode=Mode.UPSERT, keys=("number",))
    return [
        ParquetTask(folder),
        CopyTask(nobody, staging=("s",), attempts=("a",), columns=("c",), batch=("q", "c", 1)),
        WriteTask("redis://127.0.0.1:1/0", query="q", epoch=1, commit=1, target=target),
    ]


@pytest.mark.parametrize("number", range(3))
def test_each_kind_of_task_looks_before_it_connects(tmp_path: Path, number: int) -> None:
    with pytest.raises(TargetError, match="column 'body'"):
        list(tasks(tmp_path)[number](iter([BAD])))
