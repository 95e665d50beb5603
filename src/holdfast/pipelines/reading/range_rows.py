"""Batches of one partition's range into Arrow: where the range stands, and its rows.

Owns the position. It moves behind each batch, whether that gave rows or not: so holes, markers and
aborted records end no range early and none never.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.reading.access import HEADER_TYPE, Access, ReadError
from holdfast.pipelines.reading.fetched_batches import AbortedTransactions, Batch, body_of
from holdfast.wire.compression import inflated_bytes_max
from holdfast.wire.errors import InflatedError, WireError
from holdfast.wire.messages.fetch import AbortedTransaction
from holdfast.wire.walker.python_columns import BEHIND
from holdfast.wire.walker.record_columns import (
    DECODER,
    NOT_DECODED,
    PROBLEMS,
    Columns,
    Decoder,
    Filled,
    Numbers,
    Rooms,
)

ROWS_MAX: Final = 20_000
COLUMN_BYTES_MAX: Final = 8 * 1024 * 1024
_CREATED: Final = 0  # the numbers of Kafka's TimestampType, which the JVM connector shows
_APPENDED: Final = 1


class RangeRows:
    """Offsets [position, end) of one partition, read batch by batch."""

    def __init__(
        self,
        partition: Partition,
        start: int,
        end: int,
        access: Access,
        decoder: Decoder = DECODER,
    ) -> None:
        self.partition = partition
        self.position = start
        self.end = end
        self._access = access
        self._inflated_max = inflated_bytes_max(access.fetch_bytes)
        self._stamped = _CREATED
        rows_max = min(ROWS_MAX, max(end - start, 1))
        self._columns = Columns(
            pa.allocate_buffer,
            rows_max=rows_max,
            bytes_max=COLUMN_BYTES_MAX,
            headers=access.headers,
            decoder=decoder,
        )
        self._topics = pa.repeat(pa.scalar(partition.topic, pa.string()), rows_max)
        self._numbers = pa.repeat(pa.scalar(partition.number, pa.int32()), rows_max)

    def take(
        self, batches: list[Batch], aborted: list[AbortedTransaction] | None
    ) -> Iterator[pa.RecordBatch]:
        """Take an answer's batches; yield rows whenever the columns are full.

        ReadError: a batch is damaged, and which one.
        """
        told = AbortedTransactions(aborted)
        for batch in batches:
            header = batch.header
            if self.position >= self.end or header.base_offset >= self.end:
                self.position = self.end
                break
            try:
                if header.is_control:
                    told.covers(header)
                    told.end(batch, self._inflated_max)
                elif not told.covers(header) and header.last_offset >= self.position:
                    yield from self._take(batch)
            except InflatedError as error:
                raise self._damaged(batch, f"{error} (maxBytesPerFetch bounds it)") from error
            except WireError as error:
                raise self._damaged(batch, str(error)) from error
            self.position = max(self.position, min(header.next_offset, self.end))

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are left, if there are any."""
        if self._columns.rows:
            rooms, filled = self._columns.take()
            yield self._to_arrow(rooms, filled)

    def _take(self, batch: Batch) -> Iterator[pa.RecordBatch]:
        header = batch.header
        stamped = _APPENDED if header.is_log_append_time else _CREATED
        if stamped != self._stamped:  # one kind a column: a topic's setting changes rarely
            yield from self.rest()
            self._stamped = stamped
        body = body_of(batch, self._inflated_max)
        numbers = Numbers(
            header.record_count, header.last_offset_delta, header.base_offset,
            header.base_timestamp, stamped, header.max_timestamp, self.position, self.end,
        )  # fmt: skip
        decoded = NOT_DECODED
        while True:
            decoded = self._columns.add(body, numbers, decoded)
            if decoded.problem:
                raise WireError(f"record number {decoded.records}: {PROBLEMS[decoded.problem]}")
            if decoded.stopped <= BEHIND:
                return
            yield from self.rest()

    def _damaged(self, batch: Batch, why: str) -> ReadError:
        return ReadError(f"{self.partition}: the batch at offset {batch.header.base_offset}: {why}")

    def _to_arrow(self, rooms: Rooms, filled: Filled) -> pa.RecordBatch:
        rows = filled.rows
        stamped = pa.repeat(pa.scalar(self._stamped, pa.int32()), rows)
        columns = [
            _bytes(rows, rooms.key_ends, rooms.key_valid, rooms.keys, filled.key_nulls),
            _bytes(rows, rooms.value_ends, rooms.value_valid, rooms.values, filled.value_nulls),
            self._topics.slice(0, rows),
            self._numbers.slice(0, rows),
            pa.Array.from_buffers(pa.int64(), rows, [None, rooms.offsets]),
            pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), rows, [None, rooms.timestamps]),
            stamped,
        ]
        if self._access.headers:
            columns.append(_lists(rooms, filled))
        return pa.RecordBatch.from_arrays(columns, schema=self._access.schema)


def _bytes(rows: int, ends: Any, valid: Any, data: Any, nulls: int, kind: Any = None) -> pa.Array:
    buffers = [valid if nulls else None, ends, data]
    return pa.Array.from_buffers(kind or pa.binary(), rows, buffers, nulls)


def _lists(rooms: Rooms, filled: Filled) -> pa.Array:
    """Return the column of headers: a list each, null where a record has none."""
    count = filled.headers
    names = _bytes(count, rooms.header_key_ends, None, rooms.header_keys, 0, pa.string())
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:  # not UTF-8: as Java reads such names
        texts = [name.decode("utf-8", "replace") for name in names.cast(pa.binary()).to_pylist()]
        names = pa.array(texts, pa.string())
    values = _bytes(
        count,
        rooms.header_value_ends,
        rooms.header_value_valid,
        rooms.header_values,
        filled.header_value_nulls,
    )
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
    kind = pa.list_(pa.field("element", HEADER_TYPE))
    buffers = [rooms.list_valid if filled.list_nulls else None, rooms.list_ends]
    return pa.Array.from_buffers(kind, filled.rows, buffers, filled.list_nulls, 0, [pairs])
