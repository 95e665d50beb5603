"""The part of the Redis store that tasks do: each writes the rows that it is given, by scripts.

Spark may run a task twice, and one attempt long after the other: both write the same rows, and who
comes after its batch's commit writes nothing. What a script refuses is told to the driver.

`WriteTask` is pickled to workers: it holds configuration, and a password only by its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.pipelines.sinks.key_value.address import connect
from holdfast.pipelines.sinks.key_value.scripts import WRITE, Call, Told, run
from holdfast.pipelines.sinks.key_value.values import (
    marker_name,
    query_name,
    row_names,
    texts,
    versions,
)
from holdfast.pipelines.sinks.readable_texts import readable
from holdfast.pipelines.sinks.target import Target, TargetError

SCHEMA: Final = "rows long, refused string, key binary"
_RESULT: Final = pa.schema([("rows", pa.int64()), ("refused", pa.string()), ("key", pa.binary())])
YEAR_MAX: Final = 9999
DAYS: Final = -719_162, 2_932_896  # the first and the last one of these years, since 1970
MICROSECONDS: Final = -62_135_596_800_000_000, 253_402_300_799_999_999
CALLS_MAX: Final = 500
BYTES_MAX: Final = 4 << 20
"""Of scripts that are sent together. The server syncs its log once for what it reads at once."""


class WriteTask:
    """Writes the rows of one task. Called by Spark in a worker, with the task's batches."""

    def __init__(
        self,
        url: str,
        *,
        query: str,
        epoch: int,
        commit: int,
        target: Target,
        calls_max: int = CALLS_MAX,
    ) -> None:
        """`commit` is the last one that the query remembers: rows are those of the next."""
        self._url = url
        self._query = query_name(query)
        self._guard = (str(epoch), str(commit))
        self._target = target
        self._calls_max = calls_max

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row: how many rows are dealt with, and what refused the next one, if any."""
        batches = readable(batches)
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        rows, refused, key = 0, None, None
        with closing(connect(self._url)) as client:
            for calls in self._grouped(first, batches):
                answers = [Told(answer.decode()) for answer in run(client, WRITE, calls)]
                for (names, _), told in zip(calls, answers, strict=True):
                    if told not in {Told.DONE, Told.OLDER}:
                        refused, key = str(told), names[1]
                        break
                    rows += 1
                if refused is not None:
                    break
        yield pa.RecordBatch.from_pydict(
            {"rows": [rows], "refused": [refused], "key": [key]}, schema=_RESULT
        )

    def _grouped(
        self, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]
    ) -> Iterator[list[Call]]:
        """Yield what is sent together."""
        calls: list[Call] = []
        size = 0
        for call in (call for batch in _chained(first, others) for call in self._calls(batch)):
            length = sum(len(value) for value in call[1])
            if calls and (len(calls) == self._calls_max or size + length > BYTES_MAX):
                yield calls
                calls, size = [], 0
            calls.append(call)
            size += length
        yield calls

    def _calls(self, batch: pa.RecordBatch) -> Iterator[Call]:
        """Yield the script's keys and arguments for each row."""
        target, rows = self._target, range(batch.num_rows)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            _refuse_other_years(name, column)
        names = row_names(target.table, [batch.column(name) for name in target.keys])
        ranks = ["" for _ in rows]
        if target.version is not None:
            ranks = versions(batch.column(target.version))
        gone: Sequence[Any] = [False for _ in rows]
        if target.deleted is not None:
            gone = batch.column(target.deleted).to_pylist()
        fields = [n for n in batch.schema.names if n not in {*target.keys, target.deleted}]
        columns = [texts(batch.column(name)) for name in fields]
        for row in rows:
            keys = (self._query, names[row], marker_name(names[row]))
            what = "delete" if gone[row] else "put"
            values = [] if gone[row] else [column[row] for column in columns]
            yield keys, (*self._guard, ranks[row], what, *_arguments(fields, values))


def _refuse_other_years(name: str, column: pa.Array) -> None:
    """TargetError: a date or a time has a year with more than four digits, or before the first."""
    if not (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)):
        return
    # By their numbers: of a year Arrow tells 16 bits.
    if pa.types.is_date(column.type):
        numbers, first, last = column.cast(pa.date32()).cast(pa.int32()), *DAYS
    else:
        numbers, first, last = column.cast(pa.timestamp("us")).cast(pa.int64()), *MICROSECONDS
    found = pc.min_max(numbers).as_py()
    if found["min"] is not None and not (found["min"] >= first and found["max"] <= last):
        raise TargetError(
            f"column {name!r}: it has a year before 1 or after {YEAR_MAX}, of which Redis has no "
            "texts: leave such rows out of the query, or make a number of the column (unix_date, "
            "unix_micros)"
        )


def _chained(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


def _arguments(fields: Sequence[str], values: Sequence[bytes | None]) -> list[Any]:
    """Return how many fields and values there are, these, and the names of null ones."""
    pairs: list[Any] = []
    null: list[Any] = []
    # For a row that is deleted there are no values.
    for name, value in zip(fields, values, strict=False):
        if value is None:
            null.append(name.encode())
        else:
            pairs += (name.encode(), value)
    return [str(len(pairs)), *pairs, *null]
