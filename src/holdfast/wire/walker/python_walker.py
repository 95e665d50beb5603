"""The record walker in Python: the reference for `compiled_walker.c`, and what runs without it.

Owns what a record looks like to a broker. Makes no objects of records: it counts, compares and
skips. Every byte it is given may be hostile. What it returns, it returns as plain tuples, whose
fields `record_walker` names; both walkers return the same for the same bytes, always.

Rules: batches.md#records, batches.md#the-record-walker.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
# Behind it, timestamp, offset delta, has a key; where its headers begin, how many there are.
Span: TypeAlias = tuple[int, int, int, bool, int, int]
# Where a record begins and its number; where its next header begins, 0: not in its headers, and
# how many are left there.
Place: TypeAlias = tuple[int, int, int, int]

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

STEPS_OF_RECORD: Final = 8  # as long as so many headers take; a header is one step

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
_UINT64_MASK: Final = 2**64 - 1
_MORE: Final = 0x80
_LOW: Final = 0x7F
_NO_TIMESTAMP: Final = -1
_SHIFT_OF_INT: Final = 28  # of the last byte that a number of 32 bits has
_SHIFT_OF_LONG: Final = 63
_COPIED_BYTES_MAX: Final = 1 << 20
_NOTHING_READ: Final = (0, 0, 0, False, 0, 0)


class _UnsoundError(Exception):
    """A record can't be read; its argument is what is wrong."""


def walk(body: Buffer, place: Place, most: int, steps: int, base_timestamp: int) -> tuple[int, ...]:
    """Walk at most `most` records from `place` on, and for so many steps, which headers take, too.

    See `record_walker.Walked` for what is returned.
    """
    position, index, inside, headers = place
    data = _bytes(body, place)
    size, end, left = len(data), index + most, steps
    least, least_at, largest, largest_at = INT64_MAX, -1, _NO_TIMESTAMP, -1
    uncounted_at = keyless_at = -1
    problem = SOUND
    while index < end and position < size and left > 0:
        span, inside, headers, left, problem = _next(
            data, position, base_timestamp, inside, headers, left
        )
        if problem or inside:
            break
        following, timestamp, delta, has_key, _, _ = span
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
        inside, headers, steps - left,
    )  # fmt: skip


def seek(
    body: Buffer,
    place: Place,
    most: int,
    steps: int,
    base_timestamp: int,
    wanted: tuple[int, int, int],
) -> tuple[int, ...]:
    """Look through at most `most` records for the first that is stamped so or later.

    What is wanted are that timestamp, and the two between which its offset delta lies. See
    `record_walker.Sought` for what is returned.
    """
    position, index, inside, headers = place
    data = _bytes(body, place)
    size, end, left = len(data), index + most, steps
    since, low, high = wanted
    found, stamp, problem = -1, _NO_TIMESTAMP, SOUND
    while index < end and position < size and left > 0:
        span, inside, headers, left, problem = _next(
            data, position, base_timestamp, inside, headers, left
        )
        if problem or inside:
            break
        following, timestamp, delta, _, _, _ = span
        if timestamp >= since and low <= delta <= high:
            found, stamp = delta, timestamp
            break
        position = following
        index += 1
    return index, position, found, stamp, problem, inside, headers, steps - left


def _bytes(body: Buffer, place: Place) -> Buffer:
    position, _, inside, headers = place
    if not (0 <= position <= len(body) and 0 <= inside <= len(body) and headers >= 0):
        raise ValueError("a place outside of the records")
    # A view's items are read half as fast, but to copy what is large takes longer than a slice.
    is_copied = isinstance(body, memoryview) and len(body) <= _COPIED_BYTES_MAX
    return bytes(body) if is_copied else body


def _next(
    data: Buffer, position: int, base_timestamp: int, inside: int, headers: int, left: int
) -> tuple[Span, int, int, int, int]:
    """Read the record at `position`, from inside its headers on if a walk stopped there.

    Returns it, where to go on in its headers and how many are left (0 and 0: it is all read), how
    many steps are left, and what is wrong with it.
    """
    span = _NOTHING_READ
    try:
        span = end, _, _, _, at, count = _read(data, position, base_timestamp)
        if inside:
            at, count = inside, headers
        else:
            left -= STEPS_OF_RECORD
        if not count and at == end:
            return span, 0, 0, left, SOUND
        inside, headers, left = _skip_headers(data, count, at, end, left)
    except _UnsoundError as unsound:
        return span, 0, 0, left, unsound.args[0]
    return span, inside, headers, left, SOUND


def _read(data: Buffer, position: int, base_timestamp: int) -> Span:
    """Read one record up to its headers. _UnsoundError: it is none."""
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
    if not 0 <= headers <= end - at:
        raise _UnsoundError(HEADER_COUNT)
    return end, timestamp, delta, key_size >= 0, at, headers


def _skip_headers(data: Buffer, count: int, at: int, end: int, left: int) -> tuple[int, int, int]:
    """Skip headers, up to the record's end if there are steps enough for all of them.

    Returns where to go on and how many headers are left there, or 0 and 0, and how many steps are.
    """
    steps = min(count, max(left, 0))
    for _ in range(steps):
        size, at = _number(data, at, end)
        if size < 0:
            raise _UnsoundError(HEADER_KEY)
        at = _skip(at, size, end)
        size, at = _number(data, at, end)
        at = _skip(at, size, end)
    if steps < count:
        return at, count - steps, left - steps
    if at != end:
        raise _UnsoundError(LEFT_OVER)
    return 0, 0, left - steps


def _skip(at: int, size: int, end: int) -> int:
    """Return what is behind so many bytes; a negative number of them is null."""
    if size <= 0:
        return at
    if size > end - at:
        raise _UnsoundError(LONG_BYTES)
    return at + size


def _number(
    data: Buffer,
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
