"""UpdateFeatures: levels of finalized features go up and down in a running cluster.

Owns the refusals, in Kafka's words, and what a switch brings along: with eligible leader replicas
all nodes have to agree on min.insync.replicas; without them an ISR may not be empty.
"""

from __future__ import annotations

from holdfast.core.controller.decisions import ControllerState, Decision
from holdfast.core.metadata.feature_levels import MIN_INSYNC, SUPPORTED, settable
from holdfast.core.metadata.image import MetadataRecord, Partition
from holdfast.core.refusal import Refusal, shown
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from holdfast.wire.records.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
)
from holdfast.wire.structs import ResourceType
from holdfast.wire.well_known import ELIGIBLE_LEADER_REPLICAS, KRAFT_VERSION


def update_features(state: ControllerState, request: UpdateFeaturesRequest) -> Decision:
    """Change all features of the request or none."""
    records: list[MetadataRecord] = []
    names = [update.feature for update in request.feature_updates]
    for update in request.feature_updates:
        if names.count(update.feature) > 1:
            twice = f"{shown(update.feature)} is named twice."
            refusal = Refusal(ErrorCode.INVALID_REQUEST, twice)
            return Decision(refused(refusal))
        outcome = _update_one(state, update)
        if isinstance(outcome, Refusal):
            return Decision(refused(outcome))
        records.extend(outcome)
    response = UpdateFeaturesResponse(
        error_message=None,
        results=[UpdatableFeatureResult(feature=name, error_message=None) for name in names],
    )
    return Decision(response, [] if request.validate_only else records)


def refused(refusal: Refusal) -> UpdateFeaturesResponse:
    """Refuse the whole request; of its features nothing is said."""
    return UpdateFeaturesResponse(error_code=refusal.code, error_message=refusal.message)


def _update_one(state: ControllerState, update: FeatureUpdateKey) -> Refusal | list[MetadataRecord]:
    name, wanted = update.feature, update.max_version_level
    level = state.image.features.get(name, 0)
    why = _unsupported(state, name, wanted) or _wrong_direction(update, level)
    if why is not None:
        return Refusal(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Invalid update version {wanted} for feature {shown(name)}. {why}",
        )
    if wanted == level:
        return []
    records: list[MetadataRecord] = [FeatureLevelRecord(name=name, feature_level=wanted)]
    if name == ELIGIBLE_LEADER_REPLICAS:
        records.extend(_agree_on_min_insync(state) if wanted > 0 else _forget_eligible(state))
    return records


def _unsupported(state: ControllerState, name: str, level: int) -> str | None:
    if name == KRAFT_VERSION:
        return "It is chosen when a cluster's controllers are formatted."
    if name not in SUPPORTED:
        return f"Local controller {state.node_id} does not support this feature."
    low, high = settable(name)
    if not low <= level <= high:
        return f"Local controller {state.node_id} only supports versions {low}-{high}"
    for broker_id, broker in sorted(state.image.brokers.items()):
        low, high = broker.features.get(name, (0, 0))
        if level and not low <= level <= high:
            return f"Broker {broker_id} only supports versions {low}-{high}"
    return None


def _wrong_direction(update: FeatureUpdateKey, level: int) -> str | None:
    kind = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    if kind not in UpgradeType._value2member_map_:
        return "The controller does not support the given upgrade type."
    if update.max_version_level < level and kind == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if update.max_version_level > level and kind != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _agree_on_min_insync(state: ControllerState) -> list[MetadataRecord]:
    """The cluster's own min.insync.replicas, if it has none, and no broker's own any more."""
    records: list[MetadataRecord] = []
    if MIN_INSYNC not in state.image.cluster_configs():
        records.append(_min_insync("", str(state.settings.min_insync_replicas)))
    for (kind, name), configs in state.image.configs.items():
        if kind == ResourceType.BROKER and name and MIN_INSYNC in configs:
            records.append(_min_insync(name, None))
    return records


def _min_insync(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ResourceType.BROKER, resource_name=broker, name=MIN_INSYNC, value=value
    )


def _forget_eligible(state: ControllerState) -> list[MetadataRecord]:
    return [
        PartitionChangeRecord(
            partition_id=partition.index,
            topic_id=partition.topic_id,
            isr=None if partition.isr else _last_member(partition),
            eligible_leader_replicas=[],
            last_known_elr=[],
        )
        for partition in state.image.partitions()
        if partition.elr or partition.last_known_elr or not partition.isr
    ]


def _last_member(partition: Partition) -> list[int]:
    """Who would be in the ISR had there never been eligible replicas: its last member stays."""
    for node in (*partition.last_known_elr, *partition.elr):
        if node in partition.elr or not partition.elr:
            return [node]
    return list(partition.replicas[:1])
