"""Compaction's two calls in Python: the reference for `compiled_compaction.c`.

Owns what a record is to compaction: a key, whether it has a value, and its bytes. Enters keys into
a map, and copies what stays of a batch; makes no objects of records. Every byte may be hostile.
Both implementations return the same tuples for the same bytes, whose fields `record_compaction`
names.

Rules: compaction.md#which-records-stay, batches.md#the-record-walker.
"""

from __future__ import annotations

import mmap
from hashlib import blake2s
from typing import Final, TypeAlias

from holdfast.wire.walker.python_walker import (
    CUT_FIELD,
    CUT_LENGTH,
    HEADER_COUNT,
    HEADER_KEY,
    INT64_MAX,
    INT64_MIN,
    LEFT_OVER,
    LONG_BYTES,
    LONG_NUMBER,
    SOUND,
    STEPS_OF_RECORD,
    WRONG_LENGTH,
    Buffer,
)

UNORDERED: Final = LEFT_OVER + 1
"""One more thing that can be wrong with a record, beside those of `python_walker`."""

ENTRY_BYTES: Final = 24  # 16 of a keyed hash, 8 of an offset
SECRET_BYTES: Final = 16
STEP_KEY_SHIFT: Final = 6  # 64 bytes of a key that is looked up are one step
STEP_COPY_SHIFT: Final = 10  # and so is a KiB that is copied
OFFSET_MAX: Final = 2**62
"""No log comes near it, so that sums of an offset and a delta need no care."""

# Where a record begins and its number; where its next header begins, 0: not in its headers, and how
# many are left there; the offset delta of the record before, -1 for none.
Place: TypeAlias = tuple[int, int, int, int, int]
# Behind it, timestamp delta and what is behind that, offset delta, where its key begins and its
# size, -1 for none, whether it has a value; where its headers begin, how many there are.
Span: TypeAlias = tuple[int, int, int, int, int, int, bool, int, int]

_SHIFT_OF_INT: Final = 28
_SHIFT_OF_LONG: Final = 63
_LAST_OF_INT: Final = 0x0F  # the most that the last byte of 32 bits may be
_LAST_OF_LONG: Final = 0x01
_MORE: Final = 0x80
_LOW: Final = 0x7F
_UINT64_MASK: Final = 2**64 - 1
_RECORD_SIZE_MAX: Final = 2**31 - 1
_COPIED_BYTES_MAX: Final = 1 << 20
_HASH_BYTES: Final = 16
_NO_TIMESTAMP: Final = -1
_FREE: Final = bytes(ENTRY_BYTES)
_NOTHING_READ: Final = (0, 0, 0, 0, 0, -1, False, 0, 0)


class _UnsoundError(Exception):
    """A record can't be read; its argument is what is wrong."""


class KeyMap:
    """Keys and the last offset of each, in memory of a fixed size. It forgets nothing.

    A key is known by 16 bytes of a hash under a secret, so that nobody can make two that are taken
    for one. An entry of zeros is free: an offset is kept as the next one.
    """

    __slots__ = ("_count", "_hash", "_slots", "_table", "limit")

    def __init__(self, memory_bytes: int, secret: bytes) -> None:
        """ValueError: there is no room for a key, or the secret has the wrong size."""
        slots = memory_bytes // ENTRY_BYTES
        self.limit = slots * 9 // 10  # more would make each look-up long
        if self.limit < 1 or len(secret) != SECRET_BYTES:
            raise ValueError("a map of keys needs 48 bytes of memory and a secret of 16")
        self._count = 0
        self._hash = blake2s(digest_size=_HASH_BYTES, key=secret)
        self._slots = _prime_from(slots)  # so that each way through it meets all of it
        # Pages of the system's, which come as they are written.
        self._table = mmap.mmap(-1, self._slots * ENTRY_BYTES)

    def __len__(self) -> int:
        return self._count

    def put(self, key: Buffer, offset: int) -> bool:
        """Enter where a key is last. False: it is a new one, and the map is full."""
        if not 0 <= offset <= OFFSET_MAX:
            raise ValueError("an offset outside of any log")
        digest, at, entry = self._find(key)
        if entry == _FREE:
            if self._count >= self.limit:
                return False
            self._count += 1
        self._table[at : at + ENTRY_BYTES] = digest + (offset + 1).to_bytes(8, "little")
        return True

    def get(self, key: Buffer) -> int:
        """Return the offset that was entered last for a key, -1 for none."""
        _, _, entry = self._find(key)
        return int.from_bytes(entry[_HASH_BYTES:], "little") - 1

    def _find(self, key: Buffer) -> tuple[bytes, int, bytes]:
        """Return a key's hash, where its entry is or may be made, and what is there."""
        hashed = self._hash.copy()
        hashed.update(key)
        digest = hashed.digest()
        number, slots, table = int.from_bytes(digest, "little"), self._slots, self._table
        slot = number % slots
        at = slot * ENTRY_BYTES
        entry = table[at : at + ENTRY_BYTES]
        if entry == _FREE or entry.startswith(digest):
            return digest, at, entry
        step = 1 + (number >> 64) % (slots - 1)
        while True:
            slot = (slot + step) % slots
            at = slot * ENTRY_BYTES
            entry = table[at : at + ENTRY_BYTES]
            if entry == _FREE or entry.startswith(digest):
                return digest, at, entry


def enter(
    body: Buffer,
    place: Place,
    most: int,
    steps: int,
    numbers: tuple[int, int, int],
    key_map: KeyMap | None,
) -> tuple[int, ...]:
    """Enter the keys of at most `most` records, and for so many steps; None: look at them only.

    The numbers are the batch's last offset delta, its base offset, and the offset from which on
    keys are entered. See `record_compaction.Entered` for what is returned.
    """
    position, index, inside, headers, previous = place
    data, (last_delta, base_offset, start) = _checked(body, place, numbers), numbers
    size, end, left = len(data), index + most, steps
    headers = headers if inside else 0
    is_full, problem = 0, SOUND
    while index < end and position < size and left > 0:
        span, inside, headers, left, problem = _next(data, position, inside, headers, left)
        if problem or inside:
            break
        following, _, _, delta, key_at, key_size, _, _, _ = span
        if not previous < delta <= last_delta:
            problem = UNORDERED
            break
        if key_map is not None and key_size >= 0 and base_offset + delta >= start:
            left -= key_size >> STEP_KEY_SHIFT
            if not key_map.put(data[key_at : key_at + key_size], base_offset + delta):
                is_full = 1
                break
        position, previous = following, delta
        index += 1
    return index, position, problem, inside, headers, previous, steps - left, is_full


def keep(
    body: Buffer,
    place: Place,
    most: int,
    steps: int,
    numbers: tuple[int, int, int, int, int, int],
    key_map: KeyMap,
    room: bytearray | memoryview,
    filled: int,
) -> tuple[int, ...]:
    """Copy those of at most `most` records that stay into `room`, from `filled` on.

    The numbers are the batch's last offset delta, base offset and base timestamp; the offset from
    which on the map knows nothing, so that all stay; 1 if tombstones may go, else 0; and what is to
    be added to each timestamp delta. See `record_compaction.Kept` for what is returned.
    """
    position, index, inside, headers, previous = place
    data = _checked(body, place, numbers)
    last_delta, base_offset, base_timestamp, bound, drops_tombstones, shift = numbers
    if not 0 <= filled <= len(room):
        raise ValueError("outside of the room")
    size, end, left, out = len(data), index + most, steps, _Output(data, room, filled)
    headers = headers if inside else 0
    kept = tombstones = keyless = 0
    largest, problem, run, run_end = _NO_TIMESTAMP, SOUND, 0, 0  # a run is copied when it ends
    while index < end and position < size and left > 0:
        span, inside, headers, left, problem = _next(data, position, inside, headers, left)
        if problem or inside:
            break
        following, stamp, _, delta, key_at, key_size, has_value, _, _ = span
        if not previous < delta <= last_delta:
            problem = UNORDERED
            break
        offset = base_offset + delta
        if offset >= bound:
            stays = True
        elif key_size < 0:
            stays = False
            keyless += 1
        else:
            left -= key_size >> STEP_KEY_SHIFT
            stays = offset >= key_map.get(data[key_at : key_at + key_size]) and (
                has_value or not drops_tombstones
            )
        if stays:
            left -= (following - position) >> STEP_COPY_SHIFT
            kept += 1
            tombstones += not has_value
            timestamp = base_timestamp + stamp
            if timestamp > INT64_MAX or timestamp < INT64_MIN:
                timestamp = _wrapped(timestamp)
            if timestamp > largest:  # noqa: PLR1730 - a call takes as long as much of the rest
                largest = timestamp
            if shift:
                out.add_shifted(span, shift)
            elif position == run_end:
                run_end = following
            else:
                out.write(data[run:run_end])
                run, run_end = position, following
        position, previous = following, delta
        index += 1
    out.write(data[run:run_end])
    return (
        index, position, problem, inside, headers, previous, steps - left, kept, tombstones,
        keyless, largest, out.filled,
    )  # fmt: skip


class _Output:
    """What stays. ValueError: there is no room for it."""

    __slots__ = ("_data", "_room", "filled")

    def __init__(self, data: Buffer, room: bytearray | memoryview, filled: int) -> None:
        self._data = data
        self._room = room
        self.filled = filled

    def add_shifted(self, span: Span, shift: int) -> None:
        """Copy a record whose timestamp delta is another one now."""
        end, stamp, behind, *_ = span
        delta = _varint(_wrapped(stamp + shift))
        size = 1 + len(delta) + end - behind
        if size > _RECORD_SIZE_MAX:
            raise ValueError("no room for what stays")
        self.write(b"%b\0%b" % (_varint(size), delta))
        self.write(self._data[behind:end])

    def write(self, part: Buffer) -> None:
        end = self.filled + len(part)
        if end > len(self._room):
            raise ValueError("no room for what stays")
        self._room[self.filled : end] = part
        self.filled = end


def _checked(body: Buffer, place: Place, numbers: tuple[int, ...]) -> Buffer:
    """Return what is read fastest. ValueError: a mistake of ours."""
    position, _, inside, headers, previous = place
    if not (
        0 <= position <= len(body) and 0 <= inside <= len(body) and min(headers, previous + 1) >= 0
    ):
        raise ValueError("a place outside of the records")
    if not 0 <= numbers[1] <= OFFSET_MAX:
        raise ValueError("an offset outside of any log")
    is_copied = isinstance(body, memoryview) and len(body) <= _COPIED_BYTES_MAX
    return bytes(body) if is_copied else body


def _next(
    data: Buffer, position: int, inside: int, headers: int, left: int
) -> tuple[Span, int, int, int, int]:
    """Read the record at `position`, from inside its headers on if a go stopped there.

    Returns it, where to go on in its headers and how many are left (0 and 0: it is all read), how
    many steps are left, and what is wrong with it.
    """
    span = _NOTHING_READ
    try:
        span = end, _, _, _, _, _, _, at, count = _read(data, position)
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
        behind = at
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
        end, (stamp >> 1) ^ -(stamp & 1), behind, (delta >> 1) ^ -(delta & 1), key_at,
        -1 if key_size & 1 else key_size >> 1, not value_size & 1, at, count >> 1,
    )  # fmt: skip


def _more(data: Buffer, at: int, low: int) -> tuple[int, int]:
    """Return a number of several bytes, not yet unzigzagged. _UnsoundError: it is an unusual one.

    No more than 32 bits are read here: what is larger is read with care.
    """
    byte = data[at]
    number = low & _LOW | (byte & _LOW) << 7
    if byte < _MORE:
        return number, at + 1
    for shift in (14, 21):
        at += 1
        byte = data[at]
        number |= (byte & _LOW) << shift
        if byte < _MORE:
            return number, at + 1
    byte = data[at + 1]
    if byte > _LAST_OF_INT:
        raise _UnsoundError(SOUND)
    return number | byte << _SHIFT_OF_INT, at + 2


def _read_with_care(data: Buffer, position: int) -> Span:
    """Read one record up to its headers. _UnsoundError: it is none."""
    size, at = _number(data, position, len(data), _SHIFT_OF_INT, CUT_LENGTH)
    end = at + size
    if size < 0 or end > len(data):
        raise _UnsoundError(WRONG_LENGTH)
    if at == end:
        raise _UnsoundError(CUT_FIELD)
    stamp, behind = _number(data, at + 1, end, _SHIFT_OF_LONG)
    delta, at = _number(data, behind, end)
    key_size, key_at = _number(data, at, end)
    at = _skip(key_at, key_size, end)
    value_size, at = _number(data, at, end)
    at = _skip(at, value_size, end)
    count, at = _number(data, at, end)
    if not 0 <= count <= end - at:
        raise _UnsoundError(HEADER_COUNT)
    return end, stamp, behind, delta, key_at, max(key_size, -1), value_size >= 0, at, count


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
        last = _LAST_OF_INT if last_shift == _SHIFT_OF_INT else _LAST_OF_LONG
        if shift == last_shift and byte > last:
            raise _UnsoundError(LONG_NUMBER)
        value |= (byte & _LOW) << shift
        if byte < _MORE:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _varint(value: int) -> bytes:
    """Return a signed varint of up to 64 bits, zigzag."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value >= _MORE:
        out.append(value & _LOW | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


def _wrapped(timestamp: int) -> int:
    """Return a sum in 64 bits, wrapped as a Java client's is."""
    if INT64_MIN <= timestamp <= INT64_MAX:
        return timestamp
    return (timestamp - INT64_MIN & _UINT64_MASK) + INT64_MIN


def _prime_from(number: int) -> int:
    """Return the least prime from a number on."""
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number += 1
    return number
