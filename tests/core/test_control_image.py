"""Goal: the image says what the metadata log says, and the delta names what changed, no more.

Method: records are applied by hand and through a small cluster.
"""

from __future__ import annotations

import pytest
from tests.core.control_kit import identity

from holdfast.core.metadata.image import (
    LEADER_UNCHANGED,
    MetadataImage,
    RecoveryState,
    changed_partition,
)
from holdfast.wire.records.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from holdfast.wire.structs import ResourceType

TOPIC = identity(1, 0xA0)


def _with_topic() -> MetadataImage:
    image = MetadataImage()
    image.apply(
        [
            TopicRecord(name="t", topic_id=TOPIC),
            PartitionRecord(
                partition_id=0,
                topic_id=TOPIC,
                replicas=[0, 1],
                isr=[0, 1],
                leader=0,
                leader_epoch=3,
                partition_epoch=7,
            ),
            ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),
        ],
        offset=2,
        epoch=1,
    )
    return image


@pytest.mark.parametrize(
    ("change", "leader", "leader_epoch"),
    [
        (PartitionChangeRecord(isr=[0]), 0, 3),
        (PartitionChangeRecord(leader=1), 1, 4),
        (PartitionChangeRecord(leader=0), 0, 4),  # naming the same leader forces a new epoch
        (PartitionChangeRecord(leader=-1), -1, 4),
        (PartitionChangeRecord(leader_recovery_state=1), 0, 3),
    ],
)
def test_every_change_raises_the_partition_epoch_and_a_leader_the_leader_epoch(
    change: PartitionChangeRecord, leader: int, leader_epoch: int
) -> None:
    before = _with_topic().topics["t"].partitions[0]
    after = changed_partition(before, change)
    assert (after.leader, after.leader_epoch) == (leader, leader_epoch)
    assert after.partition_epoch == before.partition_epoch + 1


def test_what_a_change_does_not_name_stays() -> None:
    before = _with_topic().topics["t"].partitions[0]
    assert PartitionChangeRecord().leader == LEADER_UNCHANGED
    after = changed_partition(before, PartitionChangeRecord(isr=[1]))
    assert (after.replicas, after.leader, after.isr) == (before.replicas, 0, (1,))
    assert after.recovery_state is RecoveryState.RECOVERED


def test_the_delta_holds_the_state_before_the_first_change() -> None:
    image = _with_topic()
    before = image.topics["t"].partitions[0]
    delta = image.apply(
        [
            PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[0]),
            PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=-1),
        ],
        offset=4,
    )
    assert delta.partitions_changed == {(TOPIC, 0): before}
    assert not delta.topics_created
    assert not delta.brokers_changed
    assert image.topics["t"].partitions[0].leader == -1


def test_a_deleted_topic_takes_its_configuration_along() -> None:
    image = _with_topic()
    topic = image.topics["t"]
    delta = image.apply([RemoveTopicRecord(topic_id=TOPIC)], offset=3)
    assert delta.topics_deleted == [topic]
    assert delta.configs_changed == {(ResourceType.TOPIC, "t"): None}
    assert not image.topics
    assert not image.topics_by_id
    assert not image.configs


def test_a_topic_that_came_and_went_in_one_delta_leaves_no_trace() -> None:
    image = MetadataImage()
    delta = image.apply(
        [
            TopicRecord(name="t", topic_id=TOPIC),
            PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=[0], isr=[0], leader=0),
            RemoveTopicRecord(topic_id=TOPIC),
        ],
        offset=2,
    )
    assert not delta


def test_a_topic_made_again_under_its_name_is_another_one() -> None:
    image = _with_topic()
    old = image.topics["t"]
    new_id = identity(2, 0xA0)
    delta = image.apply(
        [RemoveTopicRecord(topic_id=TOPIC), TopicRecord(name="t", topic_id=new_id)], offset=4
    )
    assert delta.topics_deleted == [old]
    assert delta.topics_created == [image.topics["t"]]
    assert image.topics["t"].topic_id == new_id
    assert image.partition("t", 0) is None


def test_configurations_are_set_and_taken_back() -> None:
    image = _with_topic()
    record = ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="5")
    assert image.apply([record]).configs_changed == {(ResourceType.BROKER, ""): None}
    assert image.cluster_configs() == {"log.retention.ms": "5"}
    record = ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value=None)
    image.apply([record])
    assert image.cluster_configs() == {}
    assert image.topic_configs("t") == {"retention.ms": "1"}


def test_old_fencing_records_are_understood_too() -> None:
    image = MetadataImage()
    image.apply([RegisterBrokerRecord(broker_id=1, broker_epoch=5)], offset=5)
    image.apply([UnfenceBrokerRecord(id=1, epoch=5)], offset=6)
    assert image.is_active(1)
    delta = image.apply([FenceBrokerRecord(id=1, epoch=5)], offset=7)
    assert not image.is_active(1)
    before = delta.brokers_changed[1]
    assert before is not None
    assert before.active
    image.apply([UnregisterBrokerRecord(broker_id=1, broker_epoch=5)], offset=8)
    assert not image.brokers


def test_unknown_kinds_pass_and_the_offset_moves_on() -> None:
    image = MetadataImage()
    assert not image.apply([NoOpRecord()], offset=9, epoch=4)
    assert (image.offset, image.epoch) == (9, 4)


def test_features_and_producer_ids() -> None:
    image = MetadataImage()
    delta = image.apply([FeatureLevelRecord(name="f", feature_level=2)])
    assert delta.features_changed
    assert image.features == {"f": 2}
    image.apply([FeatureLevelRecord(name="f", feature_level=0)])
    assert image.features == {}
    image.apply([ProducerIdsRecord(broker_id=0, broker_epoch=0, next_producer_id=1000)])
    assert image.next_producer_id == 1000


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord(name="t", topic_id=identity(9)),
        PartitionRecord(partition_id=3, topic_id=TOPIC),
        ProducerIdsRecord(next_producer_id=0),
    ],
)
def test_a_log_that_contradicts_itself_is_our_own_mistake(record: object) -> None:
    with pytest.raises(AssertionError):
        _with_topic().apply([record])
