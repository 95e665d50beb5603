"""Walks a batch's records, as they lie there inflated, and makes no object of any.

Owns the choice between the two walkers, which differ in speed only, and the words for what is wrong
with a record. Whoever walks on the loop makes `STEPS_A_SLICE` steps in one go at most, and then
goes on from where the walker stopped, which may be in the middle of a record's headers: one record
may have millions of them. Imported when a record is first looked at, not before.

Rules: batches.md#the-record-walker.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, NamedTuple

from holdfast.wire.walker import python_walker
from holdfast.wire.walker.python_walker import (
    INT64_MAX,
    INT64_MIN,
    STEPS_OF_RECORD,
    Buffer,
    Place,
)

FORCED_BY: Final = "HOLDFAST_RECORD_WALKER"
"""An environment variable: "python" keeps the compiled one from being used, for tests."""


class Walked(NamedTuple):
    """How far a walk came, and what it saw on its way. Numbers of records count from 0; -1: none.

    A timestamp is ms since 1970, -1: none. What begins a batch's walk is `NOTHING`.
    """

    records: int  # all that were walked until now: the number of the next one
    position: int  # where that one begins, or where the body ends
    least: int  # the least timestamp of those that have one; meaningless if none has
    least_at: int  # the first record that has it
    largest: int  # the largest timestamp
    largest_at: int
    uncounted_at: int  # the first record whose offset delta is not its number
    keyless_at: int  # the first record without a key
    problem: int  # with record number `records`; `PROBLEMS` has the words
    inside: int  # where the next header of that record begins; 0: none of them was looked at
    headers: int  # how many are left there
    steps: int  # that the last go made


class Sought(NamedTuple):
    """Where a look for one record ended: at that record, or behind what was looked through.

    What begins it is `NOWHERE`.
    """

    records: int  # all that were looked through until now
    position: int
    offset_delta: int  # of what was found; -1: nothing yet
    timestamp: int
    problem: int  # with the record at `position`
    inside: int  # see `Walked`
    headers: int
    steps: int


PROBLEMS: Final = (
    "nothing",
    "the body ends in the middle of a record's length",
    "a record's length is negative, or more than what remains",
    "a record ends in the middle of a field",
    "a number has more bits than there is place for",
    "a key, a value or a header is longer than its record",
    "a record has a number of headers that it can't hold",
    "a header has no key",
    "a record is longer than its fields",
)
NOTHING: Final = Walked(0, 0, INT64_MAX, -1, -1, -1, -1, -1, 0, 0, 0, 0)
NOWHERE: Final = Sought(0, 0, -1, -1, 0, 0, 0, 0)

_Walk = Callable[[Buffer, Place, int, int, int], tuple[int, ...]]
_Seek = Callable[[Buffer, Place, int, int, int, tuple[int, int, int]], tuple[int, ...]]


def _load() -> tuple[str, int, _Walk, _Seek]:
    """Return a walker's name, how many records it walks in a millisecond or so, and itself."""
    if os.environ.get(FORCED_BY) != "python":
        try:
            from holdfast.wire.walker import compiled_walker  # noqa: PLC0415 - if it was built
        except ImportError:
            pass
        else:
            return "compiled", 20_000, compiled_walker.walk, compiled_walker.seek
    return "python", 200, python_walker.walk, python_walker.seek


WALKER, RECORDS_A_SLICE, _walk, _seek = _load()
"""Which one runs here, as `holdfast --version` says, and what it may do in one go on the loop."""

STEPS_A_SLICE: Final = RECORDS_A_SLICE * STEPS_OF_RECORD


def walk_on(
    body: Buffer, walked: Walked, base_timestamp: int, most: int, steps: int = STEPS_A_SLICE
) -> Walked:
    """Walk at most `most` records further, and for so many steps.

    At the end of `body`, or at a problem, it stops.
    """
    place = walked.position, walked.records, walked.inside, walked.headers
    here = Walked._make(_walk(body, place, most, steps, base_timestamp))
    if not walked.records:
        return here
    least = walked if walked.least <= here.least else here
    largest = walked if walked.largest >= here.largest else here
    return here._replace(
        least=least.least,
        least_at=least.least_at,
        largest=largest.largest,
        largest_at=largest.largest_at,
        uncounted_at=walked.uncounted_at if walked.uncounted_at >= 0 else here.uncounted_at,
        keyless_at=walked.keyless_at if walked.keyless_at >= 0 else here.keyless_at,
    )


def seek_on(
    body: Buffer,
    sought: Sought,
    base_timestamp: int,
    wanted: tuple[int, int, int],
    most: int,
    steps: int = STEPS_A_SLICE,
) -> Sought:
    """Look through at most `most` records more, and for so many steps, for the first wanted one.

    It is stamped so or later, and its offset delta lies between two others: that is `wanted`.
    """
    since, low, high = wanted
    since = min(max(since, INT64_MIN), INT64_MAX)
    place = sought.position, sought.records, sought.inside, sought.headers
    return Sought._make(_seek(body, place, most, steps, base_timestamp, (since, low, high)))
