"""The metadata image: what the metadata log says, after a number of its records.

Owns the meaning of every metadata record. Brokers, the controller and tests all
learn the cluster's state from here and from nowhere else. It never decides anything, and it never
refuses: a record that contradicts the image is a damaged log, so it fails an assertion.

The image is changed in place by `apply`, which returns what changed; what hangs in it (a
`Partition`, a `Broker`) is immutable, so that whoever keeps an old one can compare.

Rules: metadata-log.md#record-meanings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final, TypeAlias

from holdfast.wire.records import metadata as wire
from holdfast.wire.structs import ResourceType

NO_LEADER: Final = -1
LEADER_UNCHANGED: Final = -2  # PartitionChangeRecord.leader when it says nothing about the leader
UNASSIGNED_DIRECTORY: Final = bytes(16)  # its broker has not said yet where it put the replica
LOST_DIRECTORY: Final = bytes(15) + b"\x01"  # on a disk of its broker that is gone, whichever
MIGRATING_DIRECTORY: Final = bytes(15) + b"\x02"  # Kafka's, from before directories had names

MetadataRecord: TypeAlias = Any  # any class of wire.records; the wire has no common base for them


class RecoveryState(IntEnum):
    """A leader that is recovering may lack what was committed before (unclean election)."""

    RECOVERED = 0
    RECOVERING = 1


ConfigResource: TypeAlias = tuple[int, str]  # ResourceType, name; a broker's name is its id or ""
PartitionKey: TypeAlias = tuple[bytes, int]  # topic id, partition


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address at which one listener of a broker is reached."""

    listener: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One registered broker. Its epoch is the offset of its registration record."""

    broker_id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directories: tuple[bytes, ...] = ()
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        """Return whether it may lead and be in an ISR (rules: elections.md#acceptable-leaders)."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_directory(self, directory: bytes) -> bool:
        """Return whether a replica recorded in this directory can be there (KIP-858).

        One of which it isn't known yet where it lies is taken to be, as is every replica of a
        broker that names no directories at all.
        """
        if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        if directory == LOST_DIRECTORY:
            return False
        return not self.directories or directory in self.directories

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of that name, or None when the broker does not have the listener."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition as the controller has decided it."""

    topic: str
    topic_id: bytes
    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_epoch: int = 0
    partition_epoch: int = 0
    recovery_state: RecoveryState = RecoveryState.RECOVERED
    directories: tuple[bytes, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def key(self) -> PartitionKey:
        return (self.topic_id, self.index)

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    def directory_of(self, broker_id: int) -> bytes:
        """Return the directory in which a replica lies, as far as its broker has said."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == broker_id:
                return directory
        return UNASSIGNED_DIRECTORY

    def directories_with(self, broker_id: int, directory: bytes) -> list[bytes]:
        """Return each replica's directory, in their order, once that broker's lies in this one."""
        return [
            directory if replica == broker_id else self.directory_of(replica)
            for replica in self.replicas
        ]


@dataclass(slots=True)
class Topic:
    """A topic and its partitions, in the order of their numbers: 0, 1, 2, without gaps."""

    name: str
    topic_id: bytes
    partitions: list[Partition] = field(default_factory=list)

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


@dataclass(slots=True)
class ImageDelta:
    """The changes that some records made. Each name is there once, in the order of its first."""

    topics_created: list[Topic] = field(default_factory=list)
    topics_deleted: list[Topic] = field(default_factory=list)
    # The partition before this delta; None when the delta created it. Those of deleted topics are
    # not here: their last state hangs in `topics_deleted`.
    partitions_changed: dict[PartitionKey, Partition | None] = field(default_factory=dict)
    # The broker before this delta; None when it was not registered.
    brokers_changed: dict[int, Broker | None] = field(default_factory=dict)
    configs_changed: dict[ConfigResource, None] = field(default_factory=dict)
    features_changed: bool = False

    def __bool__(self) -> bool:
        """Return whether anything changed at all."""
        return bool(
            self.topics_created
            or self.topics_deleted
            or self.partitions_changed
            or self.brokers_changed
            or self.configs_changed
            or self.features_changed
        )


@dataclass(slots=True)
class MetadataImage:
    """All that the metadata log says, up to and including `offset`."""

    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[bytes, Topic] = field(default_factory=dict)
    configs: dict[ConfigResource, dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)  # finalized levels, for ApiVersions
    next_producer_id: int = 0
    offset: int = -1  # of the last record that was applied
    epoch: int = 0  # leader epoch of that record's batch

    def apply(
        self, records: Iterable[MetadataRecord], *, offset: int = -1, epoch: int = -1
    ) -> ImageDelta:
        """Apply records in log order; `offset` and `epoch` are those of the last one.

        Control records are not passed here. Records of kinds that this version has no use for
        (quotas, access control lists) are skipped: they do not concern the image.
        """
        delta = ImageDelta()
        for record in records:
            change = _APPLY.get(type(record))
            if change is not None:
                change(self, delta, record)
        assert offset == -1 or offset >= self.offset, "the metadata log went backwards"
        self.offset = max(self.offset, offset)
        self.epoch = max(self.epoch, epoch)
        return delta

    def advance(self, offset: int, epoch: int) -> None:
        """Note that control records, which the image has no use for, were passed."""
        assert offset >= self.offset, "the metadata log went backwards"
        self.offset = offset
        self.epoch = max(self.epoch, epoch)

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        return found.partition(index) if found is not None else None

    def partition_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        found = self.topics_by_id.get(topic_id)
        return found.partition(index) if found is not None else None

    def name_of(self, topic_id: bytes) -> str:
        """Return the name of the topic that has this id; empty: none has."""
        found = self.topics_by_id.get(topic_id)
        return found.name if found is not None else ""

    def partitions(self) -> Iterator[Partition]:
        """Every partition, in the order in which topics were created, then by number."""
        for topic in self.topics.values():
            yield from topic.partitions

    def active_brokers(self) -> list[Broker]:
        """Return the brokers that may lead: unfenced and not shutting down; by id."""
        return [self.brokers[node] for node in sorted(self.brokers) if self.brokers[node].active]

    def alive_brokers(self) -> list[Broker]:
        """Return the brokers that are unfenced, by id. These are what Metadata lists."""
        return [self.brokers[n] for n in sorted(self.brokers) if not self.brokers[n].fenced]

    def is_active(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.active

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """The topic's own overrides."""
        return self.configs.get((ResourceType.TOPIC, topic), {})

    def group_configs(self, group: str) -> Mapping[str, str]:
        """What is configured for one group of consumers, which need not be there."""
        return self.configs.get((ResourceType.GROUP, group), {})

    def broker_configs(self, broker_id: int) -> Mapping[str, str]:
        """The dynamic configuration of one broker."""
        return self.configs.get((ResourceType.BROKER, str(broker_id)), {})

    def cluster_configs(self) -> Mapping[str, str]:
        """The dynamic defaults of all brokers."""
        return self.configs.get((ResourceType.BROKER, ""), {})


def _register_broker(image: MetadataImage, delta: ImageDelta, record: MetadataRecord) -> None:
    before = image.brokers.get(record.broker_id)
    assert before is None or before.epoch <= record.broker_epoch, "a broker epoch shrank"
    delta.brokers_changed.setdefault(record.broker_id, before)
    image.brokers[record.broker_id] = Broker(
        broker_id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=bytes(record.incarnation_id),
        endpoints=tuple(
            Endpoint(end.name, end.host, end.port, end.security_protocol)
            for end in record.end_points
        ),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        directories=tuple(bytes(directory) for directory in record.log_dirs),
        features={
            feature.name: (feature.min_supported_version, feature.max_supported_version)
            for feature in record.features
        },
    )


def _unregister_broker(image: MetadataImage, delta: ImageDelta, record: MetadataRecord) -> None:
    delta.brokers_changed.setdefault(record.broker_id, image.brokers.pop(record.broker_id))


def _change_broker(
    image: MetadataImage, delta: ImageDelta, broker_id: int, epoch: int, **changes: Any
) -> None:
    before = image.brokers[broker_id]
    assert before.epoch == epoch, "a change of a broker registration names another epoch"
    delta.brokers_changed.setdefault(broker_id, before)
    image.brokers[broker_id] = replace(before, **changes)


def _change_fence(image: MetadataImage, delta: ImageDelta, record: MetadataRecord) -> None:
    fenced = isinstance(record, wire.FenceBrokerRecord)
    _change_broker(image, delta, record.id, record.epoch, fenced=fenced)


def _change_registration(image: MetadataImage, delta: ImageDelta, record: MetadataRecord) -> None:
    changes: dict[str, Any] = {}
    if record.fenced:  # -1 unfences, 1 fences, 0 says nothing
        changes["fenced"] = record.fenced > 0
    if record.in_controlled_shutdown:
        changes["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
    if record.log_dirs:
        changes["directories"] = tuple(bytes(directory) for directory in record.log_dirs)
    _change_broker(image, delta, record.broker_id, record.broker_epoch, **changes)


def _create_topic(image: MetadataImage, delta: ImageDelta, record: MetadataRecord) -> None:
    assert record.name not in image.topics, "a topic was created twice"
    topic = Topic(record.name, bytes(record.topic_id))
    image.topics[topic.name] = topic
    image.topics_by_id[topic.topic_id] = topic
    delta.topics_created.append(topic)


def _remove_topic(image: MetadataImage, delta: ImageDelta, record: MetadataRecord) -> None:
    topic = image.topics_by_id.pop(bytes(record.topic_id))
    del image.topics[topic.name]
    for partition in topic.partitions:
        delta.partitions_changed.pop(partition.key, None)
    if topic in delta.topics_created:
        delta.topics_created.remove(topic)
    else:
        delta.topics_deleted.append(topic)
    # Its configuration goes with it, without records of its own, as in Kafka.
    if image.configs.pop((ResourceType.TOPIC, topic.name), None) is not None:
        delta.configs_changed[ResourceType.TOPIC, topic.name] = None


def _create_partition(image: MetadataImage, delta: ImageDelta, record: MetadataRecord) -> None:
    topic = image.topics_by_id[bytes(record.topic_id)]
    partition = Partition(
        topic=topic.name,
        topic_id=topic.topic_id,
        index=record.partition_id,
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        adding=tuple(record.adding_replicas),
        removing=tuple(record.removing_replicas),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        recovery_state=RecoveryState(record.leader_recovery_state),
        directories=tuple(bytes(directory) for directory in record.directories),
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
    )
    before = topic.partition(partition.index)
    delta.partitions_changed.setdefault(partition.key, before)
    if before is None:
        assert partition.index == len(topic.partitions), "a partition number was left out"
        topic.partitions.append(partition)
    else:
        topic.partitions[partition.index] = partition


def _change_partition(image: MetadataImage, delta: ImageDelta, record: MetadataRecord) -> None:
    topic = image.topics_by_id[bytes(record.topic_id)]
    before = topic.partitions[record.partition_id]
    delta.partitions_changed.setdefault(before.key, before)
    topic.partitions[record.partition_id] = changed_partition(before, record)


def changed_partition(before: Partition, record: MetadataRecord) -> Partition:
    """The partition after a PartitionChangeRecord.

    Every change raises the partition epoch; naming a leader, even the same one, raises the leader
    epoch (rules: metadata-log.md#epochs-of-a-partition).
    """
    isr, replicas = record.isr, record.replicas
    removing, adding = record.removing_replicas, record.adding_replicas
    elr, last_known_elr = record.eligible_leader_replicas, record.last_known_elr
    leads = record.leader != LEADER_UNCHANGED
    state = record.leader_recovery_state
    directories = record.directories
    # Spelt out, because dataclasses.replace takes five times as long, and the death of a broker
    # changes thousands of partitions.
    return Partition(
        topic=before.topic,
        topic_id=before.topic_id,
        index=before.index,
        replicas=before.replicas if replicas is None else tuple(replicas),
        isr=before.isr if isr is None else tuple(isr),
        adding=before.adding if adding is None else tuple(adding),
        removing=before.removing if removing is None else tuple(removing),
        leader=record.leader if leads else before.leader,
        leader_epoch=before.leader_epoch + 1 if leads else before.leader_epoch,
        partition_epoch=before.partition_epoch + 1,
        recovery_state=before.recovery_state if state == -1 else RecoveryState(state),
        directories=before.directories
        if directories is None
        else tuple(bytes(directory) for directory in directories),
        elr=before.elr if elr is None else tuple(elr),
        last_known_elr=before.last_known_elr if last_known_elr is None else tuple(last_known_elr),
    )


def _clear_elr(image: MetadataImage, delta: ImageDelta, record: MetadataRecord) -> None:
    """Forget eligible leaders: those of one topic, or all when no topic is named."""
    topics = [image.topics[record.topic_name]] if record.topic_name else image.topics.values()
    for topic in topics:
        for before in list(topic.partitions):
            if before.elr or before.last_known_elr:
                delta.partitions_changed.setdefault(before.key, before)
                topic.partitions[before.index] = replace(
                    before, elr=(), last_known_elr=(), partition_epoch=before.partition_epoch + 1
                )


def _set_config(image: MetadataImage, delta: ImageDelta, record: MetadataRecord) -> None:
    resource = (record.resource_type, record.resource_name)
    delta.configs_changed[resource] = None
    configs = image.configs.setdefault(resource, {})
    if record.value is not None:
        configs[record.name] = record.value
        return
    configs.pop(record.name, None)
    if not configs:
        del image.configs[resource]


def _set_feature(image: MetadataImage, delta: ImageDelta, record: MetadataRecord) -> None:
    delta.features_changed = True
    if record.feature_level:
        image.features[record.name] = record.feature_level
    else:
        image.features.pop(record.name, None)


def _hand_out_producer_ids(image: MetadataImage, _: ImageDelta, record: MetadataRecord) -> None:
    assert record.next_producer_id > image.next_producer_id, "a block of producer ids came twice"
    image.next_producer_id = record.next_producer_id


_APPLY: dict[type, Callable[[MetadataImage, ImageDelta, MetadataRecord], None]] = {
    wire.RegisterBrokerRecord: _register_broker,
    wire.UnregisterBrokerRecord: _unregister_broker,
    wire.FenceBrokerRecord: _change_fence,
    wire.UnfenceBrokerRecord: _change_fence,
    wire.BrokerRegistrationChangeRecord: _change_registration,
    wire.TopicRecord: _create_topic,
    wire.RemoveTopicRecord: _remove_topic,
    wire.PartitionRecord: _create_partition,
    wire.PartitionChangeRecord: _change_partition,
    wire.ClearElrRecord: _clear_elr,
    wire.ConfigRecord: _set_config,
    wire.FeatureLevelRecord: _set_feature,
    wire.ProducerIdsRecord: _hand_out_producer_ids,
}
