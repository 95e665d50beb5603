"""The part of the Parquet store that tasks do: each writes one file of its rows, and syncs it.

`ParquetTask` is pickled to workers: it holds configuration.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import parquet

from holdfast.pipelines.sinks.readable_texts import readable

SCHEMA: Final = "name string, rows long"
_RESULT: Final = pa.schema([("name", pa.string()), ("rows", pa.int64())])


class ParquetTask:
    """Writes the rows of one task. Called by Spark in a worker, with the task's batches."""

    def __init__(self, folder: Path, schema: pa.Schema | None = None) -> None:
        """`folder` is the batch's in the staging area; it is there.

        `schema`: the columns' types in the file, in their order; without it they stay as they are,
        and may be null, as in files of Spark's own.
        """
        self._folder = folder
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row: the file's name and its rows. Nothing, if the task has no rows."""
        batches = readable(batches)
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        name = f"part-{uuid.uuid4()}.parquet"  # of this attempt alone: another one has its own
        rows = first.num_rows
        with (self._folder / name).open("xb") as file:
            schema = self._schema or optional(first.schema)
            limits = _with_limits(schema)
            with parquet.ParquetWriter(file, schema, write_statistics=limits) as writer:
                writer.write_batch(_as_told(first, schema))
                for batch in batches:
                    writer.write_batch(_as_told(batch, schema))
                    rows += batch.num_rows
            file.flush()
            os.fsync(file.fileno())
        yield pa.RecordBatch.from_pydict({"name": [name], "rows": [rows]}, schema=_RESULT)


def _as_told(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Give a batch the file's types: Spark's moments are in the session's time zone, say."""
    columns = [column.cast(kind) for column, kind in zip(batch.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_limits(schema: pa.Schema) -> list[str]:
    """Return the columns whose least and greatest values a file tells, so that readers may skip it.

    Of floating numbers Arrow tells those that are numbers. A reader to whom NaN is above them, as
    to Spark, would pass over the NaN that it looks for; so would Arrow, for what is not 1.0. What
    has parts may have such ones; and a name with a dot is a part's, too, to Arrow.
    """
    return [
        field.name
        for field in schema
        if not pa.types.is_nested(field.type)
        and not pa.types.is_floating(field.type)
        and "." not in field.name
    ]


def optional(schema: pa.Schema) -> pa.Schema:
    """Return columns that may be null at any depth.

    Spark says of a field that it is never null where its structure is there. Where that is null,
    Arrow finds a null in the field all the same, and would refuse the row.
    """
    return pa.schema([_optional(field) for field in schema])


def _optional(field: pa.Field) -> pa.Field:
    return _filled(field).with_nullable(True)


def _filled(field: pa.Field) -> pa.Field:
    """Return a field of which each part may be null, and it itself as it was: a map's key."""
    kind = field.type
    if pa.types.is_struct(kind):
        parts = [_optional(kind.field(number)) for number in range(kind.num_fields)]
        return field.with_type(pa.struct(parts))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_filled(kind.key_field), _optional(kind.item_field)))
    if pa.types.is_large_list(kind):
        return field.with_type(pa.large_list(_optional(kind.value_field)))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_optional(kind.value_field)))
    return field
