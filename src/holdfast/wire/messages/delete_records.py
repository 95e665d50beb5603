"""DeleteRecords (key 21), versions 0 to 2: everything before an offset goes; -1: all committed."""

from __future__ import annotations

from holdfast.wire.messages.parts import IndexedPartition, NamedTopic
from holdfast.wire.schema import (
    Request,
    ThrottledResponse,
    array,
    int16,
    int32,
    int64,
)


class DeleteRecordsPartition(IndexedPartition):
    offset: int = int64()


class DeleteRecordsTopic(NamedTopic):
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Request, key=21, versions=(0, 2), flexible=2):
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsPartitionResult(IndexedPartition):
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(NamedTopic):
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(ThrottledResponse, key=21, versions=(0, 2), flexible=2):
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
