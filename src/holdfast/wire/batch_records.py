"""The records inside a batch: building batches and walking them.

Owns everything that looks at single records, so nothing here belongs on a broker's hot path.

Rules: batches.md#records, batches.md#control-batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct as Layout
from typing import Final, NamedTuple, TypeAlias

from holdfast.wire.batch_header import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Codec,
    read_header,
)
from holdfast.wire.checksum import crc32c
from holdfast.wire.compression import INFLATED_SIZE_MAX, compress, decompress
from holdfast.wire.errors import WireError
from holdfast.wire.primitives import LOW, MORE

Buffer: TypeAlias = bytes | bytearray | memoryview
Header: TypeAlias = tuple[str, bytes | None]
Pair: TypeAlias = tuple[int, bytes | None, bytes | None]
"""A record's offset, key and value."""

_CONTROL_KEY: Final = Layout(">hh")
_MARKER: Final = Layout(">hi")
_RECORD_SIZE_MIN: Final = 7
_VARLONG_SHIFT_MAX: Final = 63


class Record(NamedTuple):
    """One record. `timestamp` in ms since 1970, -1: none. `offset` is what was read."""

    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = NO_TIMESTAMP
    headers: tuple[Header, ...] = ()
    offset: int = 0


class ControlType(IntEnum):
    """The second half of a control record's key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def build_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """Return one whole batch, writable; its records take consecutive offsets from `base_offset`.

    Offsets within `records` are ignored. `log_append_time_ms` stamps the batch as a broker would.
    """
    assert records, "a batch has at least one record"
    base_timestamp = records[0].timestamp
    # None is later than what is before 1970 by more than that, as in Apache Kafka's builder.
    max_timestamp = max(NO_TIMESTAMP, *(record.timestamp for record in records))
    body = bytearray()
    for delta, record in enumerate(records):
        _write_record(body, record, delta, record.timestamp - base_timestamp)
    packed = compress(codec, bytes(body)) if codec else body
    attributes = int(codec)
    if transactional:
        attributes |= TRANSACTIONAL
    if control:
        attributes |= CONTROL
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time_ms
    fields = (
        attributes, len(records) - 1, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, len(records),
    )  # fmt: skip
    return _batch(packed, base_offset, leader_epoch, fields)


def wrap_records(
    body: bytes, count: int, timestamp: int, *, codec: Codec = Codec.NONE
) -> bytearray:
    """Return a whole batch, writable, of records that are bytes already and have all this time."""
    assert count, "a batch has at least one record"
    packed = compress(codec, body) if codec else body
    fields = (
        int(codec), count - 1, timestamp, timestamp,
        NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, count,
    )  # fmt: skip
    return _batch(packed, 0, -1, fields)


def _batch(
    packed: Buffer, base_offset: int, leader_epoch: int, fields: tuple[int, ...]
) -> bytearray:
    batch = bytearray(HEADER_SIZE) + packed
    length = len(batch) - LENGTH_END
    HEADER.pack_into(batch, 0, base_offset, length, leader_epoch, MAGIC, 0, *fields)
    crc = crc32c(memoryview(batch)[CRC_START:])
    HEADER.pack_into(batch, 0, base_offset, length, leader_epoch, MAGIC, crc, *fields)
    return batch


def read_records(view: Buffer, *, inflated_size_max: int = INFLATED_SIZE_MAX) -> list[Record]:
    """Return the records of the one batch that begins `view`. The CRC is not checked.

    WireError: what it holds does not parse; its kind InflatedError: it inflates to more bytes.
    """
    header = read_header(view)
    if header.magic != MAGIC or not HEADER_SIZE <= header.size <= len(view):
        raise WireError(f"not a whole batch: length {header.batch_length}, magic {header.magic}")
    body: Buffer = memoryview(view)[HEADER_SIZE : header.size]
    if header.codec:
        body = decompress(header.codec, body, inflated_size_max)
    return list(walk_records(header, bytes(body)))


def control_key(kind: ControlType) -> bytes:
    """Return the key of a control record."""
    return _CONTROL_KEY.pack(0, kind)


def read_control_type(key: bytes | None) -> int:
    """Return the type in a control record's key; `ControlType` names those that exist.

    WireError: it is no such key. A type from a future Kafka is a number like the others.
    """
    if key is None or len(key) < _CONTROL_KEY.size:
        raise WireError("the key of a control record is too short")
    _version, kind = _CONTROL_KEY.unpack_from(key)
    return int(kind)


def transaction_marker(*, commit: bool, coordinator_epoch: int, timestamp: int) -> Record:
    """Return the record that ends a transaction; its batch is transactional, and control."""
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return Record(control_key(kind), _MARKER.pack(0, coordinator_epoch), timestamp)


def _varint(value: int) -> bytes:
    """Return a signed varint of up to 64 bits, zigzag."""
    value = (value << 1) ^ (value >> 63)
    if value < MORE:
        return bytes((value,))
    out = bytearray()
    while value >= MORE:
        out.append(value & LOW | MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


def _write_record(body: bytearray, record: Record, delta: int, timestamp_delta: int) -> None:
    parts = [b"\0", _varint(timestamp_delta), _varint(delta)]
    for data in (record.key, record.value):
        if data is None:
            parts.append(b"\x01")
        else:
            parts += (_varint(len(data)), data)
    parts.append(_varint(len(record.headers)))
    for name, data in record.headers:
        encoded = name.encode()
        parts += (_varint(len(encoded)), encoded)
        if data is None:
            parts.append(b"\x01")
        else:
            parts += (_varint(len(data)), data)
    packed = b"".join(parts)
    body += _varint(len(packed))
    body += packed


def walk_records(header: BatchHeader, body: bytes) -> Iterator[Record]:
    """Yield the records of a batch, whose body is inflated, one after the other.

    WireError: the rest does not parse.
    """
    if header.record_count < 0 or header.record_count * _RECORD_SIZE_MIN > len(body):
        raise WireError(f"{header.record_count} records can't be in {len(body)} bytes")
    offset = 0
    stamped = header.max_timestamp if header.is_log_append_time else None
    try:
        for _ in range(header.record_count):
            size, start = _read_varint(body, offset)
            offset = start + size
            if size < 0 or offset > len(body):
                raise WireError("a record is longer than what remains")
            yield _read_record(header, stamped, body, start, offset)
    except IndexError as error:
        raise WireError("truncated in a record") from error
    except UnicodeDecodeError as error:
        raise WireError("a record header's key is not UTF-8") from error
    if offset != len(body):
        raise WireError(f"{len(body) - offset} bytes behind the last record")


def walk_pairs(header: BatchHeader, body: bytes) -> Iterator[Pair]:
    """Yield the records of a batch as offset, key and value alone, which takes a third of the time.

    Headers and timestamps are passed over, and not looked into. WireError: the rest does not parse.
    """
    if header.record_count < 0 or header.record_count * _RECORD_SIZE_MIN > len(body):
        raise WireError(f"{header.record_count} records can't be in {len(body)} bytes")
    base_offset, number = header.base_offset, _read_varint
    end = 0
    try:
        for _ in range(header.record_count):
            # Nearly all numbers have one byte.
            size = body[end]
            if size < MORE:
                size, at = (size >> 1) ^ -(size & 1), end + 1
            else:
                size, at = number(body, end)
            end = at + size
            if size < 0 or end > len(body):
                raise WireError("a record is longer than what remains")
            at += 1  # attributes
            while body[at] >= MORE:  # its timestamp
                at += 1
            delta, at = number(body, at + 1)
            key, at = _read_bytes(body, at, end)
            value, at = _read_bytes(body, at, end)
            if at >= end:
                raise WireError("a record ends before its headers")
            yield base_offset + delta, key, value
    except IndexError as error:
        raise WireError("truncated in a record") from error
    if end != len(body):
        raise WireError(f"{len(body) - end} bytes behind the last record")


def _read_record(
    header: BatchHeader, stamped: int | None, body: bytes, start: int, end: int
) -> Record:
    timestamp_delta, at = _read_varint(body, start + 1)  # one byte of attributes, unused
    offset_delta, at = _read_varint(body, at)
    key, at = _read_bytes(body, at, end)
    value, at = _read_bytes(body, at, end)
    count, at = _read_varint(body, at)
    if not 0 <= count <= end - at:
        raise WireError(f"{count} record headers can't be in {end - at} bytes")
    headers: list[Header] = []
    for _ in range(count):
        name, at = _read_bytes(body, at, end)
        if name is None:
            raise WireError("a record header without a key")
        data, at = _read_bytes(body, at, end)
        headers.append((str(name, "utf-8"), data))
    if at != end:
        raise WireError(f"a record's length is off by {end - at}")
    timestamp = header.base_timestamp + timestamp_delta if stamped is None else stamped
    return Record(key, value, timestamp, tuple(headers), header.base_offset + offset_delta)


def _read_bytes(body: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = _read_varint(body, at)
    if size < 0:
        return None, at
    following = at + size
    if following > end:
        raise WireError("a key, value or header is longer than its record")
    return body[at:following], following


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    """Return a signed varint of up to 64 bits. IndexError: truncated."""
    byte = body[at]
    at += 1
    if byte < MORE:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & LOW
    shift = 7
    while True:
        byte = body[at]
        at += 1
        value |= (byte & LOW) << shift
        if byte < MORE:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > _VARLONG_SHIFT_MAX:
            raise WireError("a varint of more than 10 bytes")
