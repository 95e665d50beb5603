"""IncrementalAlterConfigs and AlterConfigs: what topics, brokers and groups are configured with.

Owns which changes are let through (`config` knows which keys and values there are) and what a
change sets off: turning unclean election on elects at once, and with another min.insync.replicas
who was eligible to lead is so no more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.config.group_rules import refuse_group_configs, refuse_node_interval
from holdfast.config.registry import (
    append_to_list,
    is_list,
    node_default,
    refuse_broker_configs,
    refuse_topic_configs,
    subtract_from_list,
    validate_broker_config,
    validate_group_config,
    validate_topic_config,
)
from holdfast.core.controller.decisions import UNCLEAN_ELECTION, ControllerState, Decision
from holdfast.core.controller.elections import clear_eligible, elect_leaderless
from holdfast.core.controller.older_brokers import refuse_compaction
from holdfast.core.controller.shown_settings import described
from holdfast.core.metadata.feature_levels import MIN_INSYNC
from holdfast.core.metadata.image import ConfigResource, MetadataRecord
from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import alter_configs as legacy
from holdfast.wire.messages import incremental_alter_configs as incremental
from holdfast.wire.records.metadata import ConfigRecord
from holdfast.wire.structs import AlteredResource, ConfigOperation, ResourceType

# No longer than a 32-bit number: int() raises ValueError for thousands of digits.
_BROKER_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")


class _Step(NamedTuple):
    operation: ConfigOperation
    name: str
    value: str | None


def incremental_alter_configs(
    state: ControllerState,
    request: incremental.IncrementalAlterConfigsRequest,
    *,
    refusals: Mapping[ConfigResource, Refusal] | None = None,
) -> Decision:
    """Change single keys; each resource of the request succeeds or fails by itself."""
    responses, records = _alter(state, request, refusals, lambda _, asked: _steps(asked))
    return Decision(incremental.IncrementalAlterConfigsResponse(responses=responses), records)


def alter_configs(
    state: ControllerState,
    request: legacy.AlterConfigsRequest,
    *,
    refusals: Mapping[ConfigResource, Refusal] | None = None,
) -> Decision:
    """Replace whole configurations: what is not named goes back to its default."""

    def steps(resource: ConfigResource, asked: legacy.AlterConfigsResource) -> list[_Step]:
        named = {config.name for config in asked.configs}
        return [
            *(_Step(ConfigOperation.SET, config.name, config.value) for config in asked.configs),
            *(
                _Step(ConfigOperation.DELETE, name, None)
                for name in state.image.configs.get(resource, {})
                if name not in named
            ),
        ]

    responses, records = _alter(state, request, refusals, steps)
    return Decision(legacy.AlterConfigsResponse(responses=responses), records)


def _alter(
    state: ControllerState,
    request: Any,
    refusals: Mapping[ConfigResource, Refusal] | None,
    steps: Callable[[ConfigResource, Any], list[_Step] | Refusal],
) -> tuple[list[AlteredResource], list[MetadataRecord]]:
    """Return what is told of each resource, and the records of those not refused."""
    resources = [(each.resource_type, each.resource_name) for each in request.resources]
    counts = Counter(resources)
    records: list[MetadataRecord] = []
    told = []
    for resource, asked in zip(resources, request.resources, strict=True):
        outcome = _refuse_resource(state, resource, counts, refusals)
        if outcome is None:
            outcome = _change(state, resource, steps(resource, asked), records)
        told.append(_told(resource, outcome))
    if request.validate_only:
        return told, []
    return told, records + _consequences(state, records)


def _told(resource: ConfigResource, outcome: Refusal | None) -> AlteredResource:
    return AlteredResource(
        error_code=outcome.code if outcome else ErrorCode.NONE,
        error_message=outcome.message if outcome else None,
        resource_type=resource[0],
        resource_name=resource[1],
    )


def _steps(asked: incremental.AlterConfigsResource) -> list[_Step] | Refusal:
    steps = []
    for config in asked.configs:
        if config.config_operation not in ConfigOperation._value2member_map_:
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                f"Unknown operation {config.config_operation} for {config.name}.",
            )
        steps.append(_Step(ConfigOperation(config.config_operation), config.name, config.value))
    return steps


def _refuse_resource(
    state: ControllerState,
    resource: ConfigResource,
    counts: Mapping[ConfigResource, int],
    refusals: Mapping[ConfigResource, Refusal] | None,
) -> Refusal | None:
    kind, name = resource
    if refusals is not None and resource in refusals:
        return refusals[resource]
    if counts[resource] > 1:
        return Refusal(ErrorCode.INVALID_REQUEST, "The resource is named more than once.")
    if kind == ResourceType.TOPIC:
        if not name:
            return Refusal(ErrorCode.INVALID_REQUEST, "The topic has no name.")
        if name not in state.image.topics:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
        return None
    if kind == ResourceType.GROUP:  # of any name: a group may be configured before it is there
        nameless = Refusal(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        return None if name else nameless
    if kind != ResourceType.BROKER:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Resource type {kind} can't be configured here: topics ({ResourceType.TOPIC}), "
            f"brokers ({ResourceType.BROKER}) and groups ({ResourceType.GROUP}) can.",
        )
    if name == "":
        return None
    if not _BROKER_ID.fullmatch(name):
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"'{name}' is not a broker's id; the empty name stands for all brokers.",
        )
    if int(name) not in state.image.brokers and int(name) != state.node_id:
        return Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {name} is not registered.")
    return None


def _change(
    state: ControllerState,
    resource: ConfigResource,
    steps: list[_Step] | Refusal,
    records: list[MetadataRecord],
) -> Refusal | None:
    """Add the records of one resource's change; nothing of it when one step is refused."""
    if isinstance(steps, Refusal):
        return steps
    if len({step.name for step in steps}) != len(steps):
        return Refusal(ErrorCode.INVALID_REQUEST, "A key is named more than once.")
    present = state.image.configs.get(resource, {})
    after = dict(present)
    changes: list[MetadataRecord] = []
    for step in steps:
        refused = _refuse_min_insync(state, resource, step)
        if refused is not None:
            return Refusal(ErrorCode.INVALID_CONFIG, refused)
        value = _value_after(state, resource, present, step)
        if isinstance(value, Refusal):
            return value
        if value is not None:
            wrong = _wrong_value(state, resource, step.name, value)
            if wrong is not None:
                return Refusal(_code_of(resource), wrong)
            after[step.name] = value
        else:
            after.pop(step.name, None)
        if value != present.get(step.name):
            kind, name = resource
            changes.append(
                ConfigRecord(
                    resource_type=int(kind), resource_name=name, name=step.name, value=value
                )
            )
    together = _wrong_together(state, resource, present, after)
    if together is not None:
        return together
    records.extend(changes)
    return None


def _value_after(
    state: ControllerState, resource: ConfigResource, present: Mapping[str, str], step: _Step
) -> str | Refusal | None:
    """The key's value after the step; None when it is to go back to its default."""
    if step.operation is ConfigOperation.DELETE:
        return None
    if step.value is None:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Null value not supported for {step.operation.name} of {step.name}.",
        )
    if step.operation is ConfigOperation.SET:
        return step.value
    if resource[0] == ResourceType.GROUP or not is_list(step.name):
        return Refusal(
            ErrorCode.INVALID_CONFIG,
            f"Can't {step.operation.name} to key {step.name}: it is not a list.",
        )
    current = present.get(step.name)
    if current is None:
        current = _inherited(state, resource, step.name)
    if step.operation is ConfigOperation.APPEND:
        return append_to_list(current, step.value)
    return subtract_from_list(current, step.value)


def _inherited(state: ControllerState, resource: ConfigResource, name: str) -> str:
    """What a list has before it is first changed for this resource: the effective default.

    Apache Kafka begins with the key's own default, whatever the cluster or a file says.
    """
    if resource[0] == ResourceType.TOPIC:
        entries = described(state, {}, names=(name,))
        return (entries[0].value or "") if entries else ""
    found = None
    if resource[1]:
        found = state.image.cluster_configs().get(name)
    if found is None:
        found = state.settings.properties.get(name)
    return node_default(name) if found is None else found


def _in_force(
    state: ControllerState, resource: ConfigResource, own: Mapping[str, str]
) -> dict[str, str]:
    """What a broker has when the configs of a resource of brokers are `own`.

    As far as the controller knows: of the broker's own file it takes its own one's word.
    """
    cluster = state.image.cluster_configs() if resource[1] else {}
    return {**state.settings.properties, **cluster, **own}


def _code_of(resource: ConfigResource) -> ErrorCode:
    """Return what a wrong value is.

    Of a broker it is a wrong request in Apache Kafka (KAFKA-13609), and tools expect that.
    """
    is_broker = resource[0] == ResourceType.BROKER
    return ErrorCode.INVALID_REQUEST if is_broker else ErrorCode.INVALID_CONFIG


def _wrong_value(
    state: ControllerState, resource: ConfigResource, name: str, value: str
) -> str | None:
    kind, resource_name = resource
    if kind == ResourceType.TOPIC:
        return validate_topic_config(name, value) or refuse_compaction(state, {name: value})
    if kind == ResourceType.GROUP:
        return validate_group_config(name, value)
    wrong = validate_broker_config(name, value, per_broker=resource_name != "")
    wrong = wrong or refuse_node_interval(name, value, state.settings.properties)
    return wrong or refuse_compaction(state, {name: value})


def _wrong_together(
    state: ControllerState,
    resource: ConfigResource,
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> Refusal | None:
    """Return why keys of a resource don't go together, though each alone may be so."""
    code, why = ErrorCode.INVALID_CONFIG, None
    if resource[0] == ResourceType.TOPIC:
        why = refuse_topic_configs(after)
    elif resource[0] == ResourceType.GROUP:
        why = refuse_group_configs(after, state.settings.properties)
    elif resource[0] == ResourceType.BROKER:
        code = ErrorCode.INVALID_REQUEST
        why = refuse_broker_configs(
            _in_force(state, resource, before), _in_force(state, resource, after)
        )
    return None if why is None else Refusal(code, why)


def _refuse_min_insync(state: ControllerState, resource: ConfigResource, step: _Step) -> str | None:
    """With eligible leader replicas all nodes have to agree on min.insync.replicas at any time.

    Rules: elections.md#one-min-isr.
    """
    kind, name = resource
    if step.name != MIN_INSYNC or kind != ResourceType.BROKER or not state.elr_enabled:
        return None
    if name:
        return (
            f"Broker-level {MIN_INSYNC} cannot be altered while ELR is enabled: set it for the "
            "topic, or for all brokers."
        )
    if step.operation is ConfigOperation.DELETE:
        return (
            f"Cluster-level {MIN_INSYNC} cannot be removed while ELR is enabled: set another value."
        )
    return None


def _consequences(
    state: ControllerState, records: Sequence[MetadataRecord]
) -> list[MetadataRecord]:
    """What has to be decided along with these changes."""
    topics = dict.fromkeys(
        record.resource_name if record.resource_type == ResourceType.TOPIC else None
        for record in records
        if record.name == MIN_INSYNC
    )
    cleared = clear_eligible(state, None if None in topics else list(topics)) if topics else []
    return cleared + _elections_after(state, records)


def _elections_after(
    state: ControllerState, records: Sequence[MetadataRecord]
) -> list[MetadataRecord]:
    """Elect for leaderless partitions when these records let a replica outside the ISR lead."""
    widened = [record for record in records if record.name == UNCLEAN_ELECTION]
    if not widened:
        return []
    topics = None
    if all(record.resource_type == ResourceType.TOPIC for record in widened):
        topics = dict.fromkeys(record.resource_name for record in widened)
    # The answer depends on all sources together, so ask a state in which the change has happened.
    return list(elect_leaderless(state.rehearse(records), topics=topics))
