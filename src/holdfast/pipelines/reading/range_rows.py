"""Batches of one partition's range into Arrow: where the range stands, and its rows.

Owns the position. It moves behind each batch, whether that gave rows or not: so holes, markers and
aborted records end no range early and none never.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.reading.access import HEADERS_FIELD, Access, ReadError
from holdfast.pipelines.reading.fetched_batches import (
    AbortedTransactions,
    Batch,
    Scan,
    body_of,
    checked_end,
)
from holdfast.wire.batch import BatchHeader
from holdfast.wire.batch_header import BASE_OFFSET, CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from holdfast.wire.compression import inflated_bytes_max
from holdfast.wire.errors import InflatedError, WireError
from holdfast.wire.messages.fetch import AbortedTransaction
from holdfast.wire.walker.python_columns import BEHIND
from holdfast.wire.walker.record_columns import (
    DECODER,
    PROBLEMS,
    Columns,
    DecodedRun,
    Decoder,
    Filled,
    Numbers,
    Rooms,
)

ROWS_MAX: Final = 20_000
COLUMN_BYTES_MAX: Final = 8 * 1024 * 1024
INFLATED_OF_BYTES: Final = 16 * 1024 * 1024  # a batch that is fetched alone may be as large
RUN_BYTES_MIN: Final = 128 * 1024  # decoded while they are in the caches, of their checksums
_CREATED: Final = 0  # the numbers of Kafka's TimestampType, which the JVM connector shows
_APPENDED: Final = 1
_IN_TRANSACTIONS: Final = TRANSACTIONAL | CONTROL
_PLAIN: Final = frozenset({0, LOG_APPEND_TIME})
_BOUND: Final = "maxBytesPerFetch bounds it"


class _Run(NamedTuple):
    """Batches that lie one behind the other and have nothing special about them."""

    at: int
    until: int
    attributes: int


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
        self._inflated_max = inflated_bytes_max(max(access.fetch_bytes, INFLATED_OF_BYTES))
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
        self, found: Scan, aborted: list[AbortedTransaction] | None
    ) -> Iterator[pa.RecordBatch]:
        """Take an answer's batches; yield rows whenever the columns are full.

        ReadError: a batch is damaged, and which one.
        """
        told, data = AbortedTransactions(aborted), found.data
        run: _Run | None = None
        for batch in found.batches:
            at, fields = batch
            if fields[0] >= self.end:
                yield from self._take_run(data, run)
                self.position = self.end
                return
            attributes = fields[5]
            if run is not None and run.attributes != attributes:
                yield from self._take_run(data, run)
                run = None
            if attributes in _PLAIN:
                until = self._end_of(data, batch)
                run = _Run(at if run is None else run.at, until, attributes)
                if until - run.at >= RUN_BYTES_MIN:
                    yield from self._take_run(data, run)
                    run = None
            else:
                yield from self._take_one(data, batch, told)
        yield from self._take_run(data, run)

    def _end_of(self, data: memoryview, batch: Batch) -> int:
        try:
            return checked_end(data, batch)
        except WireError as error:
            raise self._damaged(batch[1][0], str(error)) from error

    def _take_run(self, data: memoryview, run: _Run | None) -> Iterator[pa.RecordBatch]:
        """Take batches that lie one behind the other, and are neither compressed nor special."""
        if run is None or self.position >= self.end:
            return
        yield from self._stamp(run.attributes)
        is_stamped = bool(run.attributes)
        decoded = DecodedRun(run.at, 0, 0, -1, 0, 0, self.position)
        while True:
            decoded = self._columns.add_run(
                data, decoded, run.until, self.end, is_stamped=is_stamped
            )
            if decoded.problem or decoded.stopped <= BEHIND:
                break
            yield from self.rest()
        if decoded.problem:
            (base_offset,) = BASE_OFFSET.unpack_from(data, decoded.at)
            raise self._damaged(base_offset, _words(decoded.records, decoded.problem))
        self.position = self.end if decoded.stopped else min(decoded.start, self.end)

    def _take_one(
        self, data: memoryview, batch: Batch, told: AbortedTransactions
    ) -> Iterator[pa.RecordBatch]:
        base_offset, *_, attributes, last_delta = batch[1][:7]
        if self.position >= self.end:
            return
        try:
            if not attributes & _IN_TRANSACTIONS or self._gives_rows(data, batch, told):
                yield from self._take(data, batch)
        except InflatedError as error:
            raise self._damaged(base_offset, f"{error} ({_BOUND})") from error
        except WireError as error:
            raise self._damaged(base_offset, str(error)) from error
        self.position = min(max(self.position, base_offset + last_delta + 1), self.end)

    def _gives_rows(self, data: memoryview, batch: Batch, told: AbortedTransactions) -> bool:
        """Return whether a batch of a transaction, or a control batch, has rows to give."""
        header = BatchHeader._make(batch[1])
        is_aborted = told.covers(header)
        if header.is_control:
            told.end(header, body_of(data, batch, self._inflated_max))
        elif is_aborted:
            checked_end(data, batch)  # its header decides where the range goes on
        return not header.is_control and not is_aborted

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are left, if there are any."""
        if self._columns.rows:
            rooms, filled = self._columns.take()
            yield self._to_arrow(rooms, filled)

    def _take(self, data: memoryview, batch: Batch) -> Iterator[pa.RecordBatch]:
        (base_offset, _, _, _, _, attributes, last_delta, base_timestamp, max_timestamp, _, _, _,
         count) = batch[1]  # fmt: skip
        yield from self._stamp(attributes)
        body = body_of(data, batch, self._inflated_max)
        numbers = Numbers(
            count, last_delta, base_offset, base_timestamp, self._stamped, max_timestamp,
            self.position, self.end,
        )  # fmt: skip
        decoded = self._columns.add(body, numbers)
        while decoded.stopped > BEHIND and not decoded.problem:
            yield from self.rest()
            decoded = self._columns.add(body, numbers, decoded)
        if decoded.problem:
            raise WireError(_words(decoded.records, decoded.problem))

    def _stamp(self, attributes: int) -> Iterator[pa.RecordBatch]:
        """Make columns ready for timestamps of a batch's kind: one kind a column."""
        stamped = _APPENDED if attributes & LOG_APPEND_TIME else _CREATED
        if stamped != self._stamped:  # a topic's setting changes rarely
            yield from self.rest()
            self._stamped = stamped

    def _damaged(self, base_offset: int, why: str) -> ReadError:
        return ReadError(f"{self.partition}: the batch at offset {base_offset}: {why}")

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


def _words(record: int, problem: int) -> str:
    return f"record number {record}: {PROBLEMS[problem]}"


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
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS_FIELD.type.value_type))
    kind = HEADERS_FIELD.type
    buffers = [rooms.list_valid if filled.list_nulls else None, rooms.list_ends]
    return pa.Array.from_buffers(kind, filled.rows, buffers, filled.list_nulls, 0, [pairs])
