"""Vote (key 52), versions 0 to 2.

A voter asks the others for their votes, or (from 2 on) whether they would vote for it (KIP-996).
From 1 on voters are told apart by their directories too (KIP-853).
"""

from __future__ import annotations

from holdfast.wire.messages.parts import IndexedPartition, QuorumTopic
from holdfast.wire.schema import (
    Request,
    Response,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uuid,
)
from holdfast.wire.structs import QuorumEpochPartition, QuorumNode


class RequestPartitionData(IndexedPartition):
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=1, ignorable=True)
    voter_directory_id: bytes = uuid(since=1, ignorable=True)
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean(since=2)


class RequestTopicData(QuorumTopic):
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


class VoteRequest(Request, key=52, versions=(0, 2), flexible=0):
    cluster_id: str | None = string(nullable=0, default=None)
    voter_id: int = int32(since=1, ignorable=True, default=-1)
    topics: list[RequestTopicData] = array(RequestTopicData)


class ResponsePartitionData(QuorumEpochPartition):
    vote_granted: bool = boolean()


class ResponseTopicData(QuorumTopic):
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


class VoteResponse(Response, key=52, versions=(0, 2), flexible=0):
    error_code: int = int16()
    topics: list[ResponseTopicData] = array(ResponseTopicData)
    node_endpoints: list[QuorumNode] = array(QuorumNode, since=1, tag=0, ignorable=True)
