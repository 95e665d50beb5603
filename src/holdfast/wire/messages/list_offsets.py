"""ListOffsets (key 2), versions 1 to 11.

Timestamps below zero ask for the log's ends (rules: fetch.md#special-timestamps).
"""

from __future__ import annotations

from holdfast.wire.schema import Request, Response, Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    partition_index: int = int32()
    current_leader_epoch: int = int32(since=4, ignorable=True, default=-1)
    timestamp: int = int64()


class ListOffsetsTopic(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Request, key=2, versions=(1, 11), flexible=6):
    replica_id: int = int32(default=-1)  # Kafka's schema says 0, which is a broker
    isolation_level: int = int8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32(since=4, default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Response, key=2, versions=(1, 11), flexible=6):
    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
