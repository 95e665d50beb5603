"""Goal: each key of groups arrives where the core reads it, and a group's own as it was set.

Method: a file in which every key has a value of its own.
"""

from __future__ import annotations

from dataclasses import fields

import pytest

from holdfast.config.node import NodeSettings
from holdfast.core.group.consumer.consumer_settings import (
    ConsumerGroupSettings,
    GroupOverrides,
    MigrationPolicy,
)
from holdfast.core.group.group_settings import GroupSettings
from holdfast.core.metadata.image import ImageDelta, MetadataImage
from holdfast.node.coordinator.coordinator_settings import (
    consumer_group_settings,
    group_overrides,
    group_settings,
    offsets_commit_timeout_ms,
    offsets_topic_codec,
    offsets_topic_partitions,
    offsets_topic_replication_factor,
    offsets_topic_segment_bytes,
    serves_consumer_protocol,
    stored_overrides,
    take_over_overrides,
)
from holdfast.wire.batch import Codec
from holdfast.wire.records.metadata import ConfigRecord, FeatureLevelRecord
from holdfast.wire.structs import ResourceType

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
INTERVAL = "consumer.assignment.interval.ms"


def settings_of(changes: dict[str, str]) -> NodeSettings:
    base = {
        "process.roles": "broker",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "100@127.0.0.1:9192",
    }
    return NodeSettings.from_properties(base | changes)[0]


def offsets_of(settings: NodeSettings) -> tuple[int, int, int, Codec, int]:
    """What the topic of committed offsets is made with, and how it is appended to."""
    return (
        offsets_topic_partitions(settings),
        offsets_topic_replication_factor(settings),
        offsets_topic_segment_bytes(settings),
        offsets_topic_codec(settings),
        offsets_commit_timeout_ms(settings),
    )


def test_without_a_word_in_the_file_they_are_kafka_s() -> None:
    """The core's own defaults are those of Kafka, but for the interval, which 4.2 had not."""
    settings = settings_of({})
    assert group_settings(settings) == GroupSettings()
    assert consumer_group_settings(settings) == ConsumerGroupSettings(assignment_interval_ms=1000)
    assert offsets_of(settings) == (50, 3, 100 * 2**20, Codec.NONE, 5000)


def test_each_key_of_classic_groups_and_offsets_has_its_place() -> None:
    settings = settings_of(
        {
            "group.initial.rebalance.delay.ms": "1",
            "group.min.session.timeout.ms": "2",
            "group.max.session.timeout.ms": "3",
            "group.max.size": "4",
            "offset.metadata.max.bytes": "5",
            "offsets.retention.minutes": "6",
            "offsets.retention.check.interval.ms": "7",
            "holdfast.group.bytes.max": "65537",
            "holdfast.group.shard.groups.max": "9",
            "holdfast.group.shard.offsets.bytes.max": "1048577",
        }
    )
    assert group_settings(settings) == GroupSettings(
        initial_rebalance_delay_ms=1,
        session_timeout_ms_min=2,
        session_timeout_ms_max=3,
        members_max=4,
        offset_metadata_max=5,
        offsets_retention_ms=360_000,
        offsets_retention_check_ms=7,
        group_bytes_max=65537,
        groups_max=9,
        offsets_bytes_max=1048577,
    )
    consumers = consumer_group_settings(settings)
    assert (consumers.bytes_max, consumers.classic_max_size) == (65537, 4)


def test_each_key_of_consumer_groups_has_its_place() -> None:
    settings = settings_of(
        {
            "group.consumer.min.heartbeat.interval.ms": "1",
            "group.consumer.heartbeat.interval.ms": "2",
            "group.consumer.max.heartbeat.interval.ms": "3",
            "group.consumer.min.session.timeout.ms": "4",
            "group.consumer.session.timeout.ms": "5",
            "group.consumer.max.session.timeout.ms": "6",
            "group.consumer.min.assignment.interval.ms": "7",
            "group.consumer.assignment.interval.ms": "8",
            "group.consumer.max.assignment.interval.ms": "9",
            "group.consumer.max.size": "10",
            "group.consumer.regex.refresh.interval.ms": "10001",
            "group.consumer.migration.policy": "Downgrade",
            "group.consumer.assignors": "range,"
            "org.apache.kafka.coordinator.group.assignor.UniformAssignor,uniform",
        }
    )
    found = consumer_group_settings(settings)
    assert found == ConsumerGroupSettings(
        min_heartbeat_interval_ms=1,
        heartbeat_interval_ms=2,
        max_heartbeat_interval_ms=3,
        min_session_timeout_ms=4,
        session_timeout_ms=5,
        max_session_timeout_ms=6,
        min_assignment_interval_ms=7,
        assignment_interval_ms=8,
        max_assignment_interval_ms=9,
        max_size=10,
        regex_refresh_interval_ms=10001,
        migration_policy=MigrationPolicy.DOWNGRADE,
        assignors=("range", "uniform"),
    )


def test_the_topic_of_committed_offsets() -> None:
    settings = settings_of(
        {
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "2",
            "offsets.topic.segment.bytes": "4",
            "offsets.topic.compression.codec": "2",
            "offsets.commit.timeout.ms": "5",
        }
    )
    assert offsets_of(settings) == (1, 2, 4, Codec.SNAPPY, 5)


@pytest.mark.parametrize(("text", "held"), [("2000", 2000), ("3001", 3000), ("99", 100)])
def test_the_interval_that_changes_at_run_time_is_seen_and_held_to_the_file(
    text: str, held: int
) -> None:
    """Method: what was set is within bounds that were others; the file is newer."""
    settings = settings_of(
        {
            "group.consumer.min.assignment.interval.ms": "100",
            "group.consumer.max.assignment.interval.ms": "3000",
        }
    )
    name = "group.consumer.assignment.interval.ms"
    later = settings.with_dynamic(cluster={name: text}, broker={})
    assert consumer_group_settings(later).assignment_interval_ms == held
    again = later.with_dynamic(cluster={}, broker={})
    assert consumer_group_settings(again).assignment_interval_ms == 1000


# -- a group's own -----------------------------------------------------------------------------


def test_what_is_configured_for_a_group() -> None:
    assert group_overrides({}) == GroupOverrides()
    own = {SESSION: "1", HEARTBEAT: " 2 ", INTERVAL: "3", "share.session.timeout.ms": "4"}
    assert group_overrides(own) == GroupOverrides(
        session_timeout_ms=1, heartbeat_interval_ms=2, assignment_interval_ms=3
    )
    assert len(fields(GroupOverrides)) == 3, "each has its key"
    assert group_overrides({SESSION: "soon"}) == GroupOverrides(), "nobody's member dies of it"


def configured(image: MetadataImage, group: str, name: str, value: str | None) -> ImageDelta:
    record = ConfigRecord(
        resource_type=ResourceType.GROUP, resource_name=group, name=name, value=value
    )
    return image.apply([record])


def test_overrides_follow_the_image() -> None:
    image = MetadataImage()
    configured(image, "g", SESSION, "50000")
    topic = ConfigRecord(resource_type=2, resource_name="g", name="retention.ms", value="1")
    image.apply([topic])
    overrides = stored_overrides(image)
    assert overrides == {"g": GroupOverrides(session_timeout_ms=50000)}

    delta = configured(image, "h", HEARTBEAT, "6000")
    assert take_over_overrides(overrides, image, delta) == ["h"]
    assert overrides == stored_overrides(image)
    # What says nothing to the coordinator is no change of it.
    delta = configured(image, "h", "streams.num.standby.replicas", "1")
    assert take_over_overrides(overrides, image, delta) == []
    assert take_over_overrides(overrides, image, image.apply([topic])) == []
    configured(image, "h", "streams.num.standby.replicas", None)
    delta = configured(image, "h", HEARTBEAT, None)
    assert take_over_overrides(overrides, image, delta) == ["h"]
    assert overrides == stored_overrides(image) == {"g": GroupOverrides(session_timeout_ms=50000)}


# -- the consumer protocol ---------------------------------------------------------------------


def test_the_consumer_protocol_is_the_cluster_s_and_the_node_s_to_allow() -> None:
    """A cluster that is older than the feature says nothing of it, and so has it not."""
    settings = settings_of({})
    image = MetadataImage()
    assert not serves_consumer_protocol(settings, image)
    image.apply([FeatureLevelRecord(name="group.version", feature_level=1)])
    assert serves_consumer_protocol(settings, image)
    classic = settings_of({"group.coordinator.rebalance.protocols": "classic"})
    assert not serves_consumer_protocol(classic, image)
    image.apply([FeatureLevelRecord(name="group.version", feature_level=0)])
    assert not serves_consumer_protocol(settings, image)
