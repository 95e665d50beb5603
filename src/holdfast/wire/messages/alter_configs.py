"""AlterConfigs (key 33), versions 0 to 2.

Replaces all of a resource's configs. Resource types as in DescribeConfigs.
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
from holdfast.wire.structs import AlteredResource, ConfigValue


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[ConfigValue] = array(ConfigValue)


class AlterConfigsRequest(Request, key=33, versions=(0, 2), flexible=2):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResponse(ThrottledResponse, key=33, versions=(0, 2), flexible=2):
    responses: list[AlteredResource] = array(AlteredResource)
