"""OffsetDelete (key 47), version 0, which is not flexible.

The error of the whole request comes before the throttle time, as in no other answer.
"""

from __future__ import annotations

from holdfast.wire.messages.parts import AnsweredPartition, IndexedPartition, NamedTopic
from holdfast.wire.schema import Request, Response, array, int16, int32, string


class OffsetDeleteRequestPartition(IndexedPartition):
    """Whose offset goes."""


class OffsetDeleteRequestTopic(NamedTopic):
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Request, key=47, versions=(0, 0)):
    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(AnsweredPartition):
    """What became of one offset."""


class OffsetDeleteResponseTopic(NamedTopic):
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Response, key=47, versions=(0, 0)):
    error_code: int = int16()
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
