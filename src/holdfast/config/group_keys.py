"""The tables of groups' keys: a node's, and those that a group may have for itself. Data only.

A group's own key has the node's for its default (`GROUP_SYNONYMS`), and is held to the bounds that
nodes have for it (`GROUP_BOUNDS`). Groups of two kinds are not served, share groups and streams
groups: their keys are taken, held to their bounds and described all the same, as by Apache Kafka,
which does so although nobody may ever use them in a group of that name.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.config.key import INT_MAX_TEXT, NO_PLUGIN, ConfigType, Key, Update

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_SHORT, _LONG, _LIST = ConfigType.SHORT, ConfigType.LONG, ConfigType.LIST
_CLUSTER: Final = Update.CLUSTER_WIDE

REBALANCE_PROTOCOLS: Final = "group.coordinator.rebalance.protocols"
ASSIGNOR_CLASSES: Final[dict[str, str]] = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}

_OFFSETS: Final = (
    Key("offset.metadata.max.bytes", _INT, "4096"),
    Key("offsets.commit.timeout.ms", _INT, "5000", low=1),
    # A shard is read in pieces that suit the loop.
    Key("offsets.load.buffer.size", _INT, "5242880", low=1, effect=False),
    Key("offsets.retention.check.interval.ms", _LONG, "600000", low=1),
    Key("offsets.retention.minutes", _INT, "10080", low=1),
    Key("offsets.topic.compression.codec", _INT, "0", low=0, high=4),
    Key("offsets.topic.num.partitions", _INT, "50", low=1),
    Key("offsets.topic.replication.factor", _SHORT, "3", low=1),
    Key("offsets.topic.segment.bytes", _INT, "104857600", low=1),
)

_COORDINATOR: Final = (
    Key("group.coordinator.append.linger.ms", _INT, "-1", low=-1, effect=False),
    Key("group.coordinator.background.threads", _INT, "2", low=1, effect=False),
    Key(
        "group.coordinator.cached.buffer.max.bytes",
        _INT,
        "1048588",
        low=524288,
        update=_CLUSTER,
        effect=False,
    ),
    Key(
        REBALANCE_PROTOCOLS,
        _LIST,
        "classic,consumer,streams",
        choices=("consumer", "classic", "share", "streams"),
    ),
    Key("group.coordinator.threads", _INT, "4", low=1, effect=False),
    Key("holdfast.group.bytes.max", _INT, "16777216", low=65536),
    Key("holdfast.group.shard.groups.max", _INT, "100000", low=1),
    Key("holdfast.group.shard.offsets.bytes.max", _LONG, "268435456", low=1048576),
    Key("holdfast.groups.bytes.max", _LONG, "1073741824", low=1048576),
)

_CLASSIC: Final = (
    Key("group.initial.rebalance.delay.ms", _INT, "3000"),
    Key("group.max.session.timeout.ms", _INT, "1800000"),
    Key("group.max.size", _INT, INT_MAX_TEXT, low=1),
    Key("group.min.session.timeout.ms", _INT, "6000"),
)

_CONSUMER: Final = (
    Key("group.consumer.assignment.interval.ms", _INT, "1000", low=0, update=_CLUSTER),
    Key(
        "group.consumer.assignors",
        _LIST,
        "uniform,range",
        honoured=("uniform", "range", *ASSIGNOR_CLASSES),
        reason=NO_PLUGIN,
    ),
    Key("group.consumer.heartbeat.interval.ms", _INT, "5000", low=1),
    Key("group.consumer.max.assignment.interval.ms", _INT, "15000", low=0),
    Key("group.consumer.max.heartbeat.interval.ms", _INT, "15000", low=1),
    Key("group.consumer.max.session.timeout.ms", _INT, "60000", low=1),
    Key("group.consumer.max.size", _INT, INT_MAX_TEXT, low=1),
    Key(
        "group.consumer.migration.policy",
        _STRING,
        "bidirectional",
        choices=("disabled", "downgrade", "upgrade", "bidirectional"),
        any_case=True,
    ),
    Key("group.consumer.min.assignment.interval.ms", _INT, "0", low=0),
    Key("group.consumer.min.heartbeat.interval.ms", _INT, "5000", low=1),
    Key("group.consumer.min.session.timeout.ms", _INT, "45000", low=1),
    Key("group.consumer.regex.refresh.interval.ms", _INT, "600000", low=10000),
    Key("group.consumer.session.timeout.ms", _INT, "45000", low=1),
)


def _idle(
    name: str,
    default: str,
    low: int,
    high: int | None = None,
    update: Update = Update.READ_ONLY,
) -> Key:
    """A number of groups that are not served."""
    return Key(name, _INT, default, low=low, high=high, update=update, effect=False)


_SHARE: Final = (
    _idle("group.share.assignment.interval.ms", "1000", 0, update=_CLUSTER),
    Key("group.share.assignors", _LIST, "simple", effect=False),
    _idle("group.share.delivery.count.limit", "5", 2, 10),
    _idle("group.share.heartbeat.interval.ms", "5000", 1),
    _idle("group.share.max.assignment.interval.ms", "15000", 0),
    _idle("group.share.max.delivery.count.limit", "10", 5, 25),
    _idle("group.share.max.heartbeat.interval.ms", "15000", 1),
    _idle("group.share.max.partition.max.record.locks", "4000", 2000, 10_000),
    _idle("group.share.max.record.lock.duration.ms", "60000", 30_000, 3_600_000),
    _idle("group.share.max.session.timeout.ms", "60000", 1),
    _idle("group.share.max.share.sessions", "2000", 1),
    _idle("group.share.max.size", "200", 1, 1000),
    _idle("group.share.min.assignment.interval.ms", "0", 0),
    _idle("group.share.min.delivery.count.limit", "2", 2, 5),
    _idle("group.share.min.heartbeat.interval.ms", "5000", 1),
    _idle("group.share.min.partition.max.record.locks", "100", 100, 2000),
    _idle("group.share.min.record.lock.duration.ms", "15000", 1000, 30_000),
    _idle("group.share.min.session.timeout.ms", "45000", 1),
    _idle("group.share.partition.max.record.locks", "2000", 100, 10_000),
    _idle("group.share.record.lock.duration.ms", "30000", 1000, 3_600_000),
    _idle("group.share.session.timeout.ms", "45000", 1),
)

_STREAMS: Final = (
    _idle("group.streams.assignment.interval.ms", "1000", 0, update=_CLUSTER),
    _idle("group.streams.heartbeat.interval.ms", "5000", 1),
    _idle("group.streams.initial.rebalance.delay.ms", "3000", 0),
    _idle("group.streams.max.assignment.interval.ms", "15000", 0),
    _idle("group.streams.max.heartbeat.interval.ms", "15000", 1),
    _idle("group.streams.max.session.timeout.ms", "60000", 1),
    _idle("group.streams.max.size", INT_MAX_TEXT, 1),
    _idle("group.streams.max.standby.replicas", "2", 0),
    _idle("group.streams.min.assignment.interval.ms", "0", 0),
    _idle("group.streams.min.heartbeat.interval.ms", "5000", 1),
    _idle("group.streams.min.session.timeout.ms", "45000", 1),
    _idle("group.streams.num.standby.replicas", "0", 0),
    _idle("group.streams.session.timeout.ms", "45000", 1),
)

NODE_GROUP_KEYS: Final = (*_OFFSETS, *_COORDINATOR, *_CLASSIC, *_CONSUMER, *_SHARE, *_STREAMS)

# Java's durations (PnDTnHnMn.nS), those that are not negative.
_DURATION: Final = (
    r"\+?[Pp](?=[0-9]|[Tt][0-9])(?:[0-9]{1,12}[Dd])?"
    r"(?:[Tt](?=[0-9])(?:[0-9]{1,12}[Hh])?(?:[0-9]{1,12}[Mm])?"
    r"(?:[0-9]{1,12}(?:[.,][0-9]{0,9})?[Ss])?)?"
)
_START_OF_SHARES: Final = (
    rf"earliest|latest|by_duration:{_DURATION}",
    "earliest, latest or by_duration:PnDTnHnMn.nS",
)

# What a group may have for itself (Kafka's resource of type GROUP).
GROUP_KEYS: Final = (
    Key("consumer.assignment.interval.ms", _INT, "1000", low=0),
    Key("consumer.heartbeat.interval.ms", _INT, "5000", low=1),
    Key("consumer.session.timeout.ms", _INT, "45000", low=1),
    _idle("share.assignment.interval.ms", "1000", 0),
    Key("share.auto.offset.reset", _STRING, "latest", members=_START_OF_SHARES, effect=False),
    _idle("share.delivery.count.limit", "5", 2),
    _idle("share.heartbeat.interval.ms", "5000", 1),
    Key(
        "share.isolation.level",
        _STRING,
        "read_uncommitted",
        choices=("read_committed", "read_uncommitted"),
        effect=False,
    ),
    _idle("share.partition.max.record.locks", "2000", 100),
    _idle("share.record.lock.duration.ms", "30000", 1000),
    Key("share.renew.acknowledge.enable", _BOOLEAN, "true", effect=False),
    _idle("share.session.timeout.ms", "45000", 1),
    _idle("streams.assignment.interval.ms", "1000", 0),
    _idle("streams.heartbeat.interval.ms", "5000", 1),
    _idle("streams.initial.rebalance.delay.ms", "3000", 0),
    _idle("streams.num.standby.replicas", "0", 0),
    _idle("streams.session.timeout.ms", "45000", 1),
)


class Bounds(NamedTuple):
    """The node's keys that bound one of a group; `low` is None where its own bound is enough."""

    low: str | None
    high: str


def _bounds(kind: str, name: str) -> tuple[str, Bounds]:
    bounds = Bounds(f"group.{kind}.min.{name}", f"group.{kind}.max.{name}")
    return f"{kind}.{name}", bounds


GROUP_BOUNDS: Final[dict[str, Bounds]] = dict(
    [
        *(
            _bounds(kind, name)
            for kind in ("consumer", "share", "streams")
            for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
        ),
        _bounds("share", "record.lock.duration.ms"),
        _bounds("share", "delivery.count.limit"),
        _bounds("share", "partition.max.record.locks"),
        ("streams.num.standby.replicas", Bounds(None, "group.streams.max.standby.replicas")),
    ]
)

_NODE_NAMES: Final = frozenset(key.name for key in NODE_GROUP_KEYS)
GROUP_SYNONYMS: Final[dict[str, str]] = {
    key.name: f"group.{key.name}" for key in GROUP_KEYS if f"group.{key.name}" in _NODE_NAMES
}
