"""AlterPartitionReassignments (key 45), versions 0 and 1 (KIP-455).

Null replicas cancel the partition's reassignment. Version 1 lets the caller forbid that the number
of replicas changes.
"""

from __future__ import annotations

from holdfast.wire.messages.parts import AnsweredPartition, IndexedPartition, NamedTopic
from holdfast.wire.schema import (
    Request,
    ThrottledResponse,
    array,
    boolean,
    int16,
    int32,
    string,
)


class ReassignablePartition(IndexedPartition):
    replicas: list[int] | None = array(int32, nullable=0, default=None)


class ReassignableTopic(NamedTopic):
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Request, key=45, versions=(0, 1), flexible=0):
    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(AnsweredPartition):
    error_message: str | None = string(nullable=0)


class ReassignableTopicResponse(NamedTopic):
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(ThrottledResponse, key=45, versions=(0, 1), flexible=0):
    allow_replication_factor_change: bool = boolean(since=1, default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
