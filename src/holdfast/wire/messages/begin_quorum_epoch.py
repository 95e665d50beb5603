"""BeginQuorumEpoch (key 53), versions 0 to 1.

The new leader of the metadata log tells the other voters of itself.
"""

from __future__ import annotations

from holdfast.wire.messages.parts import IndexedPartition, QuorumTopic
from holdfast.wire.schema import (
    Request,
    array,
    int32,
    string,
    uuid,
)
from holdfast.wire.structs import QuorumEndpoint, QuorumEpochResponse


class RequestPartitionData(IndexedPartition):
    voter_directory_id: bytes = uuid(since=1, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()


class RequestTopicData(QuorumTopic):
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


class BeginQuorumEpochRequest(Request, key=53, versions=(0, 1), flexible=1):
    cluster_id: str | None = string(nullable=0, default=None)
    voter_id: int = int32(since=1, ignorable=True, default=-1)
    topics: list[RequestTopicData] = array(RequestTopicData)
    leader_endpoints: list[QuorumEndpoint] = array(QuorumEndpoint, since=1, ignorable=True)


class BeginQuorumEpochResponse(QuorumEpochResponse, key=53, versions=(0, 1), flexible=1):
    """Says whom it follows now."""
