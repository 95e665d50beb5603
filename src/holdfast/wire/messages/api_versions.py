"""ApiVersions (key 18), versions 0 to 4.

Version 3 brings the client's software and tagged features; from 4 on a feature may begin at 0.
The answer's header is version 0 always, so that a client that guessed too high can read it.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
)


class ApiVersionsRequest(Request, key=18, versions=(0, 4), flexible=3):
    client_software_name: str = string(since=3, ignorable=True)
    client_software_version: str = string(since=3, ignorable=True)


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string(since=3)
    min_version: int = int16(since=3)
    max_version: int = int16(since=3)


class FinalizedFeatureKey(Struct):
    name: str = string(since=3)
    max_version_level: int = int16(since=3)
    min_version_level: int = int16(since=3)


class ApiVersionsResponse(Response, key=18, versions=(0, 4), flexible=3):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, since=3, tag=0, ignorable=True
    )
    finalized_features_epoch: int = int64(since=3, tag=1, ignorable=True, default=-1)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, since=3, tag=2, ignorable=True
    )
    zk_migration_ready: bool = boolean(since=3, tag=3, ignorable=True)
