"""Goal: keys of groups are Kafka's, also together: at a node's start and for one group's own.

Method: tables of what contradicts what; the tables themselves are walked, so that no bound is
forgotten. That names, types and defaults are Apache Kafka's its own tests say (`make test-apache`).
"""

from __future__ import annotations

import pytest

from holdfast.config.describe import ConfigSource, describe_group
from holdfast.config.documentation import document
from holdfast.config.group_keys import GROUP_BOUNDS, GROUP_SYNONYMS
from holdfast.config.group_rules import refuse_group_configs, refuse_node_interval
from holdfast.config.key import ConfigError
from holdfast.config.node import NodeSettings
from holdfast.config.registry import GROUP, NODE, validate_group_config

BROKER = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "100@127.0.0.1:9192",
}
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
INTERVAL = "consumer.assignment.interval.ms"


def settings_of(changes: dict[str, str]) -> NodeSettings:
    return NodeSettings.from_properties(BROKER | changes)[0]


# -- a node's own ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"group.consumer.min.session.timeout.ms": "45001"},
         "min.session.timeout.ms=45001: must be at most group.consumer.session.timeout.ms=45000"),
        ({"group.consumer.session.timeout.ms": "60001"},
         "=60001: must be at most group.consumer.max.session.timeout.ms=60000"),
        ({"group.consumer.min.heartbeat.interval.ms": "5001"},
         "must be at most group.consumer.heartbeat.interval.ms=5000"),
        ({"group.consumer.heartbeat.interval.ms": "15001"},
         "must be at most group.consumer.max.heartbeat.interval.ms=15000"),
        ({"group.consumer.assignment.interval.ms": "15001"},
         "must be at most group.consumer.max.assignment.interval.ms=15000"),
        ({"group.consumer.min.assignment.interval.ms": "1001"},
         "must be at most group.consumer.assignment.interval.ms=1000"),
        ({"group.share.session.timeout.ms": "44999"}, "group.share.min.session.timeout.ms=45000"),
        ({"group.share.delivery.count.limit": "9", "group.share.max.delivery.count.limit": "8"},
         "must be at most group.share.max.delivery.count.limit=8"),
        ({"group.share.max.size": "1000", "group.share.max.share.sessions": "999"},
         "group.share.max.size=1000: must be at most group.share.max.share.sessions=999"),
        ({"group.streams.num.standby.replicas": "3"},
         "must be at most group.streams.max.standby.replicas=2"),
        ({"group.consumer.session.timeout.ms": "4000",
          "group.consumer.min.session.timeout.ms": "4000"},
         "interval.ms=5000: must be below group.consumer.session.timeout.ms=4000"),
        ({"group.streams.session.timeout.ms": "5000",
          "group.streams.min.session.timeout.ms": "5000"}, "must be below"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "'classic' protocol"),
        ({"group.coordinator.rebalance.protocols": ""}, "'classic' protocol"),
        ({"group.coordinator.rebalance.protocols": "CLASSIC"}, "one of consumer, classic"),
        ({"group.consumer.assignors": ""}, "name the default one"),
        ({"group.consumer.assignors": "uniform,com.example.Own"}, "can't be loaded here"),
        ({"group.consumer.migration.policy": "sideways"}, "one of disabled, downgrade"),
        ({"group.consumer.regex.refresh.interval.ms": "9999"}, "at least 10000"),
        ({"offsets.topic.compression.codec": "5"}, "at most 4"),
        ({"offsets.topic.replication.factor": "0"}, "at least 1"),
        ({"offsets.topic.replication.factor": "32768"}, "at most 32767"),
    ],
)  # fmt: skip
def test_what_a_node_refuses_at_its_start(changes: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace(".", r"\.")):
        settings_of(changes)


@pytest.mark.parametrize(
    "changes",
    [
        # Bounds are among what they allow.
        {"group.consumer.session.timeout.ms": "60000"},
        {"group.consumer.max.heartbeat.interval.ms": "5000"},
        {"group.streams.num.standby.replicas": "2"},
        {"group.share.max.size": "1000", "group.share.max.share.sessions": "1000"},
        # Apache Kafka holds these two against each other no more than we do.
        {"group.min.session.timeout.ms": "7000", "group.max.session.timeout.ms": "6000"},
        {"group.coordinator.rebalance.protocols": "classic"},
    ],
)
def test_what_a_node_takes_at_its_start(changes: dict[str, str]) -> None:
    settings_of(changes)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("group.consumer.migration.policy", "UpGrade", "upgrade"),
        ("group.consumer.assignors", "range,uniform", ("range", "uniform")),
        ("group.coordinator.rebalance.protocols", "classic,consumer", ("classic", "consumer")),
        ("group.initial.rebalance.delay.ms", "0", 0),
        ("offsets.retention.minutes", "1", 1),
    ],
)
def test_values(name: str, text: str, value: object) -> None:
    assert getattr(settings_of({name: text}), NODE[name].attribute) == value


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("group.coordinator.threads", "is read but has no effect yet"),
        ("group.share.max.size", "is read but has no effect yet"),
        ("group.coordinator.new.enable", "is a key of Apache Kafka's that has no effect here"),
        ("group.inital.rebalance.delay.ms", "is not a known key"),
        ("offsets.retention.minuts", "is not a known key"),
    ],
)
def test_warnings(name: str, says: str) -> None:
    _, warnings = NodeSettings.from_properties(BROKER | {name: "1"})
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{name} {says}")


def test_what_is_honoured_is_not_warned_of() -> None:
    names = {name: key for name, key in NODE.items() if name.startswith(("group.", "offset"))}
    named = {
        name: key.default
        for name, key in names.items()
        if not name.startswith(("group.share.", "group.streams.")) and key.default is not None
    }
    _, warnings = NodeSettings.from_properties(BROKER | named)
    assert sorted(warning.partition(" ")[0] for warning in warnings) == [
        "group.coordinator.append.linger.ms",
        "group.coordinator.background.threads",
        "group.coordinator.cached.buffer.max.bytes",
        "group.coordinator.threads",
        "offsets.load.buffer.size",
    ]


# -- a group's own -----------------------------------------------------------------------------


def test_each_bound_is_a_key_and_has_the_default_between() -> None:
    for name, (low, high) in GROUP_BOUNDS.items():
        values = [
            int(NODE[each].default or "") for each in (low, GROUP_SYNONYMS[name], high) if each
        ]
        assert values == sorted(values)
        assert GROUP[name].default == NODE[GROUP_SYNONYMS[name]].default


def test_every_key_of_groups_is_documented() -> None:
    for name in (*GROUP, *(name for name in NODE if name.startswith(("group.", "offset")))):
        assert document(name), name


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (SESSION, "50000", None),
        (SESSION, "0", "at least 1"),
        (SESSION, "x", "whole number"),
        (SESSION, None, "use DELETE"),
        (INTERVAL, "0", None),
        ("consumer.session.timeout", "1", "Unknown group config name: consumer.session.timeout"),
        ("group.max.size", "1", "Unknown group config name: group.max.size"),
        ("retention.ms", "1", "Unknown group config name: retention.ms"),
        ("share.isolation.level", "read_committed", None),
        ("share.isolation.level", "READ_COMMITTED", "one of read_committed, read_uncommitted"),
        ("share.renew.acknowledge.enable", "FALSE", None),
        ("share.delivery.count.limit", "1", "at least 2"),
        ("share.auto.offset.reset", "earliest", None),
        ("share.auto.offset.reset", "EARLIEST", "by_duration"),
        ("share.auto.offset.reset", "none", "by_duration"),
        ("share.auto.offset.reset", "by_duration:PT1H", None),
        ("share.auto.offset.reset", "by_duration:P1DT2H3M4.5S", None),
        ("share.auto.offset.reset", "by_duration:pt0s", None),
        ("share.auto.offset.reset", "by_duration:-PT1H", "by_duration"),
        ("share.auto.offset.reset", "by_duration:", "by_duration"),
        ("share.auto.offset.reset", "by_duration:P", "by_duration"),
        ("share.auto.offset.reset", "by_duration:P1DT", "by_duration"),
        ("share.auto.offset.reset", "by_duration:P1Y", "by_duration"),
        (SESSION, "1" * 40_000, "exceeds the maximum value size"),
    ],
)
def test_a_group_s_configs_from_the_wire(name: str, value: str | None, says: str | None) -> None:
    refusal = validate_group_config(name, value)
    if says is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert says in refusal


@pytest.mark.parametrize("name", sorted(GROUP_BOUNDS))
def test_a_group_is_held_to_the_node_s_bounds(name: str) -> None:
    """Method: the bounds themselves, and one beyond each; then others from the node's file."""
    low, high = GROUP_BOUNDS[name]
    most = int(NODE[high].default or "")
    assert refuse_group_configs({name: str(most)}, {}) is None
    refusal = f"{name} must be less than or equal to {high}"
    assert refuse_group_configs({name: str(most + 1)}, {}) == refusal
    assert refuse_group_configs({name: str(most + 1)}, {high: str(most + 1)}) is None
    if low is not None:
        least = int(NODE[low].default or "")
        assert refuse_group_configs({name: str(least)}, {}) is None
        refusal = f"{name} must be greater than or equal to {low}"
        assert refuse_group_configs({name: str(least)}, {low: str(least + 1)}) == refusal


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_a_session_is_longer_than_a_heartbeat_s_interval(kind: str) -> None:
    """Method: bounds that overlap; the group says one of the two, or both."""
    session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
    static = {
        f"group.{kind}.min.session.timeout.ms": "10",
        f"group.{kind}.max.heartbeat.interval.ms": "60000",
    }
    refusal = f"{session} must be greater than {heartbeat}"
    assert refuse_group_configs({session: "5000"}, static) == refusal
    assert refuse_group_configs({session: "5001"}, static) is None
    assert refuse_group_configs({heartbeat: "45000"}, static) == refusal
    assert refuse_group_configs({session: "50000", heartbeat: "50000"}, static) == refusal
    assert refuse_group_configs({session: "50001", heartbeat: "50000"}, static) is None


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_the_interval_that_may_change_at_run_time_stays_within_its_bounds(kind: str) -> None:
    name = f"group.{kind}.assignment.interval.ms"
    most, least = (
        f"group.{kind}.max.assignment.interval.ms",
        f"group.{kind}.min.assignment.interval.ms",
    )
    assert refuse_node_interval(name, "15000", {}) is None
    refusal = f"{name} must be less than or equal to {most}"
    assert refuse_node_interval(name, "15001", {}) == refusal
    assert refuse_node_interval(name, "15001", {most: "15001"}) is None
    refusal = f"{name} must be greater than or equal to {least}"
    assert refuse_node_interval(name, "9", {least: "10"}) == refusal
    assert refuse_node_interval("log.retention.ms", "-1", {}) is None


def test_what_another_controller_let_through_is_refused_until_it_is_gone() -> None:
    refusal = refuse_group_configs({SESSION: "soon", HEARTBEAT: "6000"}, {})
    assert refusal is not None
    assert refusal.startswith(f"{SESSION}=soon: must be a whole number")


def test_a_group_is_described_with_its_sources() -> None:
    """Its own, this broker's, all brokers', the file's, the default: strongest first."""
    name = f"group.{INTERVAL}"
    entries = {
        entry.name: entry
        for entry in describe_group(
            {INTERVAL: " 7 ", "share.renew.acknowledge.enable": "FALSE"},
            broker={name: "6"},
            cluster={name: "5"},
            static={name: "4", "group.consumer.session.timeout.ms": "46000"},
        )
    }
    assert entries.keys() == GROUP.keys()
    interval = entries[INTERVAL]
    assert (interval.value, interval.source) == ("7", ConfigSource.DYNAMIC_GROUP)
    assert interval.synonyms == (
        (INTERVAL, "7", ConfigSource.DYNAMIC_GROUP),
        (name, "6", ConfigSource.DYNAMIC_BROKER),
        (name, "5", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (name, "4", ConfigSource.STATIC_BROKER),
        (name, "1000", ConfigSource.DEFAULT),
    )
    session = entries[SESSION]
    assert (session.value, session.source) == ("46000", ConfigSource.STATIC_BROKER)
    assert [synonym.name for synonym in session.synonyms] == [f"group.{SESSION}"] * 2
    assert entries["share.renew.acknowledge.enable"].value == "false"
    start = entries["share.auto.offset.reset"]
    assert start.synonyms == (("share.auto.offset.reset", "latest", ConfigSource.DEFAULT),)
    assert not any(entry.read_only or entry.sensitive for entry in entries.values())
    assert int(ConfigSource.DYNAMIC_GROUP) == 8


def test_some_keys_of_a_group_are_described_and_what_cannot_be_read_is_told_as_it_is() -> None:
    """Another controller may know values that we refuse."""
    (entry,) = describe_group({HEARTBEAT: "soon"}, names=[HEARTBEAT, "no.such.key"])
    assert (entry.name, entry.value) == (HEARTBEAT, "soon")
