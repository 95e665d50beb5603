"""Settings that a group has for itself, and what all groups are configured with by their broker."""

from __future__ import annotations

from typing import Final

from compare.asking import Side
from compare.cluster_steps import APPEND, BROKER, DELETE, GROUP, SET
from holdfast.wire.messages.alter_configs import AlterConfigsRequest
from holdfast.wire.messages.alter_configs import AlterConfigsResource as ReplacedResource
from holdfast.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.structs import ConfigValue

Change = tuple[int, str, str | None]

SESSION: Final = "consumer.session.timeout.ms"
HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
INTERVAL: Final = "consumer.assignment.interval.ms"
START: Final = "share.auto.offset.reset"
# Asked for, never carried out. Each by itself.
CHANGES: Final[tuple[Change, ...]] = (
    *((SET, SESSION, value) for value in ("44999", "60000", "60001", " 50000 ", "x", "", None)),
    *((SET, HEARTBEAT, value) for value in ("0", "4999", "5000", "15001")),
    *((SET, INTERVAL, value) for value in ("-1", "0", "15000", "15001")),
    *((SET, START, value) for value in ("earliest", "LATEST", "none", "by_duration:PT1H")),
    *((SET, START, f"by_duration:{value}") for value in ("", "P", "PT", "-PT1H", "P1Y", "p1dt2s")),
    (SET, "share.isolation.level", "read_committed"),
    (SET, "share.isolation.level", "READ_COMMITTED"),
    (SET, "share.renew.acknowledge.enable", "FALSE"),
    (SET, "share.renew.acknowledge.enable", "no"),
    (SET, "share.delivery.count.limit", "1"),
    (SET, "share.delivery.count.limit", "11"),
    (SET, "share.partition.max.record.locks", "4001"),
    (SET, "share.record.lock.duration.ms", "14999"),
    (SET, "share.session.timeout.ms", "60001"),
    (SET, "share.assignment.interval.ms", "15001"),
    (SET, "streams.num.standby.replicas", "3"),
    (SET, "streams.initial.rebalance.delay.ms", "-1"),
    (SET, "streams.heartbeat.interval.ms", "4999"),
    (SET, "group.max.size", "3"),
    (SET, "nobody.knows", "this"),
    (DELETE, "nobody.knows", None),
    (DELETE, SESSION, None),
    (APPEND, SESSION, "1"),
)
BROKER_SETTINGS: Final = (
    ("group.consumer.assignment.interval.ms", "15000"),
    ("group.consumer.assignment.interval.ms", "15001"),
    ("group.streams.assignment.interval.ms", "-1"),
    ("group.consumer.session.timeout.ms", "46000"),
    ("group.coordinator.cached.buffer.max.bytes", "1"),
    ("group.coordinator.cached.buffer.max.bytes", "524288"),
    ("group.initial.rebalance.delay.ms", "1"),
    ("offsets.retention.minutes", "1"),
)


def steps(side: Side) -> None:
    """Put them."""
    side.ask("settings of a group that has none", described("nobody"))
    for change in CHANGES:
        _alter(side, "g", change)
    _alter(side, "g", (SET, SESSION, "50000"), (SET, SESSION, "50001"))
    _alter(side, "g", (SET, SESSION, "50000"), (SET, HEARTBEAT, "4999"))
    _alter(side, "g")
    _alter(side, "", (SET, SESSION, "50000"))
    for name in (str(side.node), ""):
        for key, value in BROKER_SETTINGS:
            resource = _resource(BROKER, name, (SET, key, value))
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
            side.ask(f"groups: broker {name!r} {key}={value}", request)
    _kept(side)


def described(name: str) -> DescribeConfigsRequest:
    """Return the request for all of a group's settings."""
    asked = DescribeConfigsResource(
        resource_type=GROUP, resource_name=name, configuration_keys=None
    )
    return DescribeConfigsRequest(resources=[asked], include_synonyms=True)


def _resource(kind: int, name: str, *changes: Change) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(config_operation=operation, name=key, value=value)
            for operation, key, value in changes
        ],
    )


def _alter(side: Side, name: str, *changes: Change) -> None:
    resource = _resource(GROUP, name, *changes)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
    side.ask(f"groups: alter {name!r} {changes}", request)


def _kept(side: Side) -> None:
    """What is carried out, and what is said of it afterwards; then it is replaced."""
    changes = ((SET, SESSION, " 50000 "), (SET, "share.renew.acknowledge.enable", "FALSE"))
    resource = _resource(GROUP, "kept", *changes)
    side.ask("groups: alter for good", IncrementalAlterConfigsRequest(resources=[resource]))
    _await(side, SESSION, "50000")
    side.ask("groups: settings after a change", described("kept"))
    replaced = ReplacedResource(
        resource_type=GROUP,
        resource_name="kept",
        configs=[ConfigValue(name=HEARTBEAT, value="6000")],
    )
    side.ask("groups: replace", AlterConfigsRequest(resources=[replaced]))
    _await(side, HEARTBEAT, "6000")
    side.ask("groups: settings after they were replaced", described("kept"))


def _await(side: Side, name: str, value: str) -> None:
    def seen() -> bool:
        (result,) = side.driver.send(described("kept"), node=side.node).results
        return any(one.name == name and one.value == value for one in result.configs)

    side.until(seen, "the change to be seen")
