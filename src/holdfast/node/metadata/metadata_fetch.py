"""What brokers and voters ask of the metadata log's leader: a Fetch, or a snapshot piece by piece.

Owns the questions and the reading of the answers. A snapshot is for whoever is behind the metadata
log's start: a broker, which keeps the image only, and a controller, which writes the bytes down as
well. It knows nothing of connections, and nothing happens to any image until the last piece has
come.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.metadata.image import MetadataImage
from holdfast.core.metadata.image_records import SnapshotId
from holdfast.node.metadata.snapshot_format import SnapshotError, SnapshotReader
from holdfast.wire.errors import ErrorCode, error_code
from holdfast.wire.messages import fetch_snapshot as wire
from holdfast.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from holdfast.wire.uuids import METADATA_TOPIC_ID, NULL_UUID
from holdfast.wire.well_known import METADATA_TOPIC

BYTES_MAX: Final = 128 * 1024  # a thousand records or so: some milliseconds of decoding
NAME: Final = "the snapshot that the controller sends"
NO_REPLICA: Final = -1


def metadata_fetch(
    wanted: FetchPartition,
    *,
    cluster_id: str | None = None,
    replica_id: int = NO_REPLICA,
    wait_ms: int = 0,
    bytes_max: int = 1,
) -> FetchRequest:
    """Return a Fetch of the metadata log's one partition; by default it only asks who leads."""
    return FetchRequest(
        cluster_id=cluster_id,
        replica_state=ReplicaState(replica_id=replica_id),
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        topics=[FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[wanted])],
    )


def only_partition(response: FetchResponse) -> PartitionData | None:
    """Return what an answer says of that partition; None: it is an error, or of something else."""
    if response.error_code != ErrorCode.NONE:
        return None
    if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
        return None
    return response.responses[0].partitions[0]


class SnapshotRefusedError(Exception):
    """The controller does not give the snapshot: begin with a Fetch again."""


class SnapshotFetch:
    """One snapshot on its way here: `request`, `take`, again until `complete`, then `finish`."""

    def __init__(
        self,
        identity: SnapshotId,
        *,
        node_id: int,
        cluster_id: str | None,
        leader_epoch: int = -1,
        directory_id: bytes = NULL_UUID,
    ) -> None:
        self.identity = identity
        self.complete = False
        self.reader: Final = SnapshotReader(identity, f"{NAME} ({identity.file_name})")
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._leader_epoch = leader_epoch
        self._directory_id = directory_id

    def request(self) -> wire.FetchSnapshotRequest:
        """Ask for what follows what has come."""
        wanted = wire.PartitionSnapshotRequest(
            partition=0,
            current_leader_epoch=self._leader_epoch,
            snapshot_id=wire.SnapshotId(
                end_offset=self.identity.end_offset, epoch=self.identity.epoch
            ),
            position=self.reader.fed,
            replica_directory_id=self._directory_id,
        )
        return wire.FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            replica_id=self._node_id,
            max_bytes=BYTES_MAX,
            topics=[wire.TopicSnapshotRequest(name=METADATA_TOPIC, partitions=[wanted])],
        )

    def take(self, response: wire.FetchSnapshotResponse) -> bytes:
        """Understand an answer; return its bytes, for who keeps them.

        SnapshotRefusedError: it is an error. SnapshotError: what came is damaged.
        """
        assert not self.complete, "everything has come"
        if response.error_code != ErrorCode.NONE:
            raise SnapshotRefusedError(error_code(response.error_code).name)
        if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
            raise SnapshotRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR.name)
        found = response.topics[0].partitions[0]
        if found.error_code != ErrorCode.NONE:
            raise SnapshotRefusedError(error_code(found.error_code).name)
        data = bytes(found.unaligned_records)
        if found.position != self.reader.fed or not data:
            raise SnapshotError(f"{NAME} does not go on at byte {self.reader.fed}")
        self.reader.feed(data)
        self.complete = self.reader.fed >= found.size
        return data

    def finish(self) -> MetadataImage:
        """Return the image that the snapshot holds. SnapshotError: it is not whole."""
        assert self.complete, "not everything has come yet"
        return self.reader.finish()
