"""Finding records by timestamp: the one place in the log that looks into a batch.

Owns ListOffsets' walks. How many batches have to be opened, their headers decide, and a header may
lie: so a look-up goes on from slice to slice, and what it has learnt is where to go on. A batch
that nobody can read is passed over; the disk is not to blame for it.

Rules: fetch.md#search-by-timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from holdfast.log.segment import Segment
from holdfast.runtime.ports import Buffer
from holdfast.runtime.sliced_work import HOLD, REST, Effort, Steps, inflated
from holdfast.wire.batch_header import HEADER_SIZE, BatchHeader
from holdfast.wire.errors import WireError

HEADER_EFFORT: Final = 1 / 500
SEGMENT_EFFORT: Final = 1 / 500
OPENING_EFFORT: Final = 1 / 50
_LONG_AGO: Final = -(2**63)


class FoundRecord(NamedTuple):
    """A record found by its timestamp: its offset, timestamp (ms) and leader epoch."""

    offset: int
    timestamp: int
    epoch: int


class Place(NamedTuple):
    """Where to go on in a log."""

    segment: Segment
    position: int


class Candidate(NamedTuple):
    """A batch that may have what is wanted, as far as its header tells."""

    header: BatchHeader
    data: bytes
    start: int  # the log's: what lies before it is gone


# Returns where to go on, None at the log's end, and with it a batch to open, if one was met.
Look: TypeAlias = Callable[[Place | None], tuple[Place | None, Candidate | None]]


# The largest timestamp that was met, and where to go on; None: at the end.
Scanned: TypeAlias = tuple[int, int | None]


class Wanted(NamedTuple):
    """What a look-up is for: the first record stamped so or later."""

    timestamp: int
    is_largest: bool = False  # it is the largest that any header claims; if none has it, the next


def find(look: Look, wanted: Wanted, size_max: int, effort: Effort) -> Steps[FoundRecord | None]:
    """Open one batch after another until one has what is wanted.

    Of batches that inflate to more than `size_max` bytes nothing is known.
    """
    best: FoundRecord | None = None
    place, candidate = look(None)
    while True:
        if candidate is not None:
            effort.spent += OPENING_EFFORT
            found = yield from _open(candidate, wanted, size_max, effort)
            if found is not None and found.timestamp >= wanted.timestamp:
                return found
            if best is None or (found is not None and found.timestamp > best.timestamp):
                best = found
        if place is None:
            return best
        if effort.is_over:
            yield REST
            effort.spent = 0
        place, candidate = look(place)


def next_batch(
    segments: Sequence[Segment],
    bounds: tuple[int, int],
    timestamp: int,
    place: Place | None,
    effort: Effort,
) -> tuple[Place | None, Candidate | None]:
    """Scan on from `place` for a batch between two offsets that claims `timestamp` or later."""
    start, end = bounds
    index = 0
    if place is not None:
        while index < len(segments) and segments[index] is not place.segment:
            index += 1
        if index == len(segments):
            index, place = 0, None  # it was deleted: what was looked through is gone, too
    for segment in segments[index:]:
        effort.spent += SEGMENT_EFFORT
        if place is not None and segment is place.segment:
            position = place.position
        elif segment.max_timestamp[0] < timestamp:
            continue
        else:
            offset = max(segment.times.floor(timestamp), start)
            position = segment.offsets.floor(offset)
        for at, header in segment.headers(position):
            effort.spent += HEADER_EFFORT
            if header.base_offset >= end:
                return None, None
            behind = Place(segment, at + header.size)
            if header.max_timestamp >= timestamp and header.last_offset >= start:
                return behind, Candidate(header, segment.read(at, header.size), start)
            if effort.is_over:
                return behind, None
    return None, None


def largest_claim(segments: Sequence[Segment]) -> int:
    """Return the largest timestamp that any batch claims; -1: none has any."""
    return max((segment.max_timestamp[0] for segment in segments), default=-1)


def largest_filled(
    segments: Callable[[], Sequence[Segment]],
    scan: Callable[[Segment, int], Scanned],
    effort: Effort,
) -> Steps[int]:
    """Look for the largest timestamp that a batch with records claims; -1: none has any.

    What compaction has emptied claims what it claimed before. `segments` are those that are there,
    and are asked again after each rest; `scan` goes through the headers of one, from a position on.
    """
    largest, seen = -1, set[Segment]()
    is_changed = True
    while is_changed:
        there, is_changed = set(segments()), False
        effort.spent += len(there) * SEGMENT_EFFORT
        left = sorted(there - seen, key=lambda each: (-each.max_timestamp[0], each.base))
        for segment in left:
            if segment.max_timestamp[0] <= largest:
                break
            seen.add(segment)
            position: int | None = 0
            while position is not None and segment in there:
                found, position = scan(segment, position)
                largest = max(largest, found)
                if effort.is_over:
                    yield REST
                    effort.spent = 0
                    there = set(segments())
            # Others have come into the place of what was compacted meanwhile: they have their turn.
            is_changed = is_changed or segment not in there
    return largest


def scan_filled(segment: Segment, position: int, effort: Effort) -> Scanned:
    """Go through headers for as long as that takes no longer than a slice."""
    largest = -1
    for at, header in segment.headers(position):
        effort.spent += HEADER_EFFORT
        if header.record_count:
            largest = max(largest, header.max_timestamp)
        if effort.is_over:
            return largest, at + header.size
    return largest, None


def _open(
    candidate: Candidate, wanted: Wanted, size_max: int, effort: Effort
) -> Steps[FoundRecord | None]:
    """Look into one batch. None: it does not have what is wanted, or nobody can read it."""
    from holdfast.wire.walker.record_walker import (  # noqa: PLC0415 - see there
        NOTHING,
        STEPS_A_SLICE,
        walk_on,
    )

    header, data, _ = candidate
    try:
        body = yield from inflated(header.codec, memoryview(data)[HEADER_SIZE:], size_max, effort)
    except WireError:
        return None
    found = yield from _first(candidate, body, wanted.timestamp, effort)
    if found is not None or not wanted.is_largest:
        return found
    walked = NOTHING
    while walked.records < header.record_count and walked.position < len(body):
        most = header.record_count - walked.records
        walked = walk_on(body, walked, header.base_timestamp, most)
        if walked.problem:
            return None
        effort.spent += walked.steps / STEPS_A_SLICE
        if effort.is_over:
            yield HOLD
            effort.spent = 0
    return (yield from _first(candidate, body, walked.largest, effort))


def _first(
    candidate: Candidate, body: Buffer, timestamp: int, effort: Effort
) -> Steps[FoundRecord | None]:
    """Return a batch's first record that is stamped `timestamp` or later."""
    from holdfast.wire.walker.record_walker import (  # noqa: PLC0415 - see there
        NOWHERE,
        STEPS_A_SLICE,
        seek_on,
    )

    header, _, start = candidate
    stamp = header.max_timestamp if header.is_log_append_time else None  # of all its records
    since = timestamp if stamp is None else _LONG_AGO
    wanted = since, max(start - header.base_offset, 0), header.last_offset_delta
    sought = NOWHERE
    while sought.records < header.record_count and sought.position < len(body):
        most = header.record_count - sought.records
        sought = seek_on(body, sought, header.base_timestamp, wanted, most)
        if sought.offset_delta >= 0:
            return FoundRecord(
                header.base_offset + sought.offset_delta,
                sought.timestamp if stamp is None else stamp,
                header.leader_epoch,
            )
        if sought.problem:
            return None
        effort.spent += sought.steps / STEPS_A_SLICE
        if effort.is_over and sought.records < header.record_count:
            yield HOLD
            effort.spent = 0
    return None
