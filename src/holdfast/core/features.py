"""Which levels of Kafka's features this version knows, and which a new cluster begins with.

Owns the records of a new cluster, and what switching a feature brings along. A level that is
finalized is a promise to clients and to tools: transaction.version and group.version stay at 0,
that is unmentioned, until what they mean is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.core.image import MetadataRecord, ResourceType
from holdfast.wire.records.metadata import ConfigRecord, FeatureLevelRecord

METADATA_VERSION: Final = "metadata.version"
ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
MIN_INSYNC: Final = "min.insync.replicas"

SUPPORTED: Final[dict[str, tuple[int, int]]] = {
    METADATA_VERSION: (21, 25),  # 3.9-IV0 to 4.0-IV3
    ELIGIBLE_LEADER_REPLICAS: (0, 1),
}
BOOTSTRAP: Final[dict[str, int]] = {METADATA_VERSION: 25, ELIGIBLE_LEADER_REPLICAS: 1}
METADATA_VERSION_FOR_ELR: Final = 23  # 4.0-IV1: partition records can carry them


def settable(name: str) -> tuple[int, int]:
    """Between which levels a feature may be set: a version that is only read is no offer."""
    low, high = SUPPORTED[name]
    return (high, high) if name == METADATA_VERSION else (low, high)


def refuse_levels(levels: Mapping[str, int]) -> str | None:
    """What is wrong with these levels for a new cluster, if anything."""
    for name, level in levels.items():
        if name not in SUPPORTED:
            return f"There is no feature {name}: there are {', '.join(SUPPORTED)}."
        low, high = settable(name)
        if not low <= level <= high:
            return f"Feature {name} has no level {level} here: {low} to {high} are supported."
    return None


def bootstrap_records(
    min_insync_replicas: int, levels: Mapping[str, int] = BOOTSTRAP
) -> list[MetadataRecord]:
    """What the log of a new cluster begins with.

    With eligible leader replicas the controller's own min.insync.replicas becomes the cluster's:
    brokers and the controller must never differ about it.
    """
    records: list[MetadataRecord] = [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in levels.items()
        if level > 0
    ]
    if levels.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0:
        records.append(
            ConfigRecord(
                resource_type=ResourceType.BROKER,
                resource_name="",
                name=MIN_INSYNC,
                value=str(min_insync_replicas),
            )
        )
    return records
