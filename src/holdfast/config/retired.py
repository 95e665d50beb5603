"""Keys that Apache Kafka once had: what replaces each. Data, and one look-up. Pure."""

from __future__ import annotations

from typing import Final

_KRAFT: Final = (
    "there is no ZooKeeper; name the controllers in controller.quorum.voters"
    " (or controller.quorum.bootstrap.servers) and set process.roles and node.id"
)
_LISTENERS: Final = "use listeners, such as listeners=PLAINTEXT://HOST:PORT"
_ADVERTISED: Final = "use advertised.listeners, such as advertised.listeners=PLAINTEXT://HOST:PORT"
_FORMAT: Final = "there is one message format (v2); remove the key"
_TIMESTAMP: Final = "use {0}message.timestamp.before.max.ms and {0}message.timestamp.after.max.ms"

RETIRED_NODE_KEYS: Final[dict[str, str]] = {
    "advertised.host.name": _ADVERTISED,
    "advertised.port": _ADVERTISED,
    "auto.include.jmx.reporter": "there is no Java machine to report on; remove the key",
    "broker.id.generation.enable": "node ids are not made up; set node.id",
    "control.plane.listener.name": "use controller.listener.names",
    "delegation.token.master.key": "use delegation.token.secret.key",
    "host.name": _LISTENERS,
    "inter.broker.protocol.version": "the cluster's metadata.version says this; remove the key",
    "log.message.downconversion.enable": _FORMAT,
    "log.message.format.version": _FORMAT,
    "log.message.timestamp.difference.max.ms": _TIMESTAMP.format("log."),
    "offsets.commit.required.acks": "offset commits always wait for every replica; remove the key",
    "password.encoder.cipher.algorithm": "secrets are not kept in ZooKeeper; remove the key",
    "password.encoder.iterations": "secrets are not kept in ZooKeeper; remove the key",
    "password.encoder.key.length": "secrets are not kept in ZooKeeper; remove the key",
    "password.encoder.keyfactory.algorithm": "secrets are not kept in ZooKeeper; remove the key",
    "password.encoder.old.secret": "secrets are not kept in ZooKeeper; remove the key",
    "password.encoder.secret": "secrets are not kept in ZooKeeper; remove the key",
    "port": _LISTENERS,
    "reserved.broker.max.id": "node ids are not made up; set node.id",
}

RETIRED_TOPIC_KEYS: Final[dict[str, str]] = {
    "message.downconversion.enable": _FORMAT,
    "message.format.version": _FORMAT,
    "message.timestamp.difference.max.ms": _TIMESTAMP.format(""),
}

# Families of Apache Kafka's keys that are taken from a file but change nothing here. Their effect
# starts with a listener, a plug-in or a coordinator, and those are refused where they are named.
WITHOUT_EFFECT: Final = (
    "add.partitions.to.txn.",
    "alter.log.dirs.",
    "config.providers",
    "connection.failed.authentication.",
    "connections.max.reauth.",
    "controller.performance.",
    "controller.quorum.",
    "controller.quota.",
    "cordoned.log.dirs",
    "delegation.token.",
    "delete.records.purgatory.",
    "early.start.listeners",
    "fetch.purgatory.",
    "follower.",
    "group.coordinator.new.enable",
    "group.share.enable",
    "group.share.initialize.retry.interval.ms",
    "group.share.max.groups",
    "group.share.persister.class.name",
    "internal.",
    "kafka.metrics.",
    "leader.imbalance.",
    "leader.replication.",
    "listener.name.",
    "max.connection",
    "metadata.log.",
    "metric.reporters",
    "metrics.",
    "num.replica.alter.log.dirs.threads",
    "principal.builder.class",
    "producer.purgatory.",
    "queued.max.",
    "quota.window.",
    "remote.",
    "replica.alter.log.dirs.",
    "replication.quota.",
    "sasl.",
    "security.providers",
    "server.max.startup.time.ms",
    "share.",
    "socket.",
    "ssl.",
    "super.users",
    "telemetry.",
    "transaction",
    "unstable.",
)


def replacement(name: str) -> str | None:
    """Return what replaces a node key that is gone, or None when it isn't a key of the past."""
    if name.startswith("zookeeper."):
        return _KRAFT
    return RETIRED_NODE_KEYS.get(name)


def has_no_effect(name: str) -> bool:
    """Whether this is a key of Apache Kafka's that is taken and then ignored."""
    return name.startswith(WITHOUT_EFFECT)
