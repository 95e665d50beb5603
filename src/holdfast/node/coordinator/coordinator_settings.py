"""What groups are told by configuration: a node's settings, and what a group has for itself.

The core names its settings as it needs them; here they are made of Kafka's keys. Who serves groups
reads `consumer_group_settings` again when a broker's configuration has changed, and passes each
delta of the metadata to `take_over_overrides`: one dictionary may be that of all shards.

Rules: consumer-groups.md#settings, classic-groups.md#bounds, committed-offsets.md#bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.config.group_keys import ASSIGNOR_CLASSES
from holdfast.config.key import ConfigError
from holdfast.config.node import NodeSettings
from holdfast.config.registry import GROUP
from holdfast.core.group.consumer.consumer_settings import (
    ConsumerGroupSettings,
    GroupOverrides,
    MigrationPolicy,
)
from holdfast.core.group.group_settings import GroupSettings
from holdfast.core.metadata.feature_levels import has_consumer_protocol
from holdfast.core.metadata.image import ImageDelta, MetadataImage
from holdfast.wire.batch import Codec
from holdfast.wire.structs import ResourceType

_MINUTE_MS: Final = 60_000
_OVERRIDES: Final[dict[str, str]] = {
    "session_timeout_ms": "consumer.session.timeout.ms",
    "heartbeat_interval_ms": "consumer.heartbeat.interval.ms",
    "assignment_interval_ms": "consumer.assignment.interval.ms",
}


def group_settings(settings: NodeSettings) -> GroupSettings:
    """Return what classic groups and committed offsets are told. None of it changes at run time."""
    return GroupSettings(
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        session_timeout_ms_min=settings.group_min_session_timeout_ms,
        session_timeout_ms_max=settings.group_max_session_timeout_ms,
        members_max=settings.group_max_size,
        offset_metadata_max=settings.offset_metadata_max_bytes,
        offsets_retention_ms=settings.offsets_retention_minutes * _MINUTE_MS,
        offsets_retention_check_ms=settings.offsets_retention_check_interval_ms,
        group_bytes_max=settings.holdfast_group_bytes_max,
        groups_max=settings.holdfast_group_shard_groups_max,
        offsets_bytes_max=settings.holdfast_group_shard_offsets_bytes_max,
        bytes_max=settings.holdfast_groups_bytes_max,
    )


def consumer_group_settings(settings: NodeSettings) -> ConsumerGroupSettings:
    """Return what groups of the consumer protocol are told that have nothing of their own."""
    low = settings.group_consumer_min_assignment_interval_ms
    high = settings.group_consumer_max_assignment_interval_ms
    return ConsumerGroupSettings(
        session_timeout_ms=settings.group_consumer_session_timeout_ms,
        min_session_timeout_ms=settings.group_consumer_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_consumer_max_session_timeout_ms,
        heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
        min_heartbeat_interval_ms=settings.group_consumer_min_heartbeat_interval_ms,
        max_heartbeat_interval_ms=settings.group_consumer_max_heartbeat_interval_ms,
        max_size=settings.group_consumer_max_size,
        assignors=_assignors(settings.group_consumer_assignors),
        migration_policy=MigrationPolicy(settings.group_consumer_migration_policy),
        regex_refresh_interval_ms=settings.group_consumer_regex_refresh_interval_ms,
        # It was within its bounds when it was set; the file may have others since.
        assignment_interval_ms=max(low, min(settings.group_consumer_assignment_interval_ms, high)),
        min_assignment_interval_ms=low,
        max_assignment_interval_ms=high,
        bytes_max=settings.holdfast_group_bytes_max,
        classic_max_size=settings.group_max_size,
    )


def _assignors(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the assignors' own names, each once."""
    return tuple(dict.fromkeys(ASSIGNOR_CLASSES.get(name, name) for name in names))


def offsets_topic_partitions(settings: NodeSettings) -> int:
    """Return how many partitions the topic of committed offsets is made with."""
    return settings.offsets_topic_num_partitions


def offsets_topic_replication_factor(settings: NodeSettings) -> int:
    """Return how many replicas it is made with; whether the file says so is for who makes it."""
    return settings.offsets_topic_replication_factor


def offsets_topic_segment_bytes(settings: NodeSettings) -> int:
    return settings.offsets_topic_segment_bytes


def offsets_topic_codec(settings: NodeSettings) -> Codec:
    """Return how what is appended to it is compressed."""
    return Codec(settings.offsets_topic_compression_codec)


def offsets_commit_timeout_ms(settings: NodeSettings) -> int:
    """Return how long an answer is held for the other replicas."""
    return settings.offsets_commit_timeout_ms


def group_overrides(configs: Mapping[str, str]) -> GroupOverrides:
    """Return what is configured for one group, of the text that is stored for it."""
    return GroupOverrides(**{field: _number(configs, name) for field, name in _OVERRIDES.items()})


def _number(configs: Mapping[str, str], name: str) -> int | None:
    text = configs.get(name)
    if text is None:
        return None
    try:
        value = GROUP[name].parse(text)
    except ConfigError:  # another controller than ours has let it through
        return None
    assert isinstance(value, int), f"{name} is a number"
    return value


def stored_overrides(image: MetadataImage) -> dict[str, GroupOverrides]:
    """Return the overrides of all groups that have any, by group. It looks at each resource."""
    return {
        name: group_overrides(configs)
        for (kind, name), configs in image.configs.items()
        if kind == ResourceType.GROUP
    }


def take_over_overrides(
    overrides: dict[str, GroupOverrides], image: MetadataImage, delta: ImageDelta
) -> list[str]:
    """Change the overrides as the image has changed; return the groups that have others now."""
    changed = []
    for kind, name in delta.configs_changed:
        if kind != ResourceType.GROUP:
            continue
        before, configs = overrides.get(name), image.group_configs(name)
        if configs:
            overrides[name] = group_overrides(configs)
        else:
            overrides.pop(name, None)
        if overrides.get(name) != before:
            changed.append(name)
    return changed


def serves_consumer_protocol(settings: NodeSettings, image: MetadataImage) -> bool:
    """Return whether groups may be of the consumer protocol: the cluster and this node allow it.

    Members of groups that are of it already are refused as well while it is switched off.
    """
    allowed = "consumer" in settings.group_coordinator_rebalance_protocols
    return allowed and has_consumer_protocol(image.features)
