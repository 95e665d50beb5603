"""BeginQuorumEpoch (key 53), versions 0 to 1.

The new leader of the metadata log tells the other voters of itself.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    string,
    uint16,
    uuid,
)


class RequestPartitionData(Struct):
    partition_index: int = int32()
    voter_directory_id: bytes = uuid(since=1, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()


class RequestTopicData(Struct):
    topic_name: str = string()
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


class LeaderEndpoint(Struct):
    name: str = string(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


class BeginQuorumEpochRequest(Request, key=53, versions=(0, 1), flexible=1):
    cluster_id: str | None = string(nullable=0, default=None)
    voter_id: int = int32(since=1, ignorable=True, default=-1)
    topics: list[RequestTopicData] = array(RequestTopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, since=1, ignorable=True)


class ResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class ResponseTopicData(Struct):
    topic_name: str = string()
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


class BeginQuorumEpochResponse(Response, key=53, versions=(0, 1), flexible=1):
    error_code: int = int16()
    topics: list[ResponseTopicData] = array(ResponseTopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=1, tag=0, ignorable=True)
