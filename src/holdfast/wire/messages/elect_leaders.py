"""ElectLeaders (key 43), versions 0 to 2.

Election types: 0 preferred, 1 unclean. Null topics ask for all partitions. Version 0 has no error
of its own: what concerns the whole request stands beside each partition only.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    Request,
    Struct,
    ThrottledResponse,
    array,
    int8,
    int16,
    int32,
    string,
)


class TopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ElectLeadersRequest(Request, key=43, versions=(0, 2), flexible=2):
    election_type: int = int8(since=1)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable=0)
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(ThrottledResponse, key=43, versions=(0, 2), flexible=2):
    error_code: int = int16(since=1, ignorable=True)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
