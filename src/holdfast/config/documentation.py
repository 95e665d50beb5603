"""What each key means, in a sentence or two of ours. Data; loaded only when somebody asks."""

from __future__ import annotations

from typing import Final

from holdfast.config.figures import FIGURES
from holdfast.config.group_documentation import GROUP_DOCUMENTS


def document(name: str) -> str:
    """Return what a key means, of a topic, a node or a group; or a figure."""
    tables = (_TOPIC, _NODE, GROUP_DOCUMENTS, FIGURES)
    return next((table[name] for table in tables if name in table), "")


_TOPIC: Final = {
    "cleanup.policy": (
        "What happens to old segments: delete removes them by age and size, compact leaves the last"
        " record of each key."
    ),
    "compression.gzip.level": "Level at which a broker would compress with gzip.",
    "compression.lz4.level": "Level at which a broker would compress with lz4.",
    "compression.type": "Codec that batches are stored in; producer keeps what was sent.",
    "compression.zstd.level": "Level at which a broker would compress with zstd.",
    "delete.retention.ms": "How long a compacted topic keeps the marker of a deleted key.",
    "file.delete.delay.ms": "How long a removed segment's files stay before they are deleted.",
    "flush.messages": "Records after which a log is forced to disk; no answer waits for that.",
    "flush.ms": "Time after which a record is forced to disk; no answer waits for that.",
    "follower.replication.throttled.replicas": "Replicas whose fetching is throttled.",
    "index.interval.bytes": "Bytes of the log between two entries of its offset index.",
    "leader.replication.throttled.replicas": "Replicas whose serving of followers is throttled.",
    "local.retention.bytes": "Size that stays on local disk where storage is tiered.",
    "local.retention.ms": "Age that stays on local disk where storage is tiered.",
    "max.compaction.lag.ms": "The longest that a record may escape compaction.",
    "max.message.bytes": "The largest record batch that is taken, as it is compressed.",
    "message.timestamp.after.max.ms": "How far ahead of the broker's clock a record may be.",
    "message.timestamp.before.max.ms": "How far behind the broker's clock a record may be.",
    "message.timestamp.type": "Whether a record's time is its producer's or the broker's.",
    "min.cleanable.dirty.ratio": "Share of a log that is uncompacted before it is compacted.",
    "min.compaction.lag.ms": "The least that a record escapes compaction.",
    "min.insync.replicas": (
        "Replicas in sync, the leader among them, without which acks=all is refused. With fewer,"
        " nothing becomes visible to consumers either."
    ),
    "preallocate": "Whether a segment's file gets its full size when it is made.",
    "record.validation": (
        "Ours, not Apache Kafka's: what is checked of a batch before it is appended. deep looks at"
        " each record, as Apache Kafka does; header believes the batch's header, and costs less."
    ),
    "remote.log.copy.disable": "Whether tiered storage stops uploading.",
    "remote.log.delete.on.disable": "Whether turning tiered storage off deletes what it holds.",
    "remote.storage.enable": "Whether the topic's storage is tiered.",
    "retention.bytes": "Size of a partition above which its oldest segments go; -1 for none.",
    "retention.ms": "Age of the newest record at which a segment goes; -1 for never.",
    "segment.bytes": "Size at which a new segment begins.",
    "segment.index.bytes": "Size of an offset index at which a new segment begins.",
    "segment.jitter.ms": "The most taken off segment.ms at random, so that logs roll apart.",
    "segment.ms": "Age at which a new segment begins, however small the old one is.",
    "unclean.leader.election.enable": (
        "Whether a replica that was not in sync may lead when no other is left. It loses what was"
        " acknowledged and not copied."
    ),
}

_NODE: Final = {
    "advertised.listeners": "Endpoints that clients and brokers are told to use.",
    "alter.config.policy.class.name": "A Java class that judges changes of configs.",
    "authorizer.class.name": "A Java class that decides who may do what.",
    "auto.create.topics.enable": "Whether asking for a topic that isn't there makes it.",
    "auto.leader.rebalance.enable": "Whether leadership goes back to preferred replicas by itself.",
    "background.threads": "Threads for housekeeping in Apache Kafka.",
    "broker.heartbeat.interval.ms": "Time between a broker's heartbeats to the controller.",
    "broker.id": "The former name of node.id.",
    "broker.rack": "Where the broker stands; replicas of a partition are spread over racks.",
    "broker.session.timeout.ms": "Silence after which the controller holds a broker for dead.",
    "client.quota.callback.class": "A Java class that decides quotas.",
    "connections.max.idle.ms": "Silence after which a client's connection is closed.",
    "controlled.shutdown.enable": "Whether a stopping broker hands its leaderships over first.",
    "controller.listener.names": "Names of the listeners that controllers use, the first to dial.",
    "controller.quorum.append.linger.ms": "How long the quorum's leader gathers records.",
    "controller.quorum.bootstrap.servers": "HOST:PORT of controllers to ask for the quorum.",
    "controller.quorum.election.backoff.max.ms": "The longest pause before a new election.",
    "controller.quorum.election.timeout.ms": "Time without a leader before an election.",
    "controller.quorum.fetch.timeout.ms": "Time without a fetch before a voter is a candidate.",
    "controller.quorum.request.timeout.ms": "How long a request to a controller may take.",
    "controller.quorum.retry.backoff.ms": "Pause before a controller is dialled again.",
    "controller.quorum.voters": "The controllers as ID@HOST:PORT, separated by commas.",
    "controller.socket.timeout.ms": "How long a request between broker and controller may take.",
    "create.topic.policy.class.name": "A Java class that judges new topics.",
    "default.replication.factor": "Replicas of a topic that doesn't say how many.",
    "delete.topic.enable": "Whether topics may be deleted.",
    "fetch.max.bytes": "The most that one fetch returns, whatever the client asks.",
    "holdfast.address.answer.bytes.max": "Of holdfast.answer.bytes.max, how much for one address.",
    "holdfast.address.request.bytes.max": "Of holdfast.request.bytes.max, how much of one address.",
    "holdfast.answer.bytes.max": "Bytes of answers that a node holds for who does not take them.",
    "holdfast.connection.answer.bytes.max": "Bytes of answers held for one connection.",
    "holdfast.connection.partitions.max": "The most partitions that a connection's fetches await.",
    "holdfast.connection.requests.max": "The most requests of a connection without an answer yet.",
    "holdfast.request.bytes.max": "Bytes of requests that wait or are not whole yet, in a node.",
    "initial.broker.registration.timeout.ms": "How long a starting broker tries to register.",
    "inter.broker.listener.name": "Listener that brokers use among themselves.",
    "leader.imbalance.check.interval.seconds": "Time between two checks for preferred leaders.",
    "listener.security.protocol.map": "Protocol of each listener name, as NAME:PROTOCOL.",
    "listeners": "Endpoints that the node binds, as NAME://HOST:PORT; no host means all.",
    "log.cleaner.backoff.ms": "Pause of the compactor when there is nothing to do.",
    "log.cleaner.dedupe.buffer.size": "Memory of the compactor's map of keys.",
    "log.cleaner.enable": "Whether the compactor runs.",
    "log.cleaner.io.buffer.load.factor": "How full the compactor's map of keys may become.",
    "log.cleaner.io.buffer.size": "Memory of the compactor's reads and writes.",
    "log.cleaner.io.max.bytes.per.second": "What the compactor may read and write in a second.",
    "log.cleaner.threads": "Threads of the compactor.",
    "log.dir": "The directory for logs where log.dirs is not set.",
    "log.dir.failure.timeout.ms": "How long a broker may fail to report a lost directory.",
    "log.dirs": "Directories for logs, separated by commas, each best on a disk of its own.",
    "log.flush.offset.checkpoint.interval.ms": "Time between two checkpoints of recovery points.",
    "log.flush.start.offset.checkpoint.interval.ms": "Time between two checkpoints of log starts.",
    "log.initial.task.delay.ms": "Pause after a start before housekeeping begins.",
    "log.retention.check.interval.ms": "Time between two rounds of retention.",
    "max.connections": (
        "The most connections of a node; fewer if open files are limited to fewer. Those between"
        " brokers are never closed for it where clients have another listener. It holds at"
        " controllers as well, whose connections to one another count."
    ),
    "max.connections.per.ip": (
        "The most connections from one address. Brokers and administrators count, too: leave room"
        " for them where they share an address with clients, on one machine, say."
    ),
    "max.connections.per.ip.overrides": (
        "The most from some addresses: ADDRESS:NUMBER, by commas. Names are refused."
    ),
    "max.incremental.fetch.session.cache.slots": "The most fetch sessions.",
    "max.request.partition.size.limit": "The most partitions in one page of a description.",
    "metadata.log.dir": "Directory of the metadata log; the first of log.dirs if not set.",
    "metadata.log.max.record.bytes.between.snapshots": "Metadata after which a snapshot is made.",
    "metadata.log.max.snapshot.interval.ms": "Time after which a snapshot is made.",
    "metadata.log.segment.bytes": "Size at which the metadata log begins a new segment.",
    "metadata.log.segment.ms": "Age at which the metadata log begins a new segment.",
    "metadata.max.idle.interval.ms": "Quiet after which the controller writes an empty record.",
    "metadata.max.retention.bytes": "Size of the metadata log above which old parts go.",
    "metadata.max.retention.ms": "Age of the metadata log above which old parts go.",
    "node.id": "The node's number, its own in the cluster.",
    "num.io.threads": "Threads for requests in Apache Kafka.",
    "num.network.threads": "Threads for sockets in Apache Kafka.",
    "num.partitions": "Partitions of a topic that doesn't say how many.",
    "num.recovery.threads.per.data.dir": "Threads for loading logs in Apache Kafka.",
    "num.replica.fetchers": "Threads for replication in Apache Kafka.",
    "process.roles": "What the node is: broker, controller, or both.",
    "producer.id.expiration.check.interval.ms": "Time between two searches for idle producers.",
    "producer.id.expiration.ms": "Silence after which an idempotent producer is forgotten.",
    "queued.max.request.bytes": "Bytes of waiting requests in Apache Kafka.",
    "queued.max.requests": "Requests of a node that may wait before it stops reading.",
    "remote.log.storage.system.enable": "Whether tiered storage is on.",
    "replica.fetch.backoff.ms": "Pause of a follower after a failed fetch.",
    "replica.fetch.max.bytes": "Bytes of one partition that a follower asks for.",
    "replica.fetch.min.bytes": "Bytes that a follower waits for.",
    "replica.fetch.response.max.bytes": "Bytes of all partitions that a follower asks for.",
    "replica.fetch.wait.max.ms": "How long a follower's fetch waits for data.",
    "replica.high.watermark.checkpoint.interval.ms": "Time between two high-watermark checkpoints.",
    "replica.lag.time.max.ms": "How long a follower may lag before it leaves the ISR.",
    "leader.replication.throttled.rate": "Bytes a second to throttled followers out of sync.",
    "follower.replication.throttled.rate": "Bytes a second of throttled fetching out of sync.",
    "replica.selector.class": "LeaderSelector or RackAwareReplicaSelector: whom consumers read.",
    "replica.socket.receive.buffer.bytes": "Receive buffer of a follower's socket.",
    "replica.socket.timeout.ms": "How long a follower's request may take.",
    "request.timeout.ms": "How long a broker waits for another node's answer.",
    "security.inter.broker.protocol": "Protocol that brokers use among themselves.",
    "socket.connection.setup.timeout.max.ms": "The longest that opening a connection may take.",
    "socket.connection.setup.timeout.ms": "How long opening a connection may take at first.",
    "socket.listen.backlog.size": "Connections that may wait to be accepted.",
    "socket.receive.buffer.bytes": "Receive buffer of a client's socket.",
    "socket.request.max.bytes": "The largest request; a connection that sends more is closed.",
    "socket.send.buffer.bytes": "Send buffer of a client's socket.",
    "transaction.max.timeout.ms": "The longest transaction that a producer may ask for.",
    "transaction.partition.verification.enable": "Whether a transaction's partitions are verified.",
    "transaction.state.log.min.isr": "Replicas in sync that the transactions' topic needs.",
    "transaction.state.log.num.partitions": "Partitions of the transactions' topic.",
    "transaction.state.log.replication.factor": "Replicas of the transactions' topic.",
    "transaction.state.log.segment.bytes": "Segment size of the transactions' topic.",
    "transactional.id.expiration.ms": "Silence after which a transactional id is forgotten.",
    "unclean.leader.election.interval.ms": "Time between two searches for unclean elections.",
}


def _default_of(topic_key: str, unit: str = "") -> str:
    return f"Default of the topic config {topic_key}{unit}."


_NODE.update(
    {
        "log.cleaner.delete.retention.ms": _default_of("delete.retention.ms"),
        "log.cleaner.max.compaction.lag.ms": _default_of("max.compaction.lag.ms"),
        "log.cleaner.min.cleanable.ratio": _default_of("min.cleanable.dirty.ratio"),
        "log.cleaner.min.compaction.lag.ms": _default_of("min.compaction.lag.ms"),
        "log.cleanup.policy": _default_of("cleanup.policy"),
        "log.flush.interval.messages": _default_of("flush.messages"),
        "log.flush.interval.ms": _default_of("flush.ms"),
        "log.flush.scheduler.interval.ms": _default_of("flush.ms", " where nothing else is set"),
        "log.index.interval.bytes": _default_of("index.interval.bytes"),
        "log.index.size.max.bytes": _default_of("segment.index.bytes"),
        "log.local.retention.bytes": _default_of("local.retention.bytes"),
        "log.local.retention.ms": _default_of("local.retention.ms"),
        "log.message.timestamp.after.max.ms": _default_of("message.timestamp.after.max.ms"),
        "log.message.timestamp.before.max.ms": _default_of("message.timestamp.before.max.ms"),
        "log.message.timestamp.type": _default_of("message.timestamp.type"),
        "log.preallocate": _default_of("preallocate"),
        "log.retention.bytes": _default_of("retention.bytes"),
        "log.retention.hours": _default_of("retention.ms", ", in hours"),
        "log.retention.minutes": _default_of("retention.ms", ", in minutes"),
        "log.retention.ms": _default_of("retention.ms"),
        "log.roll.hours": _default_of("segment.ms", ", in hours"),
        "log.roll.jitter.hours": _default_of("segment.jitter.ms", ", in hours"),
        "log.roll.jitter.ms": _default_of("segment.jitter.ms"),
        "log.roll.ms": _default_of("segment.ms"),
        "log.segment.bytes": _default_of("segment.bytes"),
        "log.segment.delete.delay.ms": _default_of("file.delete.delay.ms"),
        "message.max.bytes": _default_of("max.message.bytes"),
    }
)
