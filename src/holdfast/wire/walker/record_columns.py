"""Records of batches, as they lie there inflated, into columns as Arrow lays them out.

Owns the choice between the two implementations, which differ in speed only; the rooms that columns
grow in; and what is wrong with a record, in words. Knows no Arrow: a column is buffers and counts.
The compiled one lets the interpreter go while it works, so it belongs into a thread or a process
of its own, and is given a whole body at once. Imported by who reads logs, never by a node.

Rules: batches.md#records.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdfast.wire.walker import python_columns
from holdfast.wire.walker.python_columns import (
    BEHIND,
    INT32_MAX,
    NO_HEADER_KEYS,
    NO_HEADER_VALUES,
    NO_HEADERS,
    NO_KEYS,
    NO_ROWS,
    NO_VALUES,
    ROOMS_WITH_HEADERS,
    Place,
    Room,
)
from holdfast.wire.walker.python_walker import Buffer
from holdfast.wire.walker.record_compaction import PROBLEMS as PROBLEMS_OF_BATCHES
from holdfast.wire.walker.record_walker import FORCED_BY

PROBLEMS: Final = (
    *PROBLEMS_OF_BATCHES,
    "a record's timestamp has no place among 64 bits of microseconds",
    "a batch has another number of records than it says",
    "there is no whole batch",
)
_FIRST_BYTES: Final = 64 * 1024
_FIRST_HEADERS: Final = 1024


class Numbers(NamedTuple):
    """What decoding needs to know of a batch, and the window of offsets that is wanted."""

    records: int  # so many its header says
    last_delta: int  # no record has a larger offset delta
    base_offset: int
    base_timestamp: int  # ms
    is_stamped: int  # 1: every record has the timestamp that follows (LOG_APPEND_TIME)
    stamp: int  # ms
    start: int  # the first offset that is wanted
    end: int  # the one behind the last


class Filled(NamedTuple):
    """How much of the rooms is filled."""

    rows: int = 0
    key_bytes: int = 0
    key_nulls: int = 0
    value_bytes: int = 0
    value_nulls: int = 0
    list_nulls: int = 0  # rows without headers
    headers: int = 0
    header_key_bytes: int = 0
    header_value_bytes: int = 0
    header_value_nulls: int = 0


class Rooms(NamedTuple):
    """Where columns grow. Without headers there are eight, up to `values`.

    `..._ends` are int32, and begin with a 0: a value lies between its number's and the next one.
    `..._valid` are bits, the lowest first; 0: null. A row without headers has no list: null.
    """

    offsets: Any  # int64
    timestamps: Any  # int64, microseconds since 1970
    key_ends: Any
    key_valid: Any
    keys: Any
    value_ends: Any
    value_valid: Any
    values: Any
    list_ends: Any = None  # counts headers
    list_valid: Any = None
    header_key_ends: Any = None
    header_keys: Any = None  # bytes that should be UTF-8: that is not looked at
    header_value_ends: Any = None
    header_value_valid: Any = None
    header_values: Any = None


class Decoded(NamedTuple):
    """How far the records of a body were taken."""

    records: int  # all until now: the number of the next one
    position: int  # where that one begins, or where the body ends
    previous: int  # offset delta of the record before it, -1: there is none
    problem: int  # with it; `PROBLEMS` has the words
    stopped: int  # why, if neither at a problem nor at the end: see `python_columns`


class DecodedRun(NamedTuple):
    """How far a run of batches was taken."""

    at: int  # where the next batch begins, or where the run ends
    position: int  # of its next record; 0: it is not begun
    records: int  # the number of that one
    previous: int  # see `Decoded`
    problem: int
    stopped: int
    start: int  # the first offset that is wanted now: behind all batches that were taken


NOT_DECODED: Final = Decoded(0, 0, -1, 0, 0)

_Decode = Callable[..., tuple[int, ...]]


class Decoder(NamedTuple):
    """One of the two implementations."""

    name: str
    decode: _Decode
    decode_run: _Decode


PYTHON: Final = Decoder("python", python_columns.decode, python_columns.decode_run)


def _load() -> Decoder:
    if os.environ.get(FORCED_BY) != "python":
        try:
            from holdfast.wire.walker import compiled_columns  # noqa: PLC0415 - if it was built
        except ImportError:
            pass
        else:
            return Decoder("compiled", compiled_columns.decode, compiled_columns.decode_run)
    return PYTHON


DECODER: Final = _load()
"""Which one runs here; for tests, the same variable chooses it as chooses the record walker."""


class Columns:
    """Rows that grow, of any number of batches, up to a number of rows and of bytes.

    `allocate` makes writable memory of so many bytes, whose content does not matter.
    """

    def __init__(
        self,
        allocate: Callable[[int], Any],
        *,
        rows_max: int,
        bytes_max: int,
        headers: bool = False,
        decoder: Decoder = DECODER,
    ) -> None:
        """Nothing is allocated yet. `bytes_max` bounds each column that is made of bytes.

        For a single record that is larger they grow, up to twice what it needs.
        """
        assert 0 < rows_max <= INT32_MAX // 8, "rows are counted in 32 bits"
        assert 0 < bytes_max <= INT32_MAX // 2, "bytes are counted in 32 bits"
        self._allocate = allocate
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._headers = headers
        self._decode, self._decode_run = decoder.decode, decoder.decode_run
        self._sizes = _first_sizes(rows_max, bytes_max, headers=headers)
        self._rooms: list[Any] = []
        self._views: tuple[Room, ...] = ()
        self._filled: tuple[int, ...] = Filled()  # a plain tuple: there are many small batches

    @property
    def rows(self) -> int:
        """How many rows there are now."""
        return self._filled[0]

    def add(self, body: Buffer, numbers: Numbers, decoded: Decoded = NOT_DECODED) -> Decoded:
        """Take a batch's records, from where the last call came.

        It ends at the batch's end, at the window's (`BEHIND`), at a problem, or when the columns
        are full: `take` them then, and go on.
        """
        while True:
            if not self._rooms:
                self._open()
            place: Place = decoded.position, decoded.records, decoded.previous
            told = self._decode(body, place, numbers, self._views, self._filled)
            decoded = Decoded._make(told[:5])
            self._filled = told[5:]
            stopped = decoded.stopped
            if decoded.problem or stopped <= BEHIND or not self._make_room(stopped, len(body)):
                return decoded

    def add_run(
        self, data: Buffer, decoded: DecodedRun, until: int, end: int, *, is_stamped: bool
    ) -> DecodedRun:
        """Take the batches of `data` up to `until`, from where the last call came.

        They are not compressed, and their checksums were looked at. `end` is behind the last offset
        that is wanted. It ends as `add` does.
        """
        while True:
            if not self._rooms:
                self._open()
            window = int(is_stamped), decoded.start, end
            told = self._decode_run(data, decoded[:4], until, window, self._views, self._filled)
            decoded = DecodedRun._make(told[:7])
            self._filled = told[7:]
            stopped = decoded.stopped
            if decoded.problem or stopped <= BEHIND or not self._make_room(stopped, len(data)):
                return decoded

    def take(self) -> tuple[Rooms, Filled]:
        """Return what there is, and begin anew in other rooms."""
        missing = [None] * (ROOMS_WITH_HEADERS - len(self._rooms))
        rooms, filled = Rooms._make([*self._rooms, *missing]), Filled._make(self._filled)
        self._rooms, self._views, self._filled = [], (), Filled()
        # A record that had needed more than others may have is no measure for the next ones.
        self._sizes = {which: min(size, self._most(which)) for which, size in self._sizes.items()}
        return rooms, filled

    def _most(self, which: int) -> int:
        return self._rows_max if which == NO_ROWS else self._bytes_max

    def _make_room(self, which: int, body_bytes: int) -> bool:
        """Make a room larger. False: the columns are as large as they may be."""
        size, most = self._sizes[which], self._most(which)
        if size < most:
            self._sizes[which] = min(2 * size, most)
        elif self.rows:
            return False
        else:  # all of one record's fields are in its body
            assert which != NO_ROWS, "no room for a first row"
            assert size < body_bytes, "a record that no room can hold"
            self._sizes[which] = min(max(2 * size, 1), max(body_bytes, size + 1))
        self._regrow()
        return True

    def _open(self) -> None:
        """Make all rooms."""
        self._rooms = [self._allocate(size) for size in self._bytes_of_rooms()]
        self._views = tuple(memoryview(room).cast("B") for room in self._rooms)
        for number in _ENDS:
            if number < len(self._views):
                self._views[number][:4] = bytes(4)

    def _regrow(self) -> None:
        """Make the rooms larger whose size has changed, and copy what they hold."""
        views = list(self._views)
        for number, size in enumerate(self._bytes_of_rooms()):
            before = views[number]
            if size > len(before):
                self._rooms[number] = self._allocate(size)
                views[number] = memoryview(self._rooms[number]).cast("B")
                views[number][: len(before)] = before
        self._views = tuple(views)

    def _bytes_of_rooms(self) -> list[int]:
        sizes = self._sizes
        rows = sizes[NO_ROWS]
        longs, ends, bits = rows * 8, (rows + 1) * 4, (rows + 7) // 8
        rooms = [longs, longs, ends, bits, sizes[NO_KEYS], ends, bits, sizes[NO_VALUES]]
        if self._headers:
            headers = sizes[NO_HEADERS]
            header_ends, header_bits = (headers + 1) * 4, (headers + 7) // 8
            rooms += [ends, bits, header_ends, sizes[NO_HEADER_KEYS]]
            rooms += [header_ends, header_bits, sizes[NO_HEADER_VALUES]]
        return rooms


# Numbers of the rooms in which values' ends are.
_ENDS: Final = tuple(number for number, name in enumerate(Rooms._fields) if name.endswith("_ends"))


def _first_sizes(rows_max: int, bytes_max: int, *, headers: bool) -> dict[int, int]:
    """Return how many rows, bytes and headers to begin with; doubled where that is too few."""
    first = min(_FIRST_BYTES, bytes_max)
    sizes = {NO_ROWS: rows_max, NO_KEYS: first, NO_VALUES: first}
    if headers:
        sizes |= {NO_HEADERS: min(_FIRST_HEADERS, bytes_max)}
        sizes |= {NO_HEADER_KEYS: first, NO_HEADER_VALUES: first}
    return sizes
