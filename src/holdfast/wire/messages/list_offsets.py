"""ListOffsets (key 2), versions 1 to 11.

Timestamps below zero ask for the log's ends (rules: fetch.md#special-timestamps).
"""

from __future__ import annotations

from holdfast.wire.messages.parts import AnsweredPartition, IndexedPartition, NamedTopic
from holdfast.wire.schema import Request, Response, array, int8, int32, int64


class ListOffsetsPartition(IndexedPartition):
    current_leader_epoch: int = int32(since=4, ignorable=True, default=-1)
    timestamp: int = int64()


class ListOffsetsTopic(NamedTopic):
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Request, key=2, versions=(1, 11), flexible=6):
    replica_id: int = int32(default=-1)  # Kafka's schema says 0, which is a broker
    isolation_level: int = int8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10, ignorable=True)


class ListOffsetsPartitionResponse(AnsweredPartition):
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32(since=4, default=-1)


class ListOffsetsTopicResponse(NamedTopic):
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Response, key=2, versions=(1, 11), flexible=6):
    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
