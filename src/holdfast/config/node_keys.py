"""The table of node keys, with Apache Kafka 4's types, defaults and bounds. Data only."""

from __future__ import annotations

from typing import Final

from holdfast.config.group_keys import NODE_GROUP_KEYS
from holdfast.config.key import (
    INT_MAX_TEXT,
    LONG_MAX_TEXT,
    NO_PLUGIN,
    ConfigType,
    Key,
    Update,
)

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_SHORT, _LONG, _DOUBLE = ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE
_LIST, _CLASS = ConfigType.LIST, ConfigType.CLASS
_CLUSTER: Final = Update.CLUSTER_WIDE
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

IDENTITY: Final = (
    Key("node.id", _INT, None, low=0),
    Key("broker.id", _INT, "-1"),
    Key("process.roles", _LIST, None, choices=("broker", "controller")),
    Key("broker.rack", _STRING, None),
    Key("listeners", _LIST, "PLAINTEXT://:9092"),
    Key("advertised.listeners", _LIST, None),
    Key("controller.listener.names", _LIST, ""),
    Key("inter.broker.listener.name", _STRING, None),
    Key(
        "security.inter.broker.protocol",
        _STRING,
        "PLAINTEXT",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        honoured=("PLAINTEXT",),
        reason="TLS and SASL are not built yet",
    ),
    Key(
        "listener.security.protocol.map",
        _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    ),
    Key("controller.quorum.voters", _LIST, ""),
    Key("controller.quorum.bootstrap.servers", _LIST, ""),
    Key("log.dir", _LIST, "/tmp/kafka-logs"),  # noqa: S108  Kafka's default, to the letter
    Key("log.dirs", _LIST, None),
    Key("metadata.log.dir", _STRING, None),
)

NETWORK: Final = (
    Key("background.threads", _INT, "10", low=1, update=_CLUSTER, effect=False),
    Key("connections.max.idle.ms", _LONG, "600000"),
    Key("controller.socket.timeout.ms", _INT, "30000", effect=False),
    Key("fetch.max.bytes", _INT, "57671680", low=1024),
    Key("holdfast.address.answer.bytes.max", _LONG, "268435456", low=1048576),
    Key("holdfast.address.request.bytes.max", _LONG, "268435456", low=1048576),
    Key("holdfast.answer.bytes.max", _LONG, "536870912", low=1048576),
    Key("holdfast.connection.answer.bytes.max", _INT, "16777216", low=65536),
    Key("holdfast.connection.partitions.max", _INT, "200000", low=1),
    Key("holdfast.connection.requests.max", _INT, "1000", low=1),
    Key("holdfast.request.bytes.max", _LONG, "536870912", low=1048576),
    Key("max.connections", _INT, INT_MAX_TEXT, low=0, update=_CLUSTER),
    Key("max.connections.per.ip", _INT, INT_MAX_TEXT, low=0, update=_CLUSTER),
    Key(
        "max.connections.per.ip.overrides",
        _LIST,
        "",
        update=_CLUSTER,
        members=(r"[^\s,]+:[0-9]{1,9}", "ADDRESS:NUMBER"),
    ),
    Key("max.incremental.fetch.session.cache.slots", _INT, "1000", low=0),
    Key("max.request.partition.size.limit", _INT, "2000", low=1),
    Key("num.io.threads", _INT, "8", low=1, update=_CLUSTER, effect=False),
    Key("num.network.threads", _INT, "3", low=1, update=_CLUSTER, effect=False),
    Key("queued.max.request.bytes", _LONG, "-1", effect=False),
    Key("queued.max.requests", _INT, "500", low=1, effect=False),
    Key("request.timeout.ms", _INT, "30000"),
    Key("socket.connection.setup.timeout.max.ms", _LONG, "30000", effect=False),
    Key("socket.connection.setup.timeout.ms", _LONG, "10000", effect=False),
    Key("socket.listen.backlog.size", _INT, "50", low=1, effect=False),
    Key("socket.receive.buffer.bytes", _INT, "102400", low=-1, effect=False),
    Key("socket.request.max.bytes", _INT, "104857600", low=1),
    Key("socket.send.buffer.bytes", _INT, "102400", low=-1, effect=False),
)

TOPICS: Final = (
    Key("auto.create.topics.enable", _BOOLEAN, "true"),
    Key("default.replication.factor", _INT, "1", low=1, high=32767),
    Key("delete.topic.enable", _BOOLEAN, "true"),
    Key("min.insync.replicas", _INT, "1", low=1, update=_CLUSTER),
    Key("num.partitions", _INT, "1", low=1),
    Key("unclean.leader.election.enable", _BOOLEAN, "false", update=_CLUSTER),
)

LOG: Final = (
    Key("compression.gzip.level", _INT, "-1", low=-1, high=9, update=_CLUSTER, effect=False),
    Key("compression.lz4.level", _INT, "9", low=1, high=17, update=_CLUSTER, effect=False),
    Key(
        "compression.type",
        _STRING,
        "producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        update=_CLUSTER,
    ),
    Key("compression.zstd.level", _INT, "3", low=-131072, high=22, update=_CLUSTER, effect=False),
    Key("log.cleaner.backoff.ms", _LONG, "15000", low=0, update=_CLUSTER),
    Key("log.cleaner.dedupe.buffer.size", _LONG, "134217728", update=_CLUSTER),
    Key("log.cleaner.delete.retention.ms", _LONG, "86400000", low=0, update=_CLUSTER),
    Key("log.cleaner.enable", _BOOLEAN, "true"),
    Key("log.cleaner.io.buffer.load.factor", _DOUBLE, "0.9", update=_CLUSTER, effect=False),
    Key("log.cleaner.io.buffer.size", _INT, "524288", low=0, update=_CLUSTER, effect=False),
    # As much as a double may be. What is below 1 would be a cleaner that stands still.
    Key(
        "log.cleaner.io.max.bytes.per.second",
        _DOUBLE,
        "1.7976931348623157E308",
        low=1,
        update=_CLUSTER,
    ),
    Key("log.cleaner.max.compaction.lag.ms", _LONG, LONG_MAX_TEXT, low=1, update=_CLUSTER),
    Key("log.cleaner.min.cleanable.ratio", _DOUBLE, "0.5", low=0, high=1, update=_CLUSTER),
    Key("log.cleaner.min.compaction.lag.ms", _LONG, "0", low=0, update=_CLUSTER),
    Key("log.cleaner.threads", _INT, "1", low=0, update=_CLUSTER),
    Key("log.cleanup.policy", _LIST, "delete", choices=("compact", "delete"), update=_CLUSTER),
    Key("log.dir.failure.timeout.ms", _LONG, "30000", low=1, effect=False),
    Key("log.flush.interval.messages", _LONG, LONG_MAX_TEXT, low=1, update=_CLUSTER),
    Key("log.flush.interval.ms", _LONG, None, low=0, update=_CLUSTER),
    Key("log.flush.offset.checkpoint.interval.ms", _INT, "60000", low=0),
    Key("log.flush.scheduler.interval.ms", _LONG, LONG_MAX_TEXT, low=0),
    Key("log.flush.start.offset.checkpoint.interval.ms", _INT, "60000", low=0),
    Key("log.index.interval.bytes", _INT, "4096", low=0, update=_CLUSTER),
    Key("log.index.size.max.bytes", _INT, "10485760", low=4, update=_CLUSTER),
    Key("log.initial.task.delay.ms", _LONG, "30000", low=0),
    Key("log.local.retention.bytes", _LONG, "-2", low=-2, update=_CLUSTER, effect=False),
    Key("log.local.retention.ms", _LONG, "-2", low=-2, update=_CLUSTER, effect=False),
    Key("log.message.timestamp.after.max.ms", _LONG, "3600000", low=0, update=_CLUSTER),
    Key("log.message.timestamp.before.max.ms", _LONG, LONG_MAX_TEXT, low=0, update=_CLUSTER),
    Key(
        "log.message.timestamp.type",
        _STRING,
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        update=_CLUSTER,
    ),
    Key("log.preallocate", _BOOLEAN, "false", update=_CLUSTER, effect=False),
    Key("log.retention.bytes", _LONG, "-1", update=_CLUSTER),
    Key("log.retention.check.interval.ms", _LONG, "300000", low=1),
    Key("log.retention.hours", _INT, "168", low=-1),
    Key("log.retention.minutes", _INT, None, low=-1),
    Key("log.retention.ms", _LONG, None, low=-1, update=_CLUSTER),
    Key("log.roll.hours", _INT, "168", low=1),
    Key("log.roll.jitter.hours", _INT, "0", low=0),
    Key("log.roll.jitter.ms", _LONG, None, low=0, update=_CLUSTER),
    Key("log.roll.ms", _LONG, None, low=1, update=_CLUSTER),
    Key("log.segment.bytes", _INT, "1073741824", low=1024 * 1024, update=_CLUSTER),
    Key("log.segment.delete.delay.ms", _LONG, "60000", low=0, update=_CLUSTER),
    Key("message.max.bytes", _INT, "1048588", low=0, update=_CLUSTER),
    Key("num.recovery.threads.per.data.dir", _INT, "2", low=1, update=_CLUSTER, effect=False),
    Key("producer.id.expiration.check.interval.ms", _INT, "600000", low=1, effect=False),
    Key("producer.id.expiration.ms", _INT, "86400000", low=1, update=_CLUSTER),
    Key("record.validation", _STRING, "header", choices=("deep", "header"), update=_CLUSTER),
)

REPLICATION: Final = (
    Key("auto.leader.rebalance.enable", _BOOLEAN, "true"),
    Key("controlled.shutdown.enable", _BOOLEAN, "true"),
    Key("follower.replication.throttled.rate", _LONG, LONG_MAX_TEXT, low=0, update=_CLUSTER),
    Key("leader.imbalance.check.interval.seconds", _LONG, "300", low=1),
    Key("leader.replication.throttled.rate", _LONG, LONG_MAX_TEXT, low=0, update=_CLUSTER),
    Key("num.replica.fetchers", _INT, "1", low=1, update=_CLUSTER, effect=False),
    Key("replica.fetch.backoff.ms", _INT, "1000", low=0),
    Key("replica.fetch.max.bytes", _INT, "1048576", low=0),
    Key("replica.fetch.min.bytes", _INT, "1"),
    Key("replica.fetch.response.max.bytes", _INT, "10485760", low=0),
    Key("replica.fetch.wait.max.ms", _INT, "500"),
    Key("replica.high.watermark.checkpoint.interval.ms", _LONG, "5000", low=1),
    Key("replica.lag.time.max.ms", _LONG, "30000", low=1),
    Key(
        "replica.selector.class",
        _STRING,
        None,
        honoured=(
            "",
            "org.apache.kafka.common.replica.LeaderSelector",
            RACK_AWARE,
        ),
        reason=NO_PLUGIN,
    ),
    Key("replica.socket.receive.buffer.bytes", _INT, "65536", low=-1, effect=False),
    Key("replica.socket.timeout.ms", _INT, "30000"),
    Key("unclean.leader.election.interval.ms", _LONG, "300000", low=1),
)

CONTROLLER: Final = (
    Key("broker.heartbeat.interval.ms", _INT, "2000", low=1),
    Key("broker.session.timeout.ms", _INT, "9000", low=1),
    Key("controller.quorum.append.linger.ms", _INT, "25", low=0, effect=False),
    Key("controller.quorum.election.backoff.max.ms", _INT, "1000", low=0),
    Key("controller.quorum.election.timeout.ms", _INT, "1000", low=0),
    # Kafka takes 0 and 1 as well, but no fetch is answered and synced in less, and so nobody leads.
    Key("controller.quorum.fetch.timeout.ms", _INT, "2000", low=10),
    Key("controller.quorum.request.timeout.ms", _INT, "2000", low=1),
    Key("controller.quorum.retry.backoff.ms", _INT, "20", low=0),
    Key("initial.broker.registration.timeout.ms", _INT, "60000", low=1),
    Key("metadata.log.max.record.bytes.between.snapshots", _LONG, "20971520", low=1),
    Key("metadata.log.max.snapshot.interval.ms", _LONG, "3600000", low=0),
    Key("metadata.log.segment.bytes", _INT, "1073741824", low=8 * 1024 * 1024),
    Key("metadata.log.segment.ms", _LONG, "604800000", low=1),
    Key("metadata.max.idle.interval.ms", _INT, "500", low=0, effect=False),
    Key("metadata.max.retention.bytes", _LONG, "104857600"),
    Key("metadata.max.retention.ms", _LONG, "604800000"),
)

# Read and reported, so that a file written for Apache Kafka works; transactions will use them.
TRANSACTIONS: Final = (
    Key("transaction.max.timeout.ms", _INT, "900000", low=1, effect=False),
    Key(
        "transaction.partition.verification.enable",
        _BOOLEAN,
        "true",
        update=_CLUSTER,
        effect=False,
    ),
    Key("transaction.state.log.min.isr", _INT, "2", low=1, effect=False),
    Key("transaction.state.log.num.partitions", _INT, "50", low=1, effect=False),
    Key("transaction.state.log.replication.factor", _SHORT, "3", low=1, effect=False),
    Key("transaction.state.log.segment.bytes", _INT, "104857600", low=1, effect=False),
    Key("transactional.id.expiration.ms", _INT, "604800000", low=1, effect=False),
)

# Keys that would promise what is not there: only the value that asks for nothing is taken.
PROMISES: Final = (
    Key("alter.config.policy.class.name", _CLASS, None, honoured=("",), reason=NO_PLUGIN),
    Key(
        "authorizer.class.name",
        _STRING,
        "",
        honoured=("",),
        reason="access control is not built yet, every request is allowed",
    ),
    Key("client.quota.callback.class", _CLASS, None, honoured=("",), reason=NO_PLUGIN),
    Key("create.topic.policy.class.name", _CLASS, None, honoured=("",), reason=NO_PLUGIN),
    Key(
        "remote.log.storage.system.enable",
        _BOOLEAN,
        "false",
        honoured=("false",),
        reason="tiered storage is not built",
    ),
)

NODE_KEYS: Final = (
    *IDENTITY,
    *NETWORK,
    *TOPICS,
    *LOG,
    *REPLICATION,
    *CONTROLLER,
    *NODE_GROUP_KEYS,
    *TRANSACTIONS,
    *PROMISES,
)
