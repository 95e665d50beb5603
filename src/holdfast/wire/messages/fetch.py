"""Fetch (key 1), versions 4 to 18.

From 13 on topics are named by id; from 15 on a follower says who it is in a tagged struct. `hot`
reads and writes the flexible versions by hand. Where the leader is now (KIP-951) is a hint:
unlike Kafka's schema, ours lets versions without a place for it drop it.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    Request,
    Struct,
    ThrottledResponse,
    array,
    batches,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)
from holdfast.wire.structs import LeaderIdAndEpoch, LeaderNode


class ReplicaState(Struct):
    replica_id: int = int32(since=15, default=-1)
    replica_epoch: int = int64(since=15, default=-1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(since=9, ignorable=True, default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1)
    log_start_offset: int = int64(since=5, ignorable=True, default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid(since=17, tag=0, ignorable=True)
    high_watermark: int = int64(since=18, tag=1, ignorable=True, default=9_223_372_036_854_775_807)


class FetchTopic(Struct):
    topic: str = string(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string(since=7, until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partitions: list[int] = array(int32, since=7)


class FetchRequest(Request, key=1, versions=(4, 18), flexible=12):
    cluster_id: str | None = string(since=12, nullable=12, tag=0, ignorable=True, default=None)
    replica_id: int = int32(until=14, default=-1)
    replica_state: ReplicaState = struct(ReplicaState, since=15, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2_147_483_647)
    isolation_level: int = int8()
    session_id: int = int32(since=7, ignorable=True)
    session_epoch: int = int32(since=7, ignorable=True, default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11, ignorable=True)


class EpochEndOffset(Struct):
    epoch: int = int32(since=12, default=-1)
    end_offset: int = int64(since=12, default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64(since=5, ignorable=True, default=-1)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, since=12, tag=1, ignorable=True)
    snapshot_id: SnapshotId = struct(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable=0)
    preferred_read_replica: int = int32(since=11, default=-1)
    records: memoryview | bytes | None = batches(nullable=0)


class FetchableTopicResponse(Struct):
    topic: str = string(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class FetchResponse(ThrottledResponse, key=1, versions=(4, 18), flexible=12):
    error_code: int = int16(since=7, ignorable=True)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[LeaderNode] = array(LeaderNode, since=16, tag=0, ignorable=True)
