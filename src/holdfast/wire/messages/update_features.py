"""UpdateFeatures (key 57), versions 0 to 2.

Changes the levels of finalized features. Until version 1 each feature has a result of its own; from
2 on it is all or nothing.
"""

from __future__ import annotations

from enum import IntEnum

from holdfast.wire.schema import (
    ExplainedResponse,
    Request,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
)


class UpgradeType(IntEnum):
    """What a client is ready for; 0 is unknown."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdateKey(Struct):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(until=0)
    upgrade_type: int = int8(since=1, default=1)


class UpdateFeaturesRequest(Request, key=57, versions=(0, 2), flexible=0):
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1)


class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class UpdateFeaturesResponse(ExplainedResponse, key=57, versions=(0, 2), flexible=0):
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=1, ignorable=True)
