"""What a shard of the group coordinator is told by configuration.

| attribute | key |
|--|--|
| `initial_rebalance_delay_ms` | `group.initial.rebalance.delay.ms` |
| `session_timeout_ms_min` | `group.min.session.timeout.ms` |
| `session_timeout_ms_max` | `group.max.session.timeout.ms` |
| `members_max` | `group.max.size` |
| `offset_metadata_max` | `offset.metadata.max.bytes` |
| `offsets_retention_ms` | `offsets.retention.minutes`, times 60,000 |
| `offsets_retention_check_ms` | `offsets.retention.check.interval.ms` |
| `group_bytes_max` | `holdfast.group.bytes.max`, ours |
| `groups_max` | `holdfast.group.shard.groups.max`, ours |
| `offsets_bytes_max` | `holdfast.group.shard.offsets.bytes.max`, ours |
| `bytes_max` | `holdfast.groups.bytes.max`, ours |
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Settings of classic groups and of committed offsets, with Kafka's defaults."""

    initial_rebalance_delay_ms: int = 3000
    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1_800_000
    members_max: int = 2**31 - 1
    offset_metadata_max: int = 4096  # in units of UTF-16, as Apache Kafka counts
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_ms: int = 600_000

    # Ours. What members say of themselves lies in memory, and most of it in one record.
    group_bytes_max: int = 16 * 2**20
    groups_max: int = 100_000
    offsets_bytes_max: int = 256 * 2**20
    bytes_max: int = 2**30  # of all groups and offsets of a broker
