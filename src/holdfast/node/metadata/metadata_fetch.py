"""The Fetch by which brokers and voters read the metadata log, and what its answer holds."""

from __future__ import annotations

from typing import Final

from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from holdfast.wire.uuids import METADATA_TOPIC_ID
from holdfast.wire.well_known import METADATA_TOPIC

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
    topic = FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[wanted])
    return FetchRequest(
        cluster_id=cluster_id,
        replica_state=ReplicaState(replica_id=replica_id),
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        topics=[topic],
    )


def only_partition(response: FetchResponse) -> PartitionData | None:
    """Return what an answer says of that partition; None: it is an error, or of something else."""
    if response.error_code != ErrorCode.NONE:
        return None
    if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
        return None
    return response.responses[0].partitions[0]
