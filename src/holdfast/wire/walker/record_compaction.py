"""Compaction's two calls on a batch's records, as they lie there inflated: which, and their words.

Owns the choice between the two implementations, which differ in speed only. Whoever works on the
loop makes a slice of steps in one go at most, and then goes on from where it stopped, which may be
in the middle of a record's headers. The compiled ones let the interpreter go where a body is large,
so they belong into the worker. Imported when a log is first compacted, not before.

Rules: compaction.md#which-records-stay.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from holdfast.wire.walker import python_compaction
from holdfast.wire.walker.python_compaction import Place
from holdfast.wire.walker.python_walker import STEPS_OF_RECORD, Buffer
from holdfast.wire.walker.record_walker import FORCED_BY
from holdfast.wire.walker.record_walker import PROBLEMS as PROBLEMS_OF_RECORDS

PROBLEMS: Final = (
    *PROBLEMS_OF_RECORDS,
    "a record's offset is not behind the one before it, or not in its batch",
)
_HEAP_MAX: Final = 1 << 20
_GROWTH_BYTES: Final = 14  # of a record whose timestamp delta and length take all that they may


class KeyMap(Protocol):
    """Keys and the last offset of each; see `python_compaction.KeyMap`."""

    limit: int  # so many keys there may be

    def __len__(self) -> int: ...


class Entered(NamedTuple):
    """How far the records of a body were looked at, and their keys entered."""

    records: int  # all until now: the number of the next one
    position: int  # where that one begins, or where the body ends
    problem: int  # with it; `PROBLEMS` has the words
    inside: int  # where its next header begins; 0: none of them was looked at
    headers: int  # how many are left there
    previous: int  # offset delta of the record before it
    steps: int  # that the last go made
    is_full: int  # 1: the map has no room for its key


class Kept(NamedTuple):
    """How far the records of a body were looked at, and what was copied of them."""

    records: int  # see `Entered`
    position: int
    problem: int
    inside: int
    headers: int
    previous: int
    steps: int
    kept: int  # so many stay
    tombstones: int  # so many of these have no value
    keyless: int  # so many went because they have no key
    largest: int  # the largest timestamp of those that stay, -1: none has any
    filled: int  # where the next one is copied to


NOT_ENTERED: Final = Entered(0, 0, 0, 0, 0, -1, 0, 0)


class Compactor(NamedTuple):
    """One of the two implementations."""

    name: str
    is_native: bool  # it works without the interpreter, so in the worker
    records_a_slice: int  # what it may do in one go on the loop, in a millisecond or so
    key_map: Callable[[int, bytes], KeyMap]
    enter: Callable[..., tuple[int, ...]]
    keep: Callable[..., tuple[int, ...]]

    @property
    def steps_a_slice(self) -> int:
        return self.records_a_slice * STEPS_OF_RECORD


PYTHON: Final = Compactor(
    "python", False, 200, python_compaction.KeyMap, python_compaction.enter, python_compaction.keep
)


def _load() -> Compactor:
    if os.environ.get(FORCED_BY) != "python":
        try:
            from holdfast.wire.walker import compiled_compaction as native  # noqa: PLC0415 - if built
        except ImportError:
            pass
        else:
            return Compactor("compiled", True, 10_000, native.KeyMap, native.enter, native.keep)
    return PYTHON


COMPACTOR: Final = _load()
"""Which one runs here; for tests, the same variable chooses it as chooses the record walker."""


class Numbers(NamedTuple):
    """What the calls need to know of a batch and of the round."""

    last_delta: int  # of the batch: no record has a larger one
    base_offset: int
    base_timestamp: int
    start: int  # keys are entered from this offset on
    bound: int  # the map knows nothing of what comes from this offset on
    drops_tombstones: bool


def enter_on(
    compactor: Compactor,
    body: Buffer,
    entered: Entered,
    numbers: Numbers,
    key_map: KeyMap | None,
    most: int,
    steps: int,
) -> Entered:
    """Look at `most` more records at most, for so many steps, and enter their keys into a map."""
    given = numbers.last_delta, numbers.base_offset, numbers.start
    return Entered._make(compactor.enter(body, _place(entered), most, steps, given, key_map))


def keep_on(
    compactor: Compactor,
    body: Buffer,
    kept: Kept,
    numbers: Numbers,
    key_map: KeyMap,
    most: int,
    steps: int,
    room: bytearray | memoryview,
    *,
    shift: int = 0,
) -> Kept:
    """Copy what stays of `most` more records at most, for so many steps.

    `shift` is added to each timestamp delta; `room_for` says how much room that takes.
    """
    given = (
        numbers.last_delta, numbers.base_offset, numbers.base_timestamp, numbers.bound,
        int(numbers.drops_tombstones), shift,
    )  # fmt: skip
    here = Kept._make(
        compactor.keep(body, _place(kept), most, steps, given, key_map, room, kept.filled)
    )
    if not kept.records:
        return here
    return here._replace(
        kept=kept.kept + here.kept,
        tombstones=kept.tombstones + here.tombstones,
        keyless=kept.keyless + here.keyless,
        largest=max(kept.largest, here.largest),
    )


def nothing_kept(filled: int) -> Kept:
    """Return what `keep_on` begins with; records are copied behind the room's first bytes."""
    return Kept(0, 0, 0, 0, 0, -1, 0, 0, 0, 0, -1, filled)


def new_room(size: int) -> memoryview:
    """Return memory to copy into; where it is large, its pages come as they are written."""
    return memoryview(bytearray(size) if size <= _HEAP_MAX else mmap.mmap(-1, size))


def room_for(body_bytes: int, records: int, *, shifted: bool) -> int:
    """Return the bytes that what stays of a body may take."""
    return body_bytes + (records * _GROWTH_BYTES if shifted else 0)


def _place(at: Entered | Kept) -> Place:
    return at.position, at.records, at.inside, at.headers, at.previous
