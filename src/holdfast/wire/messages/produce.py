"""Produce (key 0), versions 3 to 13.

Versions below 3 carried older batches; brokers advertise 0 all the same (rules:
connections.md#produce-from-version-0). Version 13 names topics by id. `hot` reads and writes the
flexible versions by hand. Where the leader is now (KIP-951) is a hint: unlike Kafka's schema, ours
lets versions without a place for it drop it.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    Request,
    Response,
    Struct,
    array,
    batches,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)
from holdfast.wire.structs import LeaderIdAndEpoch, LeaderNode


class PartitionProduceData(Struct):
    index: int = int32()
    records: memoryview | bytes | None = batches(nullable=0)


class TopicProduceData(Struct):
    name: str = string(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request, key=0, versions=(3, 13), flexible=9):
    transactional_id: str | None = string(nullable=0, default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32(since=8)
    batch_index_error_message: str | None = string(since=8, nullable=8, default=None)


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64(since=5, ignorable=True, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, since=8, ignorable=True
    )
    error_message: str | None = string(since=8, nullable=8, ignorable=True, default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, since=10, tag=0, ignorable=True)


class TopicProduceResponse(Struct):
    name: str = string(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class ProduceResponse(Response, key=0, versions=(3, 13), flexible=9):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[LeaderNode] = array(LeaderNode, since=10, tag=0, ignorable=True)
