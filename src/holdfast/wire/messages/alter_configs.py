"""AlterConfigs (key 33), versions 0 to 2.

Replaces all of a resource's configs. Resource types as in DescribeConfigs.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int32,
    string,
)
from holdfast.wire.structs import AlteredResource


class AlterableConfig(Struct):
    name: str = string()
    value: str | None = string(nullable=0)


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Request, key=33, versions=(0, 2), flexible=2):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResponse(Response, key=33, versions=(0, 2), flexible=2):
    throttle_time_ms: int = int32()
    responses: list[AlteredResource] = array(AlteredResource)
