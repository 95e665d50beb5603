"""Finding records by timestamp: the one place in the log that looks into a batch.

Owns ListOffsets' walks. Off the hot path; each call opens one batch at most.

Rules: fetch.md#search-by-timestamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.log.errors import CorruptFileError
from holdfast.log.segment import Segment
from holdfast.wire.batch import read_records
from holdfast.wire.batch_header import BatchHeader
from holdfast.wire.errors import WireError


class FoundRecord(NamedTuple):
    """A record found by its timestamp: its offset, timestamp (ms) and leader epoch."""

    offset: int
    timestamp: int
    epoch: int


def find_timestamp(segments: Sequence[Segment], start: int, timestamp: int) -> FoundRecord | None:
    """Return the first record from `start` on that is stamped `timestamp` or later."""
    for segment in segments:
        if segment.max_timestamp[0] < timestamp:
            continue
        offset = max(segment.times.floor(timestamp), start)
        for position, header in segment.headers(segment.offsets.floor(offset)):
            if header.max_timestamp >= timestamp and header.last_offset >= start:
                found = _first_record(segment, position, header, start, timestamp)
                if found is not None:
                    return found
    return None


def find_max_timestamp(segments: Sequence[Segment], start: int) -> FoundRecord | None:
    """Return the first record from `start` on with the largest timestamp of all."""
    best = max((segment.max_timestamp[0] for segment in segments), default=-1)
    if best < 0:
        return None
    return find_timestamp(segments, start, best)


def _first_record(
    segment: Segment, position: int, header: BatchHeader, start: int, timestamp: int
) -> FoundRecord | None:
    try:
        records = read_records(segment.read(position, header.size))
    except WireError as error:
        raise CorruptFileError(f"{segment.log_path}, batch at byte {position}: {error}") from error
    for record in records:
        if record.timestamp >= timestamp and record.offset >= start:
            return FoundRecord(record.offset, record.timestamp, header.leader_epoch)
    return None
