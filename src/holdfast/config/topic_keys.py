"""The table of topic keys, with Apache Kafka 4's types, defaults and bounds. Data only.

`SYNONYMS` names the broker keys that give a topic key its default, strongest first, each with the
factor that turns its unit into the topic key's.
"""

from __future__ import annotations

from typing import Final

from holdfast.config.key import LONG_MAX_TEXT, ConfigType, Key

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _DOUBLE, _LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST

NO_TIERS: Final = "tiered storage is not built"
THROTTLED: Final = (
    r"\*|[0-9]+:[0-9]+",
    "the literal '*' or a list of replicas: partition:broker,partition:broker,...",
)

TOPIC_KEYS: Final = (
    Key("cleanup.policy", _LIST, "delete", choices=("compact", "delete")),
    Key("compression.gzip.level", _INT, "-1", low=-1, high=9, effect=False),
    Key("compression.lz4.level", _INT, "9", low=1, high=17, effect=False),
    Key(
        "compression.type",
        _STRING,
        "producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    Key("compression.zstd.level", _INT, "3", low=-131072, high=22, effect=False),
    Key("delete.retention.ms", _LONG, "86400000", low=0),
    Key("file.delete.delay.ms", _LONG, "60000", low=0),
    Key("flush.messages", _LONG, LONG_MAX_TEXT, low=1),
    Key("flush.ms", _LONG, LONG_MAX_TEXT, low=0),
    Key(
        "follower.replication.throttled.replicas",
        _LIST,
        "",
        members=THROTTLED,
    ),
    Key("index.interval.bytes", _INT, "4096", low=0),
    Key("leader.replication.throttled.replicas", _LIST, "", members=THROTTLED),
    Key("local.retention.bytes", _LONG, "-2", low=-2, effect=False),
    Key("local.retention.ms", _LONG, "-2", low=-2, effect=False),
    Key("max.compaction.lag.ms", _LONG, LONG_MAX_TEXT, low=1),
    Key("max.message.bytes", _INT, "1048588", low=0),
    Key("message.timestamp.after.max.ms", _LONG, "3600000", low=0),
    Key("message.timestamp.before.max.ms", _LONG, LONG_MAX_TEXT, low=0),
    Key(
        "message.timestamp.type",
        _STRING,
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
    ),
    Key("min.cleanable.dirty.ratio", _DOUBLE, "0.5", low=0, high=1),
    Key("min.compaction.lag.ms", _LONG, "0", low=0),
    Key("min.insync.replicas", _INT, "1", low=1),
    Key("preallocate", _BOOLEAN, "false", effect=False),  # files grow as they are written
    # Ours, and no key of Apache Kafka's, which validates as "deep" does.
    Key("record.validation", _STRING, "header", choices=("deep", "header")),
    Key("remote.log.copy.disable", _BOOLEAN, "false", effect=False),
    Key("remote.log.delete.on.disable", _BOOLEAN, "false", effect=False),
    Key("remote.storage.enable", _BOOLEAN, "false", honoured=("false",), reason=NO_TIERS),
    Key("retention.bytes", _LONG, "-1"),
    Key("retention.ms", _LONG, "604800000", low=-1),
    Key("segment.bytes", _INT, "1073741824", low=1024 * 1024),
    Key("segment.index.bytes", _INT, "10485760", low=4),
    Key("segment.jitter.ms", _LONG, "0", low=0),
    Key("segment.ms", _LONG, "604800000", low=1),
    Key("unclean.leader.election.enable", _BOOLEAN, "false"),
)

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000

SYNONYMS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "record.validation": (("record.validation", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}
