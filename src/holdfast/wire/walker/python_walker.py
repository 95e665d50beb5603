"""The record walker in Python: the reference for `compiled_walker.c`, and what runs without it.

Owns what a record looks like to a broker. Makes no objects of records: it counts, compares and
skips. Every byte it is given may be hostile. What it returns, it returns as plain tuples, whose
fields `record_walker` names; both walkers return the same for the same bytes, always.

Rules: batches.md#records, batches.md#the-record-walker.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
_Data: TypeAlias = bytes | bytearray
Span: TypeAlias = tuple[int, int, int, bool]  # behind it, timestamp, offset delta, has a key

# What is wrong with a record; `record_walker` has the words.
SOUND: Final = 0
CUT_LENGTH: Final = 1
WRONG_LENGTH: Final = 2
CUT_FIELD: Final = 3
LONG_NUMBER: Final = 4
LONG_BYTES: Final = 5
HEADER_COUNT: Final = 6
HEADER_KEY: Final = 7
LEFT_OVER: Final = 8

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
_UINT64_MASK: Final = 2**64 - 1
_MORE: Final = 0x80
_LOW: Final = 0x7F
_NO_TIMESTAMP: Final = -1
_SHIFT_OF_INT: Final = 28  # of the last byte that a number of 32 bits has
_SHIFT_OF_LONG: Final = 63


class _UnsoundError(Exception):
    """A record can't be read; its argument is what is wrong."""


def walk(
    body: Buffer, position: int, index: int, most: int, base_timestamp: int
) -> tuple[int, ...]:
    """Walk at most `most` records from `position` on, of which the first is number `index`.

    See `record_walker.Walked` for what is returned.
    """
    data = _bytes(body, position)
    size, end = len(data), index + most
    least, least_at, largest, largest_at = INT64_MAX, -1, _NO_TIMESTAMP, -1
    uncounted_at = keyless_at = -1
    problem = SOUND
    while index < end and position < size:
        try:
            following, timestamp, delta, has_key = _read(data, position, base_timestamp)
        except _UnsoundError as unsound:
            problem = unsound.args[0]
            break
        if timestamp < least and timestamp != _NO_TIMESTAMP:
            least, least_at = timestamp, index
        if timestamp > largest:
            largest, largest_at = timestamp, index
        if uncounted_at < 0 and delta != index:
            uncounted_at = index
        if keyless_at < 0 and not has_key:
            keyless_at = index
        position = following
        index += 1
    return (
        index, position, least, least_at, largest, largest_at, uncounted_at, keyless_at, problem,
    )  # fmt: skip


def seek(
    body: Buffer,
    position: int,
    most: int,
    base_timestamp: int,
    since: int,
    deltas: tuple[int, int],
) -> tuple[int, int, int, int]:
    """Look through at most `most` records for the first that is stamped `since` or later.

    And whose offset delta lies between the two of `deltas`. See `record_walker.Sought`.
    """
    data = _bytes(body, position)
    size = len(data)
    low, high = deltas
    while most > 0 and position < size:
        try:
            following, timestamp, delta, _ = _read(data, position, base_timestamp)
        except _UnsoundError as unsound:
            return position, -1, _NO_TIMESTAMP, unsound.args[0]
        if timestamp >= since and low <= delta <= high:
            return position, delta, timestamp, SOUND
        position = following
        most -= 1
    return position, -1, _NO_TIMESTAMP, SOUND


def _bytes(body: Buffer, position: int) -> _Data:
    if not 0 <= position <= len(body):
        raise ValueError("a position outside of the records")
    # A view's items are read half as fast.
    return bytes(body) if isinstance(body, memoryview) else body


def _read(data: _Data, position: int, base_timestamp: int) -> Span:
    """Read one record. _UnsoundError: it is none."""
    length, at = _number(data, position, len(data), _SHIFT_OF_INT, CUT_LENGTH)
    end = at + length
    if length < 0 or end > len(data):
        raise _UnsoundError(WRONG_LENGTH)
    if at == end:
        raise _UnsoundError(CUT_FIELD)
    # One byte of attributes, which nobody uses.
    timestamp, at = _number(data, at + 1, end, _SHIFT_OF_LONG)
    timestamp += base_timestamp
    if not INT64_MIN <= timestamp <= INT64_MAX:  # wrapped, as a Java client's is
        timestamp = (timestamp - INT64_MIN & _UINT64_MASK) + INT64_MIN
    delta, at = _number(data, at, end)
    key_size, at = _number(data, at, end)
    at = _skip(at, key_size, end)
    value_size, at = _number(data, at, end)
    at = _skip(at, value_size, end)
    headers, at = _number(data, at, end)
    if headers:
        at = _skip_headers(data, headers, at, end)
    if at != end:
        raise _UnsoundError(LEFT_OVER)
    return end, timestamp, delta, key_size >= 0


def _skip_headers(data: _Data, count: int, at: int, end: int) -> int:
    if not 0 <= count <= end - at:
        raise _UnsoundError(HEADER_COUNT)
    for _ in range(count):
        size, at = _number(data, at, end)
        if size < 0:
            raise _UnsoundError(HEADER_KEY)
        at = _skip(at, size, end)
        size, at = _number(data, at, end)
        at = _skip(at, size, end)
    return at


def _skip(at: int, size: int, end: int) -> int:
    """Return what is behind so many bytes; a negative number of them is null."""
    if size <= 0:
        return at
    if size > end - at:
        raise _UnsoundError(LONG_BYTES)
    return at + size


def _number(
    data: bytes | bytearray,
    at: int,
    end: int,
    last_shift: int = _SHIFT_OF_INT,
    cut: int = CUT_FIELD,
) -> tuple[int, int]:
    """Return a zigzag varint of 32 or 64 bits, and what is behind it."""
    value = shift = 0
    while True:
        if at >= end:
            raise _UnsoundError(cut)
        byte = data[at]
        at += 1
        if shift == last_shift and byte > (0x0F if shift == _SHIFT_OF_INT else 0x01):
            raise _UnsoundError(LONG_NUMBER)
        if byte < _MORE:
            value |= byte << shift
            return (value >> 1) ^ -(value & 1), at
        value |= (byte & _LOW) << shift
        shift += 7
