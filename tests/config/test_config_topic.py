"""Goal: a topic's settings and their description follow Kafka's order of sources.

Method: the same key set in every subset of the sources; units; the described synonyms.
"""

from __future__ import annotations

from itertools import product

import pytest

from holdfast.config.describe import (
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)
from holdfast.config.documentation import document
from holdfast.config.key import ConfigType
from holdfast.config.registry import NODE, TOPIC
from holdfast.config.topic import TopicSettings
from holdfast.config.topic_keys import SYNONYMS

SOURCES = ("topic", "broker", "cluster", "static")


def test_defaults_are_kafkas() -> None:
    settings = TopicSettings()
    assert settings == TopicSettings.resolve()
    assert settings.segment_bytes == 1024**3
    assert settings.retention_ms == 7 * 24 * 3600 * 1000
    assert settings.min_insync_replicas == 1
    assert settings.unclean_leader_election_enable is False
    assert settings.max_message_bytes == 1048588
    assert settings.cleanup_policy == ("delete",)


@pytest.mark.parametrize("present", list(product([False, True], repeat=4)))
def test_the_strongest_source_wins(present: tuple[bool, ...]) -> None:
    given = {
        source: {"min.insync.replicas": str(index + 2)} if there else {}
        for index, (source, there) in enumerate(zip(SOURCES, present, strict=True))
    }
    topic = given.pop("topic")
    expected = present.index(True) + 2 if any(present) else 1

    settings = TopicSettings.resolve(topic, **given)
    (entry,) = describe_topic(topic, **given, names=["min.insync.replicas"])

    assert settings.min_insync_replicas == expected
    assert entry.value == str(expected)
    assert entry.source == (present.index(True) + 1 if any(present) else ConfigSource.DEFAULT)
    assert len(entry.synonyms) == sum(present) + 1
    assert entry.synonyms[0].value == entry.value


@pytest.mark.parametrize(
    ("static", "attribute", "value"),
    [
        ({"log.retention.hours": "2"}, "retention_ms", 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, "retention_ms", 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "5"}, "retention_ms", 5),
        ({"log.retention.hours": "-1"}, "retention_ms", -1),
        ({"log.roll.hours": "1"}, "segment_ms", 3_600_000),
        ({"log.roll.jitter.hours": "1"}, "segment_jitter_ms", 3_600_000),
        ({"message.max.bytes": "77"}, "max_message_bytes", 77),
        ({"log.segment.delete.delay.ms": "1"}, "file_delete_delay_ms", 1),
        ({"log.flush.interval.messages": "7"}, "flush_messages", 7),
        ({"log.flush.interval.ms": "7"}, "flush_ms", 7),
        ({"log.flush.scheduler.interval.ms": "7"}, "flush_ms", 7),
        ({"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "8"}, "flush_ms", 8),
    ],
)
def test_broker_keys_give_defaults(static: dict[str, str], attribute: str, value: int) -> None:
    assert getattr(TopicSettings.resolve(static=static), attribute) == value


def test_what_a_broker_takes_as_a_default_a_topic_takes_too() -> None:
    """Or a change at run time would end the broker that has to resolve it."""
    for name, synonyms in SYNONYMS.items():
        for synonym, factor in synonyms:
            topic, broker = TOPIC[name], NODE[synonym]
            if topic.low is not None:
                assert broker.low is not None, synonym
                assert (-1 if broker.low < 0 else broker.low * factor) >= topic.low, synonym
            if topic.high is not None:
                assert broker.high is not None, synonym
                assert broker.high * factor <= topic.high, synonym
            assert set(broker.choices) <= set(topic.choices), synonym
            assert bool(broker.choices) == bool(topic.choices), synonym


def test_a_value_is_described_in_the_topics_unit_and_its_synonym_as_it_was_given() -> None:
    (entry,) = describe_topic(static={"log.roll.hours": "3"}, names={"segment.ms"})
    assert entry.value == "10800000"
    assert entry.source is ConfigSource.STATIC_BROKER
    assert entry.synonyms == (
        ConfigSynonym("log.roll.hours", "3", ConfigSource.STATIC_BROKER),
        ConfigSynonym("log.roll.hours", "168", ConfigSource.DEFAULT),
    )


def test_every_key_is_described() -> None:
    assert [entry.name for entry in describe_topic()] == list(TOPIC)
    assert [entry.name for entry in describe_broker()] == list(NODE)
    assert all(entry.source is ConfigSource.DEFAULT for entry in describe_topic())
    assert describe_topic(names=["no.such.key"]) == []
    for name in (*TOPIC, *NODE):
        assert document(name), f"{name} is not documented"
    assert describe_topic(names=["segment.ms"])[0].documentation


def test_a_broker_is_described() -> None:
    entries = {
        entry.name: entry
        for entry in describe_broker(
            broker={"max.connections": "3"},
            cluster={"max.connections": "2"},
            static={"max.connections": "1", "node.id": "7"},
        )
    }
    connections = entries["max.connections"]
    assert connections.value == "3"
    assert connections.source is ConfigSource.DYNAMIC_BROKER
    assert [synonym.value for synonym in connections.synonyms] == ["3", "2", "1", "2147483647"]
    assert not connections.read_only
    assert entries["node.id"].value == "7"
    assert entries["node.id"].read_only
    assert entries["node.id"].type is ConfigType.INT
    assert entries["broker.rack"].value is None
    assert entries["broker.rack"].synonyms == ()


def test_the_clusters_default_is_what_was_set() -> None:
    (entry,) = describe_cluster_default({"min.insync.replicas": "2", "unknown": "1"})
    assert entry.name == "min.insync.replicas"
    assert entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER
    assert describe_cluster_default({"min.insync.replicas": "2"}, names=["node.id"]) == []


@pytest.mark.parametrize("named", ["node.id", "broker.id"])
def test_a_node_has_one_number_under_both_names(named: str) -> None:
    """Seen to fail: DescribeConfigs told broker.id=-1 of a node that names itself by node.id."""
    described = describe_broker(static={named: "3"}, names=("node.id", "broker.id"))
    assert [(each.name, each.value, each.source) for each in described] == [
        ("node.id", "3", ConfigSource.STATIC_BROKER),
        ("broker.id", "3", ConfigSource.STATIC_BROKER),
    ]
