"""Goal: what is said of the features of one request stays small, whatever a client calls them.

Method: the answer to one long name among many is measured. What levels may be set, transcripts say;
of `group.version`, the tests below.
"""

from __future__ import annotations

import pytest
from tests.core.control_kit import Cluster

from holdfast.core.controller.feature_updates import update_features
from holdfast.core.metadata.feature_levels import bootstrap_records, has_consumer_protocol
from holdfast.wire.codec import encode
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpgradeType,
)
from holdfast.wire.records.metadata import FeatureLevelRecord
from holdfast.wire.well_known import GROUP_VERSION


@pytest.mark.parametrize(
    ("times", "code"),
    [(1, ErrorCode.INVALID_UPDATE_VERSION), (2, ErrorCode.INVALID_REQUEST)],
)
def test_a_long_name_is_not_told_of_every_feature(times: int, code: ErrorCode) -> None:
    """Seen to fail: 40 KB that named one feature at length were answered with 30 MB."""
    names = ["x" * 30_000] * times + ["y"] * 1000
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature=name, max_version_level=1) for name in names]
    )
    answer = Cluster().decide(update_features, request)
    assert answer.error_code == code
    assert answer.results == []  # as in Apache Kafka: all or nothing
    assert len(encode(answer, 1)) < 1000


def _set_level(cluster: Cluster, level: int, kind: UpgradeType) -> ErrorCode:
    update = FeatureUpdateKey(feature=GROUP_VERSION, max_version_level=level, upgrade_type=kind)
    answer = cluster.decide(update_features, UpdateFeaturesRequest(feature_updates=[update]))
    return ErrorCode(answer.error_code)


def test_a_new_cluster_serves_the_consumer_protocol_and_may_go_back() -> None:
    cluster = Cluster().start(0)
    features = cluster.state.image.features
    assert features[GROUP_VERSION] == 1
    assert has_consumer_protocol(features)
    assert _set_level(cluster, 2, UpgradeType.UPGRADE) is ErrorCode.INVALID_UPDATE_VERSION
    assert _set_level(cluster, 0, UpgradeType.UPGRADE) is ErrorCode.INVALID_UPDATE_VERSION
    assert has_consumer_protocol(features)
    assert _set_level(cluster, 0, UpgradeType.SAFE_DOWNGRADE) is ErrorCode.NONE
    assert not has_consumer_protocol(features)
    assert GROUP_VERSION not in features, "0 is unmentioned"
    assert _set_level(cluster, 1, UpgradeType.UPGRADE) is ErrorCode.NONE
    assert has_consumer_protocol(features)


def test_a_broker_that_is_older_than_the_feature_keeps_it_off() -> None:
    """Method: a cluster of before, that has no record of it, and a broker that tells nothing."""
    cluster = Cluster()
    cluster.state.image.features.pop(GROUP_VERSION)
    cluster.start(0)
    told = cluster.registration(0).features
    cluster.register(0, features=[each for each in told if each.name != GROUP_VERSION])
    assert not has_consumer_protocol(cluster.state.image.features)
    assert _set_level(cluster, 1, UpgradeType.UPGRADE) is ErrorCode.INVALID_UPDATE_VERSION
    cluster.register(0)
    assert _set_level(cluster, 1, UpgradeType.UPGRADE) is ErrorCode.NONE


def test_the_records_of_a_new_cluster_have_it_in_apache_kafka_s_order() -> None:
    levels = [
        (record.name, record.feature_level)
        for record in bootstrap_records(min_insync_replicas=1)
        if isinstance(record, FeatureLevelRecord)
    ]
    assert levels == [
        ("metadata.version", 25),
        ("eligible.leader.replicas.version", 1),
        (GROUP_VERSION, 1),
    ]
