"""OffsetForLeaderEpoch (key 23), versions 2 to 4.

Replica -2 is a debugging consumer, -1 a consumer.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    Request,
    Struct,
    ThrottledResponse,
    array,
    int16,
    int32,
    int64,
    string,
)


class OffsetForLeaderPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Request, key=23, versions=(2, 4), flexible=4):
    replica_id: int = int32(since=3, ignorable=True, default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(ThrottledResponse, key=23, versions=(2, 4), flexible=4):
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
