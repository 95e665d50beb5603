"""IncrementalAlterConfigs (key 44), versions 0 to 1.

Operations: 0 set, 1 delete, 2 append, 3 subtract; resource types as in DescribeConfigs.
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
from holdfast.wire.structs import AlteredResource


class AlterableConfig(Struct):
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable=0)


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Request, key=44, versions=(0, 1), flexible=1):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResponse(ThrottledResponse, key=44, versions=(0, 1), flexible=1):
    responses: list[AlteredResource] = array(AlteredResource)
