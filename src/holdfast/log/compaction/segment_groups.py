"""Which segments become one when they are compacted. Pure.

Owns the rule alone: neighbours that fit into one segment, by what they hold before.

Rules: compaction.md#groups-of-segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from holdfast.config.topic import TopicSettings
from holdfast.log.compaction.compaction_due import SegmentFacts, with_ends
from holdfast.log.index import RELATIVE_MAX

Group: TypeAlias = Sequence[SegmentFacts]

GROUP_BYTES_MAX: Final = 1 << 30
"""Tombstones grow when they are stamped, by six bytes or so; positions have 31 bits."""


def group_segments(
    segments: Sequence[SegmentFacts], bound: int, settings: TopicSettings
) -> list[Group]:
    """Return groups of neighbours, in their order; `bound` is where the last of them ends."""
    bytes_max = min(settings.segment_bytes, GROUP_BYTES_MAX)
    groups: list[list[SegmentFacts]] = []
    size = offset_index = time_index = 0  # of the last group
    for facts, end in with_ends(segments, bound):
        size += facts.size
        offset_index += facts.offset_index_bytes
        time_index += facts.time_index_bytes
        if (
            groups
            and size <= bytes_max
            and offset_index <= settings.segment_index_bytes
            and time_index <= settings.segment_index_bytes
            and (not facts.size or end - 1 - groups[-1][0].base <= RELATIVE_MAX)
        ):
            groups[-1].append(facts)
        else:
            groups.append([facts])
            size, offset_index = facts.size, facts.offset_index_bytes
            time_index = facts.time_index_bytes
    return [tuple(group) for group in groups]
