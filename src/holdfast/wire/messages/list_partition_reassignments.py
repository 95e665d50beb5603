"""ListPartitionReassignments (key 46), version 0 (KIP-455). Null topics ask for all of them."""

from __future__ import annotations

from holdfast.wire.messages.parts import IndexedPartition, NamedTopic
from holdfast.wire.schema import ExplainedResponse, Request, array, int32


class ListPartitionReassignmentsTopics(NamedTopic):
    partition_indexes: list[int] = array(int32)


class ListPartitionReassignmentsRequest(Request, key=46, versions=(0, 0), flexible=0):
    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable=0, default=None
    )


class OngoingPartitionReassignment(IndexedPartition):
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


class OngoingTopicReassignment(NamedTopic):
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(ExplainedResponse, key=46, versions=(0, 0), flexible=0):
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
