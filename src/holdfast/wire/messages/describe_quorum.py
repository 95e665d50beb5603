"""DescribeQuorum (key 55), versions 0 to 2.

The state of the metadata quorum, as tools show it.
"""

from __future__ import annotations

from holdfast.wire.messages.parts import AnsweredPartition, IndexedPartition, QuorumTopic
from holdfast.wire.schema import (
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    string,
    uuid,
)
from holdfast.wire.structs import QuorumEndpoint


class RequestPartitionData(IndexedPartition):
    """Which one is asked for."""


class RequestTopicData(QuorumTopic):
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


class DescribeQuorumRequest(Request, key=55, versions=(0, 2), flexible=0):
    topics: list[RequestTopicData] = array(RequestTopicData)


class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(since=1, ignorable=True, default=-1)
    last_caught_up_timestamp: int = int64(since=1, ignorable=True, default=-1)


class ResponsePartitionData(AnsweredPartition):
    error_message: str | None = string(since=2, nullable=2, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class ResponseTopicData(QuorumTopic):
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


class Node(Struct):
    node_id: int = int32(since=2)
    listeners: list[QuorumEndpoint] = array(QuorumEndpoint, since=2)


class DescribeQuorumResponse(Response, key=55, versions=(0, 2), flexible=0):
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2, ignorable=True)
    topics: list[ResponseTopicData] = array(ResponseTopicData)
    nodes: list[Node] = array(Node, since=2)
