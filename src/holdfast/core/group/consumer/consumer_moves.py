"""What a group of the consumer protocol does of itself: assign, take over what patterns match.

Rules: consumer-groups.md#pattern-refresh, consumer-groups.md#target-assignment.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.group.append_errors import is_too_large
from holdfast.core.group.consumer.consumer_core import ConsumerCore
from holdfast.core.group.consumer.consumer_patterns import ResolvedPattern
from holdfast.core.group.consumer.consumer_records import epoch_record, pattern_record
from holdfast.core.group.consumer.consumer_target import (
    next_targets,
    preferred_assignor,
    target_records,
)
from holdfast.core.log_machine import Decision


def assign(core: ConsumerCore, decision: Decision, now_ms: int) -> None:
    """Assign for an epoch that has waited for it. Members learn of it with their heartbeats."""
    state = core.state
    if state.epoch <= state.assignment_epoch or not state.members:
        return
    assignor = preferred_assignor(state, core.settings.assignors)
    targets = next_targets(state, core.around.topics, assignor)
    for record in target_records(state, targets, state.epoch, now_ms):
        decision.append(*record)


def take_resolved(
    core: ConsumerCore,
    decision: Decision,
    resolved: Mapping[str, ResolvedPattern],
    now_ms: int,
    *,
    full: bool,
) -> None:
    """Take over what patterns match. Other topics mean another epoch of the group."""
    state = core.state
    core.is_refreshing = False
    used = {pattern: resolved[pattern] for pattern in resolved if state.pattern_users[pattern]}
    changed = [
        (pattern, each.topics)
        for pattern, each in used.items()
        if set(each.topics) != set(state.topics_of_pattern(pattern))
    ]
    for pattern, each in used.items():
        decision.append(*pattern_record(state.group_id, pattern, each))
    metadata_hash = core.metadata_hash(state.names_after(patterns=changed))
    if changed or metadata_hash != state.metadata_hash:
        decision.append(*epoch_record(state.group_id, state.epoch + 1, metadata_hash))
        decision.once_applied(lambda: core.metadata_is_new(now_ms))
    if full:
        decision.once_applied(lambda: core.scanned_all(now_ms))
    if decision.records:
        decision.once_refused(
            lambda code: core.refresh_failed(now_ms) if is_too_large(code) else None
        )
