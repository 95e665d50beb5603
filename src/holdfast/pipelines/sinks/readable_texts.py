"""Texts that a table's readers can read: what is none is refused by name, in the task that has it.

Spark takes any bytes for a text (`CAST(value AS STRING)`) and never looks. A database refuses them
in the middle of a batch, without a word of the column; a file passes them on to whoever reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.pipelines.sinks.target import TargetError


def readable(
    batches: Iterable[pa.RecordBatch], *, zero_bytes: bool = True
) -> Iterator[pa.RecordBatch]:
    """Pass a task's batches on. TargetError: a text is not UTF-8, or has a zero byte.

    `zero_bytes`: whether the table takes those; PostgreSQL has no such texts.
    """
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if pa.types.is_primitive(column.type):
                continue
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                raise TargetError(
                    f"column {name!r}: a text is not UTF-8 ({error}). Keep the bytes, or use "
                    f"make_valid_utf8({name}) or a filter by is_valid_utf8({name})"
                ) from None
            if not zero_bytes and _has_zero_bytes(column):
                raise TargetError(
                    f"column {name!r}: a text has a zero byte, which PostgreSQL can't hold. Keep "
                    f"the bytes, or leave it out: replace({name}, char(0))"
                )
        yield batch


def _has_zero_bytes(column: pa.Array) -> bool:
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return is_text and bool(pc.any(pc.match_substring(column, "\0")).as_py())
