"""What each key of groups means, in a sentence or two of ours. Data; loaded with the others."""

from __future__ import annotations

from typing import Final

from holdfast.config.group_keys import GROUP_BOUNDS, GROUP_SYNONYMS

_NODE: Final = {
    "group.consumer.assignment.interval.ms": (
        "The least time between two assignments of a group of the consumer protocol. Members that"
        " join one after the other are assigned for at once, and not each by itself."
    ),
    "group.consumer.assignors": (
        "Assignors of the consumer protocol, the first for members that name none: uniform and"
        " range, or the names of Apache Kafka's classes for the two."
    ),
    "group.consumer.heartbeat.interval.ms": "How often a member of the consumer protocol is heard.",
    "group.consumer.max.size": "The most members of a group of the consumer protocol.",
    "group.consumer.migration.policy": (
        "Which way groups with members may change over: upgrade to the consumer protocol, downgrade"
        " to the classic one, bidirectional, or disabled."
    ),
    "group.consumer.regex.refresh.interval.ms": (
        "Time after which a group's patterns are held to the names of all topics again."
    ),
    "group.consumer.session.timeout.ms": (
        "Silence after which a member of the consumer protocol is out of its group."
    ),
    "group.coordinator.append.linger.ms": (
        "How long Apache Kafka's coordinator gathers records. Here what one turn of the loop has"
        " decided shares a batch."
    ),
    "group.coordinator.background.threads": "Threads for patterns in Apache Kafka's coordinator.",
    "group.coordinator.cached.buffer.max.bytes": "The largest buffer that Apache Kafka's keeps.",
    "group.coordinator.rebalance.protocols": (
        "Protocols that groups are served by. Without consumer there is the classic one alone;"
        " share and streams are not served."
    ),
    "group.coordinator.threads": "Threads of Apache Kafka's coordinator.",
    "group.initial.rebalance.delay.ms": "How long a new group waits for more members.",
    "group.max.session.timeout.ms": "The longest session that a group's member may ask.",
    "group.max.size": "The most members of a group of the classic protocol.",
    "group.min.session.timeout.ms": "The shortest session that a group's member may ask.",
    "group.share.assignment.interval.ms": "The least time between a share group's assignments.",
    "group.share.assignors": "The assignor of share groups.",
    "group.share.delivery.count.limit": "How often a record is delivered to a share group.",
    "group.share.heartbeat.interval.ms": "How often a member of a share group is heard.",
    "group.share.max.share.sessions": "The most sessions of share groups.",
    "group.share.max.size": "The most members of a share group.",
    "group.share.partition.max.record.locks": "Records of a partition that a share group may hold.",
    "group.share.record.lock.duration.ms": "How long a share group's member may hold a record.",
    "group.share.session.timeout.ms": "Silence after which a member is out of a share group.",
    "group.streams.assignment.interval.ms": "The least time between a streams group's assignments.",
    "group.streams.heartbeat.interval.ms": "How often a member of a streams group is heard.",
    "group.streams.initial.rebalance.delay.ms": (
        "How long a new streams group waits for more members."
    ),
    "group.streams.max.size": "The most members of a streams group.",
    "group.streams.num.standby.replicas": "Replicas of a streams group's state that stand by.",
    "group.streams.session.timeout.ms": "Silence after which a member is out of a streams group.",
    "holdfast.group.bytes.max": "Bytes that the members of a group may tell of themselves in all.",
    "holdfast.group.shard.groups.max": (
        "The most groups of one partition of the topic of committed offsets; no new ones beyond."
    ),
    "holdfast.group.shard.offsets.bytes.max": (
        "Bytes of committed offsets, in memory, of one partition of their topic; none beyond."
    ),
    "holdfast.groups.bytes.max": (
        "Bytes that all groups and committed offsets of a broker may take in memory; none beyond."
    ),
    "offset.metadata.max.bytes": "The longest note that a committed offset may carry.",
    "offsets.commit.timeout.ms": "How long an offset commit waits for replicas.",
    "offsets.load.buffer.size": "Bytes that Apache Kafka reads at a time where it loads groups.",
    "offsets.retention.check.interval.ms": "Time between two searches for stale offsets.",
    "offsets.retention.minutes": "How long an empty group's offsets are kept.",
    "offsets.topic.compression.codec": (
        "What records of groups are compressed with: 0 nothing, 1 gzip, 2 snappy, 3 lz4, 4 zstd."
    ),
    "offsets.topic.num.partitions": "Partitions of the topic of committed offsets, as it is made.",
    "offsets.topic.replication.factor": (
        "Replicas of the topic of committed offsets, as it is made. Where the key is not set they"
        " are as many as there are brokers, up to three; while there are fewer, others are waited"
        " for until none has come for five seconds."
    ),
    "offsets.topic.segment.bytes": "Segment size of the topic of committed offsets, as it is made.",
}

_OWN: Final = {
    "share.auto.offset.reset": "Where a share group begins: earliest, latest, or so long ago.",
    "share.isolation.level": "Whether a share group is given what an open transaction wrote.",
    "share.renew.acknowledge.enable": "Whether members may renew their hold on a record.",
}


def _bound_documents() -> dict[str, str]:
    documents = {}
    for name, (low, high) in GROUP_BOUNDS.items():
        documents[high] = f"The most that a group's own {name} may be; it is drawn down to it."
        if low is not None:
            documents[low] = f"The least that a group's own {name} may be; it is drawn up to it."
    return documents


GROUP_DOCUMENTS: Final[dict[str, str]] = {
    **_NODE,
    **_bound_documents(),
    **_OWN,
    **{name: _NODE[synonym] for name, synonym in GROUP_SYNONYMS.items()},
}
