"""FetchSnapshot (key 59), versions 0 to 1.

A piece of a snapshot of the metadata log, from a byte position on; it need not begin or end where a
batch does.
"""

from __future__ import annotations

from holdfast.wire.messages.parts import NamedTopic
from holdfast.wire.schema import (
    RefusableResponse,
    Request,
    Struct,
    array,
    batches,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)
from holdfast.wire.structs import QuorumNode


class SnapshotId(Struct):
    end_offset: int = int64()
    epoch: int = int32()


class PartitionSnapshotRequest(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = struct(SnapshotId)
    position: int = int64()
    replica_directory_id: bytes = uuid(since=1, tag=0, ignorable=True)


class TopicSnapshotRequest(NamedTopic):
    partitions: list[PartitionSnapshotRequest] = array(PartitionSnapshotRequest)


class FetchSnapshotRequest(Request, key=59, versions=(0, 1), flexible=0):
    cluster_id: str | None = string(nullable=0, tag=0, ignorable=True, default=None)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=2_147_483_647)
    topics: list[TopicSnapshotRequest] = array(TopicSnapshotRequest)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32()
    leader_epoch: int = int32()


class PartitionSnapshot(Struct):
    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotId = struct(SnapshotId)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, tag=0, ignorable=True)
    size: int = int64()
    position: int = int64()
    unaligned_records: memoryview | bytes = batches(default=b"")


class TopicSnapshot(NamedTopic):
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot)


class FetchSnapshotResponse(RefusableResponse, key=59, versions=(0, 1), flexible=0):
    topics: list[TopicSnapshot] = array(TopicSnapshot)
    node_endpoints: list[QuorumNode] = array(QuorumNode, since=1, tag=0, ignorable=True)
