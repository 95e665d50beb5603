"""The part of PostgreSQL's store that tasks do: each copies its rows into the staging table.

What a task has copied counts only if Spark says so: it gives back the number of its attempt and how
many rows there are, and the driver takes in what the attempts that Spark chose have staged. An
attempt that died, came twice or belongs to a driver that was replaced leaves rows that nobody asks
for; the next commit sweeps them.

`CopyTask` is pickled to workers: it holds configuration, and a password only by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import sql
from pyarrow import csv

from holdfast.pipelines.sinks.database_url import connection_arguments
from holdfast.pipelines.sinks.readable_texts import readable
from holdfast.pipelines.sinks.target import TargetError

SCHEMA: Final = "attempt long, rows long"
_RESULT: Final = pa.schema([("attempt", pa.int64()), ("rows", pa.int64())])
ATTEMPT_SETTING: Final = "holdfast.attempt"
"""Of a task's session: the staging table's default for the column that tells whose a row is."""

_CSV: Final = csv.WriteOptions(include_header=False, quoting_style="needed")
# Written by the tasks of one batch at once: what one of them waits for is its own row.
_BEGIN: Final = (
    "INSERT INTO {attempts} (query, checkpoint, batch, task) VALUES (%s, %s, %s, %s) RETURNING id"
)


class CopyTask:
    """Copies the rows of one task. Called by Spark in a worker, with the task's batches."""

    def __init__(
        self,
        url: str,
        *,
        staging: Sequence[str],
        attempts: Sequence[str],
        columns: Sequence[str],
        batch: tuple[str, str, int],
    ) -> None:
        """`url` is the store's; `staging`, `attempts` are names, with a schema or without.

        `batch` is the query, the checkpoint's id and the batch's number.
        """
        self._url = url
        self._staging = tuple(staging)
        self._attempts = tuple(attempts)
        self._columns = tuple(columns)
        self._batch = batch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row: the attempt's number and its rows. Nothing, if the task has no rows."""
        batches = readable(batches, zero_bytes=False)
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        with psycopg.connect(**connection_arguments(self._url)) as connection:
            attempt = self._begin(connection)
            with _told_if_not_encoded(connection, first.schema):
                rows = self._copy(connection, first, batches)
        # Committed: only now may Spark hear of it.
        yield pa.RecordBatch.from_pydict({"attempt": [attempt], "rows": [rows]}, schema=_RESULT)

    def _begin(self, connection: psycopg.Connection[Any]) -> int:
        begin = sql.SQL(_BEGIN).format(attempts=sql.Identifier(*self._attempts))
        row = connection.execute(begin, (*self._batch, _task())).fetchone()
        assert row is not None, "INSERT ... RETURNING gives a row"
        number = int(row[0])
        connection.execute("SELECT set_config(%s, %s, true)", (ATTEMPT_SETTING, str(number)))
        return number

    def _copy(
        self,
        connection: psycopg.Connection[Any],
        first: pa.RecordBatch,
        others: Iterator[pa.RecordBatch],
    ) -> int:
        statement = sql.SQL("COPY {staging} ({columns}) FROM STDIN (FORMAT csv)").format(
            staging=sql.Identifier(*self._staging),
            columns=sql.SQL(", ").join(map(sql.Identifier, self._columns)),
        )
        rows: int = first.num_rows
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(to_csv(first))
            for batch in others:
                copy.write(to_csv(batch))
                rows += batch.num_rows
        return rows


@contextmanager
def _told_if_not_encoded(connection: psycopg.Connection[Any], schema: pa.Schema) -> Iterator[None]:
    """Say which texts the database's own encoding has no place for. TargetError."""
    try:
        yield
    except psycopg.errors.UntranslatableCharacter as error:
        said = str(error.diag.message_primary)
        # "character with byte sequence 0xe2 0x82 0xac in encoding ..."
        found = bytes(int(each, 16) for each in re.findall(r"\b0x([0-9a-f]{2})\b", said))
        texts = [field.name for field in schema if _is_text(field.type)]
        encoding = connection.info.parameter_status("server_encoding")
        raise TargetError(
            f"a text of {' or '.join(map(repr, texts))} has {found.decode(errors='replace')!r}, "
            f"and the database's encoding, {encoding}, has no such character ({said}). Use a "
            "database of the encoding UTF8; or keep the bytes; or leave such characters out in "
            "the query"
        ) from error


def to_csv(batch: pa.RecordBatch) -> bytes:
    """Return a batch as PostgreSQL reads it: null is nothing, and an empty text is quoted."""
    columns = [_readable(column) for column in batch.columns]
    written = BytesIO()
    csv.write_csv(pa.RecordBatch.from_arrays(columns, batch.schema.names), written, _CSV)
    return written.getvalue()


def _readable(column: pa.Array) -> pa.Array:
    """Bytes are written in hexadecimal digits; and what Arrow writes no text of, as its text."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        texts = [None if each is None else f"\\x{each.hex()}" for each in column.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_decimal(column.type):
        return column.cast(pa.string())
    return column


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _task() -> str:
    """Name the task for whoever looks at the table: its partition, and which attempt this is."""
    from pyspark import TaskContext  # noqa: PLC0415 - only a worker has one

    context = TaskContext.get()
    if context is None:
        return "outside of a task"
    return f"{context.partitionId()}.{context.attemptNumber()}"
