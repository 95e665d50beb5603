"""A metadata image as records, and what differs between two images.

Owns the way from an image to the records that make it again (rules: metadata-log.md#snapshots), the
name of a snapshot, and the delta between an image and the one that takes its place. Files and bytes
are not its business, and it never changes an image but the one that `replace_image` is told to.

That nothing of an image is forgotten here is what `tests/snapshots` looks after: an image made of
its own records must be equal to it, whatever fields the dataclasses of `image` may get.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Final, NamedTuple

from holdfast.core.metadata.image import (
    Broker,
    ImageDelta,
    MetadataImage,
    MetadataRecord,
    Partition,
    Topic,
)
from holdfast.wire.records.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from holdfast.wire.structs import RegisteredEndpoint, RegisteredFeature
from holdfast.wire.well_known import METADATA_VERSION

SNAPSHOT_SUFFIX: Final = ".checkpoint"
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z")
NO_BROKER: Final = -1  # a snapshot does not say which broker got the last block of producer ids


class SnapshotId(NamedTuple):
    """The extent of a snapshot: all below `end_offset`, whose last record is of `epoch`."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{SNAPSHOT_SUFFIX}"

    @classmethod
    def of_file(cls, name: str) -> SnapshotId | None:
        """The snapshot that a file of this name holds; None when it is none."""
        found = _NAME.match(name)
        return cls(int(found[1]), int(found[2])) if found else None


def snapshot_id(image: MetadataImage) -> SnapshotId:
    """Return the extent of a snapshot of this image."""
    return SnapshotId(image.offset + 1, image.epoch)


def freeze(image: MetadataImage) -> MetadataImage:
    """A copy that stays as it is while the original goes on: containers are copied, values shared.

    It costs microseconds per thousand partitions, so it can be made between two records.
    """
    topics = {
        name: Topic(topic.name, topic.topic_id, topic.partitions.copy())
        for name, topic in image.topics.items()
    }
    return replace(
        image,
        brokers=image.brokers.copy(),
        topics=topics,
        topics_by_id={topic.topic_id: topic for topic in topics.values()},
        configs={resource: values.copy() for resource, values in image.configs.items()},
        features=image.features.copy(),
    )


def image_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """The records that make this image out of an empty one, in Kafka's order.

    The image must not change meanwhile: pass what `freeze` gives.
    """
    yield from _feature_records(image)
    for broker_id in sorted(image.brokers):
        yield broker_record(image.brokers[broker_id])
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions:
            yield partition_record(partition)
    for kind, name in sorted(image.configs):
        for key, value in image.configs[kind, name].items():
            yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=NO_BROKER, next_producer_id=image.next_producer_id)


def _feature_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Yield metadata.version first: it says in which versions the others are written."""
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])


def broker_record(broker: Broker) -> RegisterBrokerRecord:
    """The record that registers a broker as it is now."""
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            RegisteredEndpoint(
                name=end.listener,
                host=end.host,
                port=end.port,
                security_protocol=end.security_protocol,
            )
            for end in broker.endpoints
        ],
        features=[
            RegisteredFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
    )


def partition_record(partition: Partition) -> PartitionRecord:
    """The record that makes a partition as it is now."""
    return PartitionRecord(
        partition_id=partition.index,
        topic_id=partition.topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=int(partition.recovery_state),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def image_delta(before: MetadataImage, after: MetadataImage) -> ImageDelta:
    """Return all that differs, as if records had said so: what is gone is named too.

    A topic that was deleted and made again is both in `topics_deleted` and in `topics_created`.
    """
    delta = ImageDelta()
    for topic in before.topics.values():
        if topic.topic_id not in after.topics_by_id:
            delta.topics_deleted.append(topic)
    for topic in after.topics.values():
        old = before.topics_by_id.get(topic.topic_id)
        if old is None:
            delta.topics_created.append(topic)
        for partition in topic.partitions:
            was = old.partition(partition.index) if old is not None else None
            if was != partition:
                delta.partitions_changed[partition.key] = was
    for broker_id in sorted(before.brokers.keys() | after.brokers.keys()):
        if before.brokers.get(broker_id) != after.brokers.get(broker_id):
            delta.brokers_changed[broker_id] = before.brokers.get(broker_id)
    for resource in sorted(before.configs.keys() | after.configs.keys()):
        if before.configs.get(resource) != after.configs.get(resource):
            delta.configs_changed[resource] = None
    delta.features_changed = before.features != after.features
    return delta


def replace_image(image: MetadataImage, loaded: MetadataImage) -> ImageDelta:
    """Turn `image` into `loaded`, keeping the object that others hold; return what changed.

    `loaded` must not be used afterwards. Those who act on the delta need not know that it comes
    from a snapshot and not from records.
    """
    assert loaded.offset >= image.offset, "a snapshot does not take an image back"
    delta = image_delta(image, loaded)
    for each in fields(MetadataImage):
        setattr(image, each.name, getattr(loaded, each.name))
    return delta
