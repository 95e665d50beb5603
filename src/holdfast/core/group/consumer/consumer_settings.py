"""What is configured for groups of the consumer protocol: Kafka's group.consumer.* keys.

A group may have its own session time-out, heartbeat interval and assignment interval (a resource
of type GROUP). They can change while it has members: each heartbeat goes by those of its moment.

Rules: consumer-groups.md#settings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

INT_MAX: Final = 2**31 - 1


class MigrationPolicy(Enum):
    """Which groups with members may change over to the other protocol, by Kafka's names."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group may become one of the consumer protocol."""
        return self not in (MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE)

    @property
    def may_downgrade(self) -> bool:
        """Whether a group of the consumer protocol may become a classic one."""
        return self not in (MigrationPolicy.DISABLED, MigrationPolicy.UPGRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOverrides:
    """What is configured for one group. None: as the broker says."""

    session_timeout_ms: int | None = None  # consumer.session.timeout.ms
    heartbeat_interval_ms: int | None = None  # consumer.heartbeat.interval.ms
    assignment_interval_ms: int | None = None  # consumer.assignment.interval.ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings:
    """The broker's settings. A key is `group.consumer.` and the field's name, unless it says so."""

    session_timeout_ms: int = 45_000
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    max_size: int = INT_MAX
    assignors: tuple[str, ...] = ("uniform", "range")  # the first is the default
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000
    # Kafka 4.3 has 1000 here; 0 is how versions before it behave: each new epoch is assigned for at
    # once, which is dear while hundreds of members join one after the other.
    assignment_interval_ms: int = 0
    min_assignment_interval_ms: int = 0
    max_assignment_interval_ms: int = 15_000
    # holdfast.group.bytes.max, ours: what the members of a group may tell of themselves in all.
    bytes_max: int = 16 * 2**20
    classic_max_size: int = INT_MAX  # group.max.size: a larger group doesn't become a classic one

    def __post_init__(self) -> None:
        assert self.assignors, "there is a default assignor"

    def of_group(self, overrides: GroupOverrides) -> ConsumerGroupSettings:
        """Return the settings of one group. What is out of the broker's bounds is drawn in."""
        changes: dict[str, Any] = {}
        session_ms = overrides.session_timeout_ms
        if session_ms is not None:
            bounds = (self.min_session_timeout_ms, self.max_session_timeout_ms)
            changes["session_timeout_ms"] = _within(session_ms, *bounds)
        heartbeat_ms = overrides.heartbeat_interval_ms
        if heartbeat_ms is not None:
            bounds = (self.min_heartbeat_interval_ms, self.max_heartbeat_interval_ms)
            changes["heartbeat_interval_ms"] = _within(heartbeat_ms, *bounds)
        assignment_ms = overrides.assignment_interval_ms
        if assignment_ms is not None:
            bounds = (self.min_assignment_interval_ms, self.max_assignment_interval_ms)
            changes["assignment_interval_ms"] = _within(assignment_ms, *bounds)
        return replace(self, **changes) if changes else self


def _within(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))
