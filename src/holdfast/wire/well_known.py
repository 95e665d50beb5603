"""Names and numbers to which Kafka gives a meaning of their own, for both sides of a connection."""

from __future__ import annotations

from typing import Final

METADATA_TOPIC: Final = "__cluster_metadata"

# Instead of a timestamp, in ListOffsets.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

# Features of a cluster.
METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
GROUP_VERSION: Final = "group.version"
