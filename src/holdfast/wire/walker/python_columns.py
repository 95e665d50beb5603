"""Records into columns, in Python: the reference for `compiled_columns.c`, and its stand-in.

Owns what a record looks like in columns. Makes no object of a record: its fields go where Arrow's
layout has them (offsets, bits that say what is no null, bytes), into rooms that the caller made.
Every byte of a body may be hostile. What it returns are plain numbers, whose names
`record_columns` has; both return the same for the same bytes, and write the same columns.

Rules: batches.md#records.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack_into
from typing import Final, TypeAlias

from holdfast.wire.batch_header import BATCH_LENGTH_MIN, HEADER, HEADER_SIZE, LENGTH_END

# The careful ways of reading a number are those of compaction's twin, in the same folder.
from holdfast.wire.walker.python_compaction import (
    OFFSET_MAX,
    UNORDERED,
    _more,
    _number,
    _skip,
    _UnsoundError,
    _wrapped,
)
from holdfast.wire.walker.python_walker import (
    CUT_FIELD,
    CUT_LENGTH,
    HEADER_COUNT,
    HEADER_KEY,
    INT64_MAX,
    INT64_MIN,
    LEFT_OVER,
    SOUND,
    WRONG_LENGTH,
    Buffer,
)

Room: TypeAlias = memoryview
Place: TypeAlias = tuple[int, int, int]
"""Where the next record begins, its number, and the offset delta of the one before it (or -1)."""
RunPlace: TypeAlias = tuple[int, int, int, int]
"""Where the next batch begins; and a place in it, counted from where all begins: 0, 0, -1 if it is
not begun yet."""

TIMESTAMP: Final = UNORDERED + 1
COUNT: Final = UNORDERED + 2
NO_BATCH: Final = UNORDERED + 3

# Why a go ended: at the end of the body or at a problem, at a record that is not wanted any more,
# or before one for which there is no room; then which room it was.
WHOLE: Final = 0
BEHIND: Final = 1
NO_ROWS: Final = 2
NO_KEYS: Final = 3
NO_VALUES: Final = 4
NO_HEADERS: Final = 5
NO_HEADER_KEYS: Final = 6
NO_HEADER_VALUES: Final = 7

INT32_MAX: Final = 2**31 - 1
ROOMS: Final = 8
ROOMS_WITH_HEADERS: Final = 15
_MICROSECONDS: Final = 1000
_SHIFT_OF_LONG: Final = 63
_INT64: Final = 8
_INT32: Final = 4
_COPIED_BYTES_MAX: Final = 1 << 20
# Behind it; timestamp delta, offset delta; where key and value begin and their sizes, negative:
# null; where the headers begin, and how many there are.
Span: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]


class _FullError(Exception):
    """There is no room for a record; its argument is which room that is."""


def decode(
    body: Buffer,
    place: Place,
    numbers: tuple[int, int, int, int, int, int, int, int],
    rooms: Sequence[Room],
    filled: tuple[int, ...],
) -> tuple[int, ...]:
    """Write the fields of records into rooms, from a place on, up to the window's end.

    The numbers are the batch's count of records, its last offset delta, base offset and base
    timestamp; 1 if one timestamp is that of all records, else 0, and that timestamp; and the first
    offset that is wanted and the one behind the last. See `record_columns.Decoded` for what is
    returned, `record_columns.Filled` for what is filled, `record_columns.Rooms` for the rooms.
    """
    position, index, previous = place
    count, last_delta, base_offset, base_timestamp, is_stamped, stamp, start, end = numbers
    data = _checked(body, place, numbers)
    columns = _Columns(data, rooms, filled)
    size, problem, stopped = len(data), SOUND, WHOLE
    while index < count and position < size:
        try:
            span = following, stamp_delta, delta, *_ = _read(data, position)
            headers = columns.read_headers(span)
            if not previous < delta <= last_delta:
                problem = UNORDERED
                break
            offset = base_offset + delta
            if offset >= end:
                stopped = BEHIND
                break
            if offset >= start:
                timestamp = stamp if is_stamped else base_timestamp + stamp_delta
                columns.add(offset, _wrapped(timestamp) * _MICROSECONDS, span, headers)
        except _UnsoundError as unsound:
            problem = unsound.args[0]
            break
        except _FullError as full:
            stopped = full.args[0]
            break
        position, previous = following, delta
        index += 1
    if not problem and not stopped and (index != count or position != size):
        problem = COUNT
    return (index, position, previous, problem, stopped, *columns.write())


def decode_run(
    data: Buffer,
    place: RunPlace,
    until: int,
    window: tuple[int, int, int],
    rooms: Sequence[Room],
    filled: tuple[int, ...],
) -> tuple[int, ...]:
    """Do with each batch up to `until` what `decode` does with one; they are not compressed.

    The window is 1 if each batch's largest timestamp is that of all its records, else 0, and the
    first offset that is wanted and the one behind the last. See `record_columns.DecodedRun` for
    what is returned.
    """
    at, position, index, previous = place
    is_inside = 0 <= at <= until <= len(data) and position <= until
    if not is_inside or index < 0 or not -1 <= previous <= INT32_MAX:
        raise ValueError("a place outside of the records")
    if not position:
        index, previous = 0, -1
    elif position < at + HEADER_SIZE:
        raise ValueError("a place outside of the records")
    is_stamped, start, end = window
    filled = _Columns(b"", rooms, filled).write()  # they are looked at even if there is no batch
    while at < until:
        numbers = _numbers(data, at, until, is_stamped, start, end)
        body = at + HEADER_SIZE
        if numbers is None or position > at + LENGTH_END + numbers[1]:
            return (at, position, index, previous, NO_BATCH, WHOLE, start, *filled)
        following, of_batch = at + LENGTH_END + numbers[1], numbers[0]
        inside = (position - body if position else 0, index, previous)
        told = decode(data[body:following], inside, of_batch, rooms, filled)
        index, position, previous, problem, stopped = told[:5]
        filled = told[5:]
        if problem or stopped:
            return (at, position + body, index, previous, problem, stopped, start, *filled)
        start = max(start, of_batch[2] + of_batch[1] + 1)
        at, position, index, previous = following, 0, 0, -1
    return (at, 0, 0, -1, SOUND, WHOLE, start, *filled)


def _numbers(
    data: Buffer, at: int, until: int, is_stamped: int, start: int, end: int
) -> tuple[tuple[int, int, int, int, int, int, int, int], int] | None:
    """Return what `decode` needs to know of the batch at `at`, and its length. None: it is none."""
    if until - at < HEADER_SIZE:
        return None
    (base_offset, length, _, _, _, _, last_delta, base_timestamp, stamp, _, _, _,
     count) = HEADER.unpack_from(data, at)  # fmt: skip
    if not BATCH_LENGTH_MIN <= length <= until - at - LENGTH_END:
        return None
    if not 0 <= base_offset <= OFFSET_MAX or last_delta < 0:
        return None
    window = is_stamped, stamp, start, end
    return (count, last_delta, base_offset, base_timestamp, *window), length


class _Columns:
    """What is to be written, as lists: they go into the rooms at the end, in one go each."""

    def __init__(self, data: Buffer, rooms: Sequence[Room], filled: tuple[int, ...]) -> None:
        if len(rooms) not in {ROOMS, ROOMS_WITH_HEADERS} or len(filled) != 10:
            raise ValueError("another number of rooms or of what fills them")
        self._data = data
        self._rooms = rooms
        self._with_headers = len(rooms) == ROOMS_WITH_HEADERS
        (self._rows, self._key_bytes, self._key_nulls, self._value_bytes, self._value_nulls,
         self._list_nulls, self._headers, self._header_key_bytes, self._header_value_bytes,
         self._header_value_nulls) = filled  # fmt: skip
        self._check_rooms(filled)
        self._begin = filled
        self._offsets: list[int] = []
        self._timestamps: list[int] = []
        self._keys = _Bytes(self._key_bytes)
        self._values = _Bytes(self._value_bytes)
        self._list_ends: list[int] = []
        self._lists_valid: list[bool] = []
        self._header_keys = _Bytes(self._header_key_bytes)
        self._header_values = _Bytes(self._header_value_bytes)

    def _check_rooms(self, filled: tuple[int, ...]) -> None:
        sizes = [len(room) for room in self._rooms]
        rows = [sizes[0] // _INT64, sizes[1] // _INT64]
        rows += [sizes[2] // _INT32 - 1, sizes[5] // _INT32 - 1, sizes[3] * 8, sizes[6] * 8]
        headers, header_keys, header_values = 0, 0, 0
        if self._with_headers:
            rows += [sizes[8] // _INT32 - 1, sizes[9] * 8]
            headers = min(sizes[10] // _INT32 - 1, sizes[12] // _INT32 - 1, sizes[13] * 8)
            header_keys, header_values = sizes[11], sizes[14]
        self._rows_max = min(rows)
        self._keys_max, self._values_max = sizes[4], sizes[7]
        self._headers_max, self._header_keys_max = headers, header_keys
        self._header_values_max = header_values
        most = (
            self._rows_max, sizes[4], self._rows_max, sizes[7], self._rows_max, self._rows_max,
            headers, header_keys, header_values, headers,
        )  # fmt: skip
        if max(most) > INT32_MAX or self._rows_max < 0 or headers < 0:
            raise ValueError("a room of a size that can't be counted")
        if any(not 0 <= there <= bound for there, bound in zip(filled, most, strict=True)):
            raise ValueError("more is filled than there is room for")

    def read_headers(self, span: Span) -> list[tuple[int, int, int, int]]:
        """Return where each header's key and value begin, and their sizes."""
        end, *_, at, count = span
        data, headers = self._data, []
        for _ in range(count):
            size, key_at = _number(data, at, end)
            if size < 0:
                raise _UnsoundError(HEADER_KEY)
            at = _skip(key_at, size, end)
            value_size, value_at = _number(data, at, end)
            at = _skip(value_at, value_size, end)
            headers.append((key_at, size, value_at, value_size))
        if at != end:
            raise _UnsoundError(LEFT_OVER)
        return headers

    def add(
        self, offset: int, timestamp: int, span: Span, headers: list[tuple[int, int, int, int]]
    ) -> None:
        """Take a record. _FullError: there is no room, and nothing of it was taken."""
        _, _, _, key_at, key_size, value_at, value_size, _, _ = span
        if not INT64_MIN <= timestamp <= INT64_MAX:
            raise _UnsoundError(TIMESTAMP)
        if self._rows == self._rows_max:
            raise _FullError(NO_ROWS)
        if key_size > self._keys_max - self._keys.end:
            raise _FullError(NO_KEYS)
        if value_size > self._values_max - self._values.end:
            raise _FullError(NO_VALUES)
        if self._with_headers:
            self._add_headers(headers)
        self._offsets.append(offset)
        self._timestamps.append(timestamp)
        self._keys.add(self._data, key_at, key_size)
        self._values.add(self._data, value_at, value_size)
        self._rows += 1

    def _add_headers(self, headers: list[tuple[int, int, int, int]]) -> None:
        key_bytes, value_bytes = self._header_keys.end, self._header_values.end
        for number, (_, key_size, _, value_size) in enumerate(headers):
            if self._headers + number == self._headers_max:
                raise _FullError(NO_HEADERS)
            key_bytes += key_size
            if key_bytes > self._header_keys_max:
                raise _FullError(NO_HEADER_KEYS)
            value_bytes += max(value_size, 0)
            if value_bytes > self._header_values_max:
                raise _FullError(NO_HEADER_VALUES)
        for key_at, key_size, value_at, value_size in headers:
            self._header_keys.add(self._data, key_at, key_size)
            self._header_values.add(self._data, value_at, value_size)
        self._headers += len(headers)
        self._list_ends.append(self._headers)
        self._lists_valid.append(bool(headers))

    def write(self) -> tuple[int, ...]:
        """Write what was taken into the rooms; return what fills them now."""
        rooms, row, header = self._rooms, self._begin[0], self._begin[6]
        _write_numbers(rooms[0], row, self._offsets, "q", _INT64)
        _write_numbers(rooms[1], row, self._timestamps, "q", _INT64)
        key_nulls = self._keys.write(rooms[2], rooms[3], rooms[4], row)
        value_nulls = self._values.write(rooms[5], rooms[6], rooms[7], row)
        list_nulls = header_value_nulls = 0
        if self._with_headers:
            _write_numbers(rooms[8], row + 1, self._list_ends, "i", _INT32)
            list_nulls = _write_bits(rooms[9], row, self._lists_valid)
            self._header_keys.write(rooms[10], None, rooms[11], header)
            header_value_nulls = self._header_values.write(rooms[12], rooms[13], rooms[14], header)
        return (
            self._rows, self._keys.end, self._key_nulls + key_nulls,
            self._values.end, self._value_nulls + value_nulls,
            self._list_nulls + list_nulls, self._headers, self._header_keys.end,
            self._header_values.end, self._header_value_nulls + header_value_nulls,
        )  # fmt: skip


class _Bytes:
    """One column of bytes: its parts, where each ends, and which of them are none."""

    __slots__ = ("_begin", "_ends", "_parts", "_valid", "end")

    def __init__(self, begin: int) -> None:
        self._begin = self.end = begin
        self._parts: list[Buffer] = []
        self._ends: list[int] = []
        self._valid: list[bool] = []

    def add(self, data: Buffer, at: int, size: int) -> None:
        if size > 0:
            self._parts.append(data[at : at + size])
            self.end += size
        self._ends.append(self.end)
        self._valid.append(size >= 0)

    def write(self, ends: Room, valid: Room | None, room: Room, row: int) -> int:
        """Write it behind `row` values; return how many of the new ones are null."""
        _write_numbers(ends, row + 1, self._ends, "i", _INT32)
        room[self._begin : self.end] = b"".join(self._parts)
        return _write_bits(valid, row, self._valid) if valid is not None else 0


def _write_numbers(room: Room, at: int, numbers: list[int], code: str, width: int) -> None:
    pack_into(f"={len(numbers)}{code}", room, at * width, *numbers)


def _write_bits(room: Room, at: int, bits: list[bool]) -> int:
    """Write bits behind `at` others; return how many of them are not set."""
    for number, is_set in enumerate(bits, at):
        before = room[number >> 3] if number & 7 else 0
        mask = 1 << (number & 7)
        room[number >> 3] = before | mask if is_set else before & ~mask
    return bits.count(False)


def _checked(body: Buffer, place: Place, numbers: tuple[int, ...]) -> Buffer:
    """Return what is read fastest. ValueError: a mistake of ours."""
    position, index, previous = place
    if not (0 <= position <= len(body) and index >= 0 and -1 <= previous <= INT32_MAX):
        raise ValueError("a place outside of the records")
    if not 0 <= numbers[2] <= OFFSET_MAX:
        raise ValueError("an offset outside of any log")
    is_copied = isinstance(body, memoryview) and len(body) <= _COPIED_BYTES_MAX
    return bytes(body) if is_copied else body


def _read(data: Buffer, position: int) -> Span:
    """Read one record up to its headers, as if it were sound, and with care if it is not.

    Of most numbers one byte is all; where it is above 0x7F there are more.
    """
    try:
        size = data[position]
        at = position + 1
        if size > 0x7F:
            size, at = _more(data, at, size)
        end = at + (size >> 1)
        stamp = data[at + 1]  # behind one byte of attributes
        at += 2
        if stamp > 0x7F:
            stamp, at = _more(data, at, stamp)
        delta = data[at]
        at += 1
        if delta > 0x7F:
            delta, at = _more(data, at, delta)
        key_size = data[at]
        at += 1
        if key_size > 0x7F:
            key_size, at = _more(data, at, key_size)
        key_at = at
        if not key_size & 1:
            at += key_size >> 1
        value_size = data[at]
        at += 1
        if value_size > 0x7F:
            value_size, at = _more(data, at, value_size)
        value_at = at
        if not value_size & 1:
            at += value_size >> 1
        count = data[at]
        at += 1
        if count > 0x7F:
            count, at = _more(data, at, count)
    except (IndexError, _UnsoundError):
        return _read_with_care(data, position)
    if size & 1 or count & 1 or end > len(data) or (count >> 1) > end - at:
        return _read_with_care(data, position)
    return (
        end, (stamp >> 1) ^ -(stamp & 1), (delta >> 1) ^ -(delta & 1),
        key_at, -1 if key_size & 1 else key_size >> 1,
        value_at, -1 if value_size & 1 else value_size >> 1, at, count >> 1,
    )  # fmt: skip


def _read_with_care(data: Buffer, position: int) -> Span:
    """Read one record up to its headers. _UnsoundError: it is none."""
    size, at = _number(data, position, len(data), cut=CUT_LENGTH)
    end = at + size
    if size < 0 or end > len(data):
        raise _UnsoundError(WRONG_LENGTH)
    if at == end:
        raise _UnsoundError(CUT_FIELD)
    stamp, at = _number(data, at + 1, end, _SHIFT_OF_LONG)
    delta, at = _number(data, at, end)
    key_size, key_at = _number(data, at, end)
    at = _skip(key_at, key_size, end)
    value_size, value_at = _number(data, at, end)
    at = _skip(value_at, value_size, end)
    count, at = _number(data, at, end)
    if not 0 <= count <= end - at:
        raise _UnsoundError(HEADER_COUNT)
    return end, stamp, delta, key_at, max(key_size, -1), value_at, max(value_size, -1), at, count
