"""The cluster: versions, features, brokers, log directories, the quorum, settings."""

from __future__ import annotations

from typing import Final

from compare.asking import Side
from holdfast.wire.messages.alter_configs import AlterConfigsRequest
from holdfast.wire.messages.alter_configs import AlterConfigsResource as ReplacedResource
from holdfast.wire.messages.api_versions import ApiVersionsRequest
from holdfast.wire.messages.describe_cluster import DescribeClusterRequest
from holdfast.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from holdfast.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from holdfast.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.messages.list_config_resources import ListConfigResourcesRequest
from holdfast.wire.messages.unregister_broker import UnregisterBrokerRequest
from holdfast.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from holdfast.wire.structs import ConfigValue

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
# Asked to be set on the broker (by its id, and as the default of all), never carried out.
BROKER_SETTINGS: Final = (
    ("log.retention.ms", "100000"),
    ("log.retention.ms", "-5"),
    ("log.retention.ms", "soon"),
    ("min.insync.replicas", "2"),
    ("num.partitions", "3"),
    ("num.io.threads", "4"),
    ("log.dirs", "elsewhere"),
    ("node.id", "9"),
    ("broker.id", "9"),
    ("listeners", "PLAINTEXT://127.0.0.1:1"),
    ("nobody.knows", "this"),
    ("log.cleaner.threads", "2"),
    ("log.cleaner.dedupe.buffer.size", "1000"),
    ("log.flush.interval.messages", "5"),
    ("log.flush.interval.messages", "0"),
    ("log.flush.interval.ms", "5"),
    ("log.flush.interval.ms", "-5"),
    ("compression.type", "zstd"),
    ("max.connections", "10"),
    ("max.connections.per.ip", "10"),
    ("max.connections.per.ip.overrides", "127.0.0.1:5"),
    ("log.cleanup.policy", "compact"),
    ("log.cleanup.policy", "delete,delete"),
    ("unclean.leader.election.enable", "true"),
    ("leader.replication.throttled.rate", "100"),
    ("follower.replication.throttled.rate", "-1"),
    ("group.max.size", "3"),
    ("default.replication.factor", "1"),
    ("auto.create.topics.enable", "false"),
    ("producer.id.expiration.ms", "1000"),
)
TOPIC_SETTINGS: Final = (
    (SET, "retention.ms", "5000"),
    (SET, "retention.ms", "soon"),
    (SET, "retention.ms", None),
    (SET, "retention.ms", ""),
    (DELETE, "retention.ms", None),
    (DELETE, "retention.ms", "5"),
    (APPEND, "retention.ms", "5"),
    (APPEND, "cleanup.policy", "compact"),
    (SUBTRACT, "cleanup.policy", "delete"),
    (SUBTRACT, "cleanup.policy", "compact"),
    (APPEND, "cleanup.policy", None),
    (9, "retention.ms", "5"),
    (SET, "nobody.knows", "this"),
    (DELETE, "nobody.knows", None),
    (SET, "", "this"),
    (SET, "flush.ms", "10"),
    (SET, "flush.messages", "10"),
    (SET, "preallocate", "true"),
    (SET, "min.insync.replicas", "9"),
)


def steps(side: Side) -> None:
    """Put them."""
    _seen(side)
    _features(side)
    _described(side)
    _listed(side)
    _altered(side)
    _kept(side)


def _seen(side: Side) -> None:
    side.ask_in_each(
        "versions",
        ApiVersionsRequest(client_software_name="compare", client_software_version="1"),
    )
    bad = ApiVersionsRequest(client_software_name="", client_software_version="a b")
    side.ask("versions of a nameless client", bad, version=3)
    side.ask_in_each("cluster", DescribeClusterRequest())
    for kind in (0, 2, 9):
        side.ask(f"cluster, endpoints {kind}", DescribeClusterRequest(endpoint_type=kind))
    side.ask(
        "cluster with operations",
        DescribeClusterRequest(include_cluster_authorized_operations=True),
    )
    fenced = DescribeClusterRequest(include_fenced_brokers=True)
    side.ask("cluster with who is fenced", fenced, version=2)
    for topic, partition in (("__cluster_metadata", 0), ("__cluster_metadata", 9), ("absent", 0)):
        asked = RequestTopicData(
            topic_name=topic, partitions=[RequestPartitionData(partition_index=partition)]
        )
        side.ask_in_each(f"quorum of {topic}-{partition}", DescribeQuorumRequest(topics=[asked]))
    side.ask("quorum of nothing", DescribeQuorumRequest(topics=[]))
    side.create("in-directories", 2)
    for number, asked_topics in enumerate(
        (
            [DescribableLogDirTopic(topic="in-directories", partitions=[0, 1])],
            [DescribableLogDirTopic(topic="in-directories", partitions=[9])],
            [DescribableLogDirTopic(topic="absent", partitions=[0])],
            [],
        )
    ):
        side.ask_in_each(f"directories {number}", DescribeLogDirsRequest(topics=asked_topics))
    for broker in (77, -1):
        side.ask(f"unregister {broker}", UnregisterBrokerRequest(broker_id=broker))


def _features(side: Side) -> None:
    for feature, level, kind in (
        ("metadata.version", 1, 1),
        ("metadata.version", 99, 1),
        ("metadata.version", 0, 2),
        ("kraft.version", 9, 1),
        ("nobody.knows", 1, 1),
        ("group.version", 1, 9),
        ("transaction.version", 0, 1),
        ("", 1, 1),
    ):
        update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
        request = UpdateFeaturesRequest(feature_updates=[update], validate_only=True)
        side.ask(f"feature {feature!r} to {level}, {kind}", request, version=1)
        side.ask(f"feature {feature!r} to {level}, {kind} v2", request, version=2)
    side.ask("no feature", UpdateFeaturesRequest(feature_updates=[], validate_only=True))


def _described(side: Side) -> None:
    side.create("with-settings", configs={"retention.ms": "1234567"})

    def describe(kind: int, name: str, *keys: str) -> DescribeConfigsRequest:
        asked = DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
        )
        return DescribeConfigsRequest(resources=[asked], include_synonyms=True)

    keys = ("retention.ms", "cleanup.policy", "min.insync.replicas", "segment.bytes")
    side.ask_in_each("settings of a topic", describe(TOPIC, "with-settings", *keys))
    side.ask("all settings of a topic", describe(TOPIC, "with-settings"))
    side.ask("settings that nobody knows", describe(TOPIC, "with-settings", "nobody.knows"))
    node = str(side.node)
    some = ("broker.id", "node.id", "log.retention.ms", "log.retention.hours", "num.partitions")
    side.ask_in_each("settings of a broker", describe(BROKER, node, *some))
    side.ask("settings of all brokers", describe(BROKER, ""))
    for kind, name in (
        (TOPIC, "absent"),
        (TOPIC, ""),
        (TOPIC, "a b"),
        (BROKER, "77"),
        (BROKER, "x"),
        (BROKER_LOGGER, node),
        (BROKER_LOGGER, ""),
        (CLIENT_METRICS, "m"),
        (GROUP, "g"),
        (GROUP, ""),
        (0, "x"),
        (99, "x"),
    ):
        asked = "no.such.key" if kind in (BROKER_LOGGER, GROUP) else "num.partitions"
        side.ask(f"settings of {kind} {name!r}", describe(kind, name, asked))
    side.ask("settings of nothing", DescribeConfigsRequest(resources=[]))


def _listed(side: Side) -> None:
    side.ask_in_each("what has settings", ListConfigResourcesRequest())
    for kinds in (
        (TOPIC,),
        (BROKER,),
        (BROKER_LOGGER,),
        (CLIENT_METRICS,),
        (GROUP,),
        (TOPIC, BROKER),
        (BROKER, BROKER),
        (0,),
        (-1,),
        (TOPIC, 99),
    ):
        request = ListConfigResourcesRequest(resource_types=list(kinds))
        side.ask(f"what has settings, of {kinds}", request)


def _altered(side: Side) -> None:
    side.create("altered", configs={"retention.ms": "7777"})

    def alter(kind: int, name: str, *changes: tuple[int, str, str | None]) -> None:
        resource = AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                AlterableConfig(config_operation=operation, name=key, value=value)
                for operation, key, value in changes
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
        side.ask(f"alter {kind} {name!r} {changes}", request)

    for change in TOPIC_SETTINGS:
        alter(TOPIC, "altered", change)
    alter(TOPIC, "altered", (SET, "retention.ms", "1"), (SET, "retention.ms", "2"))
    alter(TOPIC, "altered")
    alter(TOPIC, "absent", (SET, "retention.ms", "1"))
    alter(TOPIC, "", (SET, "retention.ms", "1"))
    node = str(side.node)
    for name in (node, ""):
        for key, value in BROKER_SETTINGS:
            alter(BROKER, name, (SET, key, value))
    alter(BROKER, "77", (SET, "log.retention.ms", "5"))
    alter(BROKER, "x", (SET, "log.retention.ms", "5"))
    alter(BROKER_LOGGER, node, (SET, "kafka", "INFO"))
    alter(99, "x", (SET, "a", "b"))
    for kind, name, key, value in (
        (TOPIC, "altered", "segment.bytes", "2097152"),
        (TOPIC, "altered", "segment.bytes", "x"),
        (TOPIC, "absent", "segment.bytes", "2097152"),
        (BROKER, node, "log.retention.ms", "5"),
        (BROKER, node, "log.dirs", "x"),
        (99, "x", "a", "b"),
    ):
        resource = ReplacedResource(
            resource_type=kind, resource_name=name, configs=[ConfigValue(name=key, value=value)]
        )
        request = AlterConfigsRequest(resources=[resource], validate_only=True)
        side.ask(f"replace {kind} {name!r} {key}={value}", request)


def _kept(side: Side) -> None:
    """What is carried out, and what the broker says of it afterwards."""
    side.create("kept-settings")
    changes = [
        AlterableConfig(config_operation=SET, name="retention.ms", value="9000"),
        AlterableConfig(config_operation=SET, name="segment.bytes", value="2097152"),
    ]
    resource = AlterConfigsResource(
        resource_type=TOPIC, resource_name="kept-settings", configs=changes
    )
    side.ask("alter for good", IncrementalAlterConfigsRequest(resources=[resource]))
    described = DescribeConfigsResource(
        resource_type=TOPIC,
        resource_name="kept-settings",
        configuration_keys=["retention.ms", "segment.bytes"],
    )
    request = DescribeConfigsRequest(resources=[described], include_synonyms=True)
    side.until(
        lambda: any(
            one.value == "9000"
            for result in side.driver.send(request, node=side.node).results
            for one in result.configs
        ),
        "the change to be seen",
    )
    side.ask("settings after a change", request)
