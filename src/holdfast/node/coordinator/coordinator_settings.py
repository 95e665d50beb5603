"""What groups are told by a node's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.config.node import NodeSettings
from holdfast.core.group.consumer.consumer_settings import ConsumerGroupSettings, GroupOverrides
from holdfast.core.group.group_settings import GroupSettings


def group_settings(settings: NodeSettings) -> GroupSettings:
    """Return what classic groups and committed offsets are told."""
    delay = settings.properties.get("group.initial.rebalance.delay.ms", "3000")
    low = settings.properties.get("group.min.session.timeout.ms", "6000")
    return GroupSettings(initial_rebalance_delay_ms=int(delay), session_timeout_ms_min=int(low))


def consumer_group_settings(settings: NodeSettings) -> ConsumerGroupSettings:
    """Return what groups of the consumer protocol are told."""
    names = {
        "session_timeout_ms": "group.consumer.session.timeout.ms",
        "min_session_timeout_ms": "group.consumer.min.session.timeout.ms",
        "heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms",
        "min_heartbeat_interval_ms": "group.consumer.min.heartbeat.interval.ms",
    }
    given = {name: settings.properties.get(key) for name, key in names.items()}
    found: dict[str, Any] = {name: int(value) for name, value in given.items() if value is not None}
    return ConsumerGroupSettings(assignment_interval_ms=1000, **found)


def group_overrides(configs: Mapping[str, str]) -> GroupOverrides:
    """Return what is configured for one group."""
    session = configs.get("consumer.session.timeout.ms")
    interval = configs.get("consumer.heartbeat.interval.ms")
    return GroupOverrides(
        session_timeout_ms=None if session is None else int(session),
        heartbeat_interval_ms=None if interval is None else int(interval),
    )


def offsets_topic_partitions(settings: NodeSettings) -> int:
    return int(settings.properties.get("offsets.topic.num.partitions", "50"))


def offsets_topic_replication_factor(settings: NodeSettings) -> int:
    return int(settings.properties.get("offsets.topic.replication.factor", "3"))


def offsets_topic_segment_bytes(settings: NodeSettings) -> int:
    return int(settings.properties.get("offsets.topic.segment.bytes", str(100 * 2**20)))


def offsets_commit_timeout_ms(settings: NodeSettings) -> int:
    return int(settings.properties.get("offsets.commit.timeout.ms", "5000"))
