"""EndQuorumEpoch (key 54), versions 0 to 1.

A leader of the metadata log steps down, and says who should stand for election first.
"""

from __future__ import annotations

from holdfast.wire.messages.parts import IndexedPartition, QuorumTopic
from holdfast.wire.schema import (
    Request,
    Struct,
    array,
    int32,
    string,
    uuid,
)
from holdfast.wire.structs import QuorumEndpoint, QuorumEpochResponse


class ReplicaInfo(Struct):
    candidate_id: int = int32(since=1)
    candidate_directory_id: bytes = uuid(since=1)


class RequestPartitionData(IndexedPartition):
    leader_id: int = int32()
    leader_epoch: int = int32()
    preferred_successors: list[int] = array(int32, until=0, ignorable=True)
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, since=1, ignorable=True)


class RequestTopicData(QuorumTopic):
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


class EndQuorumEpochRequest(Request, key=54, versions=(0, 1), flexible=1):
    cluster_id: str | None = string(nullable=0, default=None)
    topics: list[RequestTopicData] = array(RequestTopicData)
    leader_endpoints: list[QuorumEndpoint] = array(QuorumEndpoint, since=1, ignorable=True)


class EndQuorumEpochResponse(QuorumEpochResponse, key=54, versions=(0, 1), flexible=1):
    """Says whom it follows now."""
