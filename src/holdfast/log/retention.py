"""Whether the oldest segment of a log may be deleted, and why.

Owns the rule alone; `Log.retention` carries it out. A segment is as old as the largest timestamp of
its records, whoever wrote it: what is filled in later with honest old timestamps expires at once,
as in Apache Kafka. Where no record has any, the last write to its file counts.

Rules: log.md#retention.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.config.topic import TopicSettings
from holdfast.log.segments import Segments
from holdfast.runtime.ports import Disk


class Extent(NamedTuple):
    """How much of a log there is: from one offset up to another, in so many bytes."""

    start: int
    end: int
    size: int


def why_due(
    segments: Segments,
    settings: TopicSettings,
    disk: Disk,
    extent: Extent,
    *,
    upper_bound: int,
    now_ms: int,
) -> str:
    """Say why the oldest segment may go now, in words for the log; "": it may not.

    Nothing that reaches beyond `upper_bound` may go. OSError, CorruptFileError: from the segment.
    """
    segment = segments.all[0]
    is_active = segment is segments.active
    segment_end = extent.end if is_active else segments.bases[1]
    if segment_end > upper_bound or (is_active and not segment.size):
        return ""
    if not is_active and segment_end <= extent.start:
        return f"the log starts at {extent.start}"
    if "delete" not in settings.cleanup_policy:
        return ""
    if settings.retention_ms >= 0:
        newest, which = segment.max_timestamp[0], "the largest timestamp of the records"
        if newest < 0:
            newest = disk.modified_ms(segment.log_path)
            which = "the records have no timestamps, and the last write to their file"
        age_ms = now_ms - newest
        if age_ms > settings.retention_ms:
            return f"{which}, {newest}, is {age_ms} ms ago, retention.ms={settings.retention_ms}"
    left = extent.size - segment.size
    if 0 <= settings.retention_bytes <= left:
        return f"without them the log has {left} bytes, retention.bytes={settings.retention_bytes}"
    return ""
