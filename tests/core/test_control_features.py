"""Goal: what is said of the features of one request stays small, whatever a client calls them.

Method: the answer to one long name among many is measured. What levels may be set, transcripts say.
"""

from __future__ import annotations

import pytest
from tests.core.control_kit import Cluster

from holdfast.core.controller.feature_updates import update_features
from holdfast.wire.codec import encode
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest


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
    assert len(encode(answer, 1)) < 10 * len(encode(request, 1))
