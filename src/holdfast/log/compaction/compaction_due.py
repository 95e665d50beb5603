"""What of a log may be compacted, how much of that is dirty, and whether a round is due. Pure.

Owns the rule alone. Every replica compacts for itself what is sealed, committed and synced; what of
it is dirty begins where the last round's map of keys ended.

Rules: compaction.md#what-is-dirty, compaction.md#when-a-round-is-due.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from holdfast.config.topic import TopicSettings


class SegmentFacts(NamedTuple):
    """What has to be known of a sealed segment before it is opened."""

    base: int
    size: int  # bytes
    first_timestamp: int  # the largest one of its first batch, -1 for none
    largest_timestamp: int  # where no record has any, that of the last write to the file
    offset_index_bytes: int
    time_index_bytes: int


class Bounds(NamedTuple):
    """What a log says of itself."""

    start: int  # log start offset
    active: int  # base of the segment that is written
    stable: int  # the first offset that is not committed, or not decided
    recovery_point: int
    end: int  # log end offset


class Dirty(NamedTuple):
    """The part of a log whose keys are to be looked at, and why that is due or not."""

    first: int  # the checkpoint, or the log's start where that can't be
    bound: int  # base of the first segment that may not be touched
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool  # its oldest record is older than max.compaction.lag.ms
    look_again_ms: int | None  # when time alone may change this answer; None: it can't

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, settings: TopicSettings) -> bool:
        if not self.dirty_bytes:
            return False
        return self.is_overdue or self.ratio > settings.min_cleanable_dirty_ratio


def what_is_dirty(
    sealed: Sequence[SegmentFacts],
    bounds: Bounds,
    checkpoint: int | None,
    settings: TopicSettings,
    now_ms: int,
) -> Dirty:
    """Say what of a log is dirty. `sealed`: all segments but the active one, the oldest first.

    A checkpoint outside of the log says nothing: then all of it is dirty.
    """
    assert all(first.base < second.base for first, second in pairwise(sealed))
    assert not sealed or sealed[-1].base < bounds.active
    first = bounds.start
    if checkpoint is not None and bounds.start <= checkpoint <= bounds.end:
        first = checkpoint
    ranges = with_ends(sealed, bounds.active)
    young = _first_young(ranges, first, settings.min_compaction_lag_ms, now_ms)
    limit = min(bounds.stable, bounds.recovery_point)
    if young is not None:
        limit = min(limit, young.base)
    bound = sealed[0].base if sealed else bounds.active
    for _, end in ranges:
        if end <= limit:
            bound = end
    stamps = [
        facts.first_timestamp for facts, end in ranges if end > first and facts.first_timestamp > 0
    ]
    overdue_ms = min(stamps) + settings.max_compaction_lag_ms + 1 if stamps else None
    is_overdue = overdue_ms is not None and overdue_ms <= now_ms
    later = [] if overdue_ms is None or is_overdue else [overdue_ms]
    if young is not None:
        later.append(young.largest_timestamp + settings.min_compaction_lag_ms)
    return Dirty(
        first=first,
        bound=bound,
        clean_bytes=sum(facts.size for facts in sealed if facts.base < first),
        dirty_bytes=sum(facts.size for facts, end in ranges if end > first and facts.base < bound),
        is_overdue=is_overdue,
        look_again_ms=min(later, default=None),
    )


def with_ends(segments: Sequence[SegmentFacts], end: int) -> Sequence[tuple[SegmentFacts, int]]:
    """Return each segment with the offset where the following one begins, the last one's `end`."""
    ends = [*(facts.base for facts in segments[1:]), end]
    return list(zip(segments, ends, strict=False))


def _first_young(
    ranges: Sequence[tuple[SegmentFacts, int]], first: int, lag_ms: int, now_ms: int
) -> SegmentFacts | None:
    """Return the first dirty segment with a record that may not be compacted yet."""
    if lag_ms <= 0:
        return None
    for facts, end in ranges:
        if end > first and facts.largest_timestamp > now_ms - lag_ms:
            return facts
    return None
