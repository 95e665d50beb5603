"""FetchSnapshot (59) on a controller, versions 0-1: a snapshot of the metadata log, in pieces.

For brokers and controllers that are behind the log's start: Fetch has told them which snapshot.
Versions: 1 carries the directory of a voter that asks.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.metadata.image_records import SnapshotId
from holdfast.core.quorum.voter_set import ReplicaKey
from holdfast.log.errors import StorageError
from holdfast.node.controller.controller import Controller
from holdfast.node.door.request_context import RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    PartitionSnapshot,
    PartitionSnapshotRequest,
    TopicSnapshot,
)
from holdfast.wire.uuids import NULL_UUID
from holdfast.wire.well_known import METADATA_TOPIC

BYTES_MAX: Final = 1024 * 1024  # of one answer, whatever is asked for


def handle_on_controller(
    controller: Controller, _context: RequestContext, request: FetchSnapshotRequest
) -> FetchSnapshotResponse:
    if request.cluster_id not in (None, controller.cluster_id):
        return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
    topic, wanted = request.topics[0], request.topics[0].partitions[0]
    found = PartitionSnapshot(
        index=wanted.partition,
        snapshot_id=wanted.snapshot_id,
        current_leader=LeaderIdAndEpoch(
            leader_id=controller.quorum.leader_id, leader_epoch=controller.epoch
        ),
    )
    found.error_code = _refuse(controller, topic.name, wanted) or _read(controller, request, found)
    return FetchSnapshotResponse(topics=[TopicSnapshot(name=topic.name, partitions=[found])])


def _refuse(controller: Controller, topic: str, wanted: PartitionSnapshotRequest) -> ErrorCode:
    if topic != METADATA_TOPIC or wanted.partition != 0:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not controller.quorum.leading:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if 0 <= wanted.current_leader_epoch < controller.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if wanted.current_leader_epoch > controller.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE


def _read(
    controller: Controller, request: FetchSnapshotRequest, found: PartitionSnapshot
) -> ErrorCode:
    """Put the piece that is asked for into the answer."""
    wanted = request.topics[0].partitions[0]
    identity = SnapshotId(wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch)
    file = controller.snapshots.files.get(identity)
    asking = ReplicaKey(request.replica_id, bytes(wanted.replica_directory_id))
    if asking.directory_id != NULL_UUID:  # a broker in a voter's process names none
        controller.quorum.replica_heard(asking)
    if file is None:
        return ErrorCode.SNAPSHOT_NOT_FOUND
    if not 0 <= wanted.position < file.size:
        return ErrorCode.POSITION_OUT_OF_RANGE
    bytes_max = max(1, min(request.max_bytes, BYTES_MAX))
    try:
        found.unaligned_records = controller.snapshots.read(identity, wanted.position, bytes_max)
    except StorageError as error:
        controller.fail(error)
        return ErrorCode.KAFKA_STORAGE_ERROR
    found.size, found.position = file.size, wanted.position
    return ErrorCode.NONE
