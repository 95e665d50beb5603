"""DescribeConfigs (key 32), versions 1 to 4.

Resource types: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group. Sources: 1 topic,
2 dynamic broker, 3 dynamic default broker, 4 static broker, 5 default, 6 dynamic broker logger,
7 client metrics, 8 group.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
)


class DescribeConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable=0)


class DescribeConfigsRequest(Request, key=32, versions=(1, 4), flexible=4):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(since=3)


class DescribeConfigsSynonym(Struct):
    name: str = string()
    value: str | None = string(nullable=0)
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    name: str = string()
    value: str | None = string(nullable=0)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8(since=3, ignorable=True)
    documentation: str | None = string(since=3, nullable=0, ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Response, key=32, versions=(1, 4), flexible=4):
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
