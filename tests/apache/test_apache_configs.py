"""Goal: our registry is Apache Kafka's, key by key. Method: ask one of its brokers for all of them.

Types, defaults and what may change at run time come from DescribeConfigs of a real broker; the keys
that one side has and the other has not are listed here, each with its reason.
"""

from __future__ import annotations

import pytest

from holdfast.clients.blocking_driver import Driver
from holdfast.config.describe import ConfigSource, describe_broker, describe_group, describe_topic
from holdfast.config.registry import GROUP, NODE
from holdfast.config.retired import has_no_effect
from holdfast.wire.administration import create_topic
from holdfast.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)

pytestmark = [pytest.mark.apache, pytest.mark.slow]

TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32

# Changed by the properties file of `kafka.sh single`, so the value says nothing about the default.
SET_IN_THE_FILE = {
    "advertised.listeners",
    "broker.id",
    "controller.listener.names",
    "controller.quorum.voters",
    "group.initial.rebalance.delay.ms",
    "listener.security.protocol.map",
    "listeners",
    "log.dirs",
    "node.id",
    "offsets.topic.replication.factor",
    "process.roles",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
}
# Apache Kafka has these too; they are hidden from DescribeConfigs as internal.
INTERNAL = {
    "group.consumer.regex.refresh.interval.ms",
    "log.initial.task.delay.ms",
    "producer.id.expiration.check.interval.ms",
    "unclean.leader.election.interval.ms",
}
# Apache Kafka shows these only where they are set.
UNSEEN = {"follower.replication.throttled.rate", "leader.replication.throttled.rate"}
# Ours: Apache Kafka looks at each record always, and has no bounds on what waits for a client.
OURS = {"record.validation", *(name for name in NODE if name.startswith("holdfast."))}
# Apache Kafka can change listeners of a running broker; here that takes a restart.
AT_START_ONLY_HERE = {"listener.security.protocol.map", "listeners"}

# A string there; a list here, which is described as one, though each takes the same text.
LISTED_HERE = {"max.connections.per.ip.overrides"}


def described(apache_kafka: str, kind: int, name: str) -> dict[str, DescribeConfigsResourceResult]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    with Driver(apache_kafka) as driver:
        (result,) = driver.send(request, node=0).results
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


def test_topic_keys(apache_kafka: str) -> None:
    with Driver(apache_kafka) as driver:
        driver.perform(create_topic("t", partitions=1, replication_factor=1))
        driver.leader("t", 0, refresh=True)
    theirs = described(apache_kafka, TOPIC_RESOURCE, "t")
    ours = {entry.name: entry for entry in describe_topic() if entry.name not in OURS}

    assert ours.keys() == theirs.keys()
    assert {n: e.value for n, e in ours.items()} == {n: c.value for n, c in theirs.items()}
    assert {n: e.type for n, e in ours.items()} == {n: c.config_type for n, c in theirs.items()}
    for name, entry in ours.items():
        defaults = [
            (synonym.name, synonym.value)
            for synonym in theirs[name].synonyms
            if synonym.source == ConfigSource.DEFAULT
        ]
        # Where theirs is silent the default is in another unit (hours); ours names it all the same.
        assert defaults in ([], [(s.name, s.value) for s in entry.synonyms])


def test_broker_keys(apache_kafka: str) -> None:
    theirs = described(apache_kafka, BROKER_RESOURCE, "0")
    ours = {entry.name: entry for entry in describe_broker() if entry.name not in OURS}

    assert ours.keys() - theirs.keys() == INTERNAL | UNSEEN
    unknown = {name for name in theirs if name not in NODE and not has_no_effect(name)}
    assert unknown == set()
    for name, entry in ours.items():
        if name in INTERNAL | UNSEEN:
            continue
        config = theirs[name]
        if name not in LISTED_HERE:
            assert entry.type == config.config_type, name
        if name not in AT_START_ONLY_HERE:
            assert entry.read_only == config.read_only, name
        if name not in SET_IN_THE_FILE:
            assert entry.value == config.value, name


def test_group_keys(apache_kafka: str) -> None:
    """Method: a group that nobody has heard of, with each key's value and where it comes from."""
    theirs = described(apache_kafka, GROUP_RESOURCE, "nobody")
    ours = {entry.name: entry for entry in describe_group()}

    assert ours.keys() == theirs.keys() == GROUP.keys()
    for name, entry in ours.items():
        config = theirs[name]
        assert (entry.type, entry.value) == (config.config_type, config.value), name
        assert (entry.source, entry.read_only) == (config.config_source, config.read_only), name
        synonyms = [(each.name, each.value, each.source) for each in config.synonyms]
        assert synonyms == list(entry.synonyms), name
