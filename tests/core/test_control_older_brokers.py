"""Goal: while a cluster is upgraded broker by broker no setting ends those of the older version.

Method: a broker registers as one that knows no groups does, and topics are to be compacted, also
`__consumer_offsets`, which the first group asks for. Seen to fail: without the refusal the older
brokers ended as soon as any client named a group, and acks=all went with them.
"""

from __future__ import annotations

import pytest
from tests.core.control_kit import Cluster

from holdfast.core.controller.broker_sessions import unregister_broker
from holdfast.core.controller.config_changes import incremental_alter_configs
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.create_topics import new_topic
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.messages.unregister_broker import UnregisterBrokerRequest
from holdfast.wire.structs import ConfigOperation, ResourceType
from holdfast.wire.well_known import GROUP_VERSION

OLDER = 1


@pytest.fixture
def cluster() -> Cluster:
    """Two brokers, the second one of an older version."""
    made = Cluster().start(0)
    made.state.image.features.pop(GROUP_VERSION)  # as in a cluster that is older than its groups
    features = made.registration(OLDER).features
    made.register(OLDER, features=[one for one in features if one.name != GROUP_VERSION])
    made.beat(OLDER)
    made.create("t", [0])
    return made


def create(cluster: Cluster, name: str, policy: str) -> tuple[ErrorCode, str]:
    topic = new_topic(name, 1, 1, configs={"cleanup.policy": policy})
    answer = cluster.create_by_request(topic).topics[0]
    return ErrorCode(answer.error_code), answer.error_message or ""


def alter(cluster: Cluster, kind: ResourceType, name: str, key: str) -> tuple[ErrorCode, str]:
    change = AlterableConfig(
        name=key, config_operation=int(ConfigOperation.SET), value="compact,delete"
    )
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = cluster.decide(incremental_alter_configs, request).responses[0]
    return ErrorCode(answer.error_code), answer.error_message or ""


def test_nothing_is_compacted_before_all_brokers_know_it(cluster: Cluster) -> None:
    code, why = create(cluster, "__consumer_offsets", "compact")
    assert code is ErrorCode.INVALID_CONFIG
    assert "would end by it: 1." in why
    code, why = alter(cluster, ResourceType.TOPIC, "t", "cleanup.policy")
    assert (code, "by it: 1." in why) == (ErrorCode.INVALID_CONFIG, True)
    code, why = alter(cluster, ResourceType.BROKER, "", "log.cleanup.policy")
    assert (code, "by it: 1." in why) == (ErrorCode.INVALID_REQUEST, True)
    assert create(cluster, "u", "delete") == (ErrorCode.NONE, "")


def test_it_is_once_the_last_one_was_upgraded(cluster: Cluster) -> None:
    cluster.start(OLDER)
    assert create(cluster, "__consumer_offsets", "compact") == (ErrorCode.NONE, "")
    assert alter(cluster, ResourceType.TOPIC, "t", "cleanup.policy") == (ErrorCode.NONE, "")


def test_a_broker_that_is_gone_for_good_can_be_unregistered(cluster: Cluster) -> None:
    cluster.decide(unregister_broker, UnregisterBrokerRequest(broker_id=OLDER))
    assert create(cluster, "__consumer_offsets", "compact") == (ErrorCode.NONE, "")


def test_brokers_of_apache_kafka_without_groups_know_compaction(cluster: Cluster) -> None:
    features = cluster.registration(OLDER).features
    cluster.start(OLDER)
    cluster.register(2, features=[one for one in features if one.name.startswith("metadata")])
    assert create(cluster, "__consumer_offsets", "compact") == (ErrorCode.NONE, "")
