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

        `schema`: the columns' types in the file, in their order; without it they stay as they are.
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
            with parquet.ParquetWriter(file, self._schema or first.schema) as writer:
                writer.write_batch(self._as_told(first))
                for batch in batches:
                    writer.write_batch(self._as_told(batch))
                    rows += batch.num_rows
            file.flush()
            os.fsync(file.fileno())
        yield pa.RecordBatch.from_pydict({"name": [name], "rows": [rows]}, schema=_RESULT)

    def _as_told(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Give a batch the file's types: Spark's moments are in the session's time zone, say."""
        if self._schema is None:
            return batch
        columns = [
            column.cast(kind)
            for column, kind in zip(batch.columns, self._schema.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
