"""Which levels of Kafka's features this version knows, and which a new cluster begins with.

Owns the records of a new cluster, and what switching a feature brings along. A level that is
finalized is a promise to clients and to tools: transaction.version stays at 0, that is unmentioned,
until what it means is built. A cluster that says nothing of a feature has it at 0, too, as those do
that are older than it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.core.metadata.image import MetadataRecord
from holdfast.wire.records.metadata import ConfigRecord, FeatureLevelRecord
from holdfast.wire.structs import ResourceType
from holdfast.wire.well_known import (
    ELIGIBLE_LEADER_REPLICAS,
    GROUP_VERSION,
    METADATA_VERSION,
)

MIN_INSYNC: Final = "min.insync.replicas"

SUPPORTED: Final[dict[str, tuple[int, int]]] = {
    METADATA_VERSION: (21, 25),  # 3.9-IV0 to 4.0-IV3
    ELIGIBLE_LEADER_REPLICAS: (0, 1),
    GROUP_VERSION: (0, 1),
}
BOOTSTRAP: Final[dict[str, int]] = {
    METADATA_VERSION: 25,
    ELIGIBLE_LEADER_REPLICAS: 1,
    GROUP_VERSION: 1,
}


def settable(name: str) -> tuple[int, int]:
    """Return the lowest and the highest level that may be set; some levels are read only."""
    low, high = SUPPORTED[name]
    return (high, high) if name == METADATA_VERSION else (low, high)


def has_consumer_protocol(features: Mapping[str, int]) -> bool:
    """Return whether a cluster with these levels serves groups by the consumer protocol (KIP-848).

    Rules: consumer-groups.md#settings.
    """
    return features.get(GROUP_VERSION, 0) > 0


def refuse_levels(levels: Mapping[str, int]) -> str | None:
    """Return why a new cluster can not have these levels; None when it can."""
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
    """Return the records with which the log of a new cluster begins.

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
