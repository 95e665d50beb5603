"""DescribeConfigs (key 32), versions 1 to 4.

Resource types: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group. Sources: 1 topic,
2 dynamic broker, 3 dynamic default broker, 4 static broker, 5 default, 6 dynamic broker logger,
7 client metrics, 8 group.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    Request,
    Struct,
    ThrottledResponse,
    array,
    boolean,
    int8,
    string,
)
from holdfast.wire.structs import AlteredResource, ConfigValue, ShownConfig


class DescribeConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable=0)


class DescribeConfigsRequest(Request, key=32, versions=(1, 4), flexible=4):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(since=3)


class DescribeConfigsSynonym(ConfigValue):
    source: int = int8()


class DescribeConfigsResourceResult(ShownConfig):
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8(since=3, ignorable=True)
    documentation: str | None = string(since=3, nullable=0, ignorable=True)


class DescribeConfigsResult(AlteredResource):
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(ThrottledResponse, key=32, versions=(1, 4), flexible=4):
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
