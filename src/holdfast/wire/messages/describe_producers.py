"""DescribeProducers (key 61), version 0: which producers a partition remembers."""

from __future__ import annotations

from holdfast.wire.messages.parts import AnsweredPartition, NamedTopic
from holdfast.wire.schema import (
    Request,
    Struct,
    ThrottledResponse,
    array,
    int32,
    int64,
    string,
)


class DescribeProducersTopicRequest(NamedTopic):
    partition_indexes: list[int] = array(int32)


class DescribeProducersRequest(Request, key=61, versions=(0, 0), flexible=0):
    topics: list[DescribeProducersTopicRequest] = array(DescribeProducersTopicRequest)


class ProducerState(Struct):
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class DescribeProducersPartitionResponse(AnsweredPartition):
    error_message: str | None = string(nullable=0, default=None)
    active_producers: list[ProducerState] = array(ProducerState)


class DescribeProducersTopicResponse(NamedTopic):
    partitions: list[DescribeProducersPartitionResponse] = array(DescribeProducersPartitionResponse)


class DescribeProducersResponse(ThrottledResponse, key=61, versions=(0, 0), flexible=0):
    topics: list[DescribeProducersTopicResponse] = array(DescribeProducersTopicResponse)
