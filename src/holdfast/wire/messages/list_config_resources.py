"""ListConfigResources (key 74), versions 0 and 1.

Version 0 lists client metrics only, whose resource type is 16. From 1 on types are asked for, and
none means all of them.
"""

from __future__ import annotations

from holdfast.wire.schema import RefusableResponse, Request, Struct, array, int8, string


class ListConfigResourcesRequest(Request, key=74, versions=(0, 1), flexible=0):
    resource_types: list[int] = array(int8, since=1)


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8(since=1, default=16, ignorable=True)


class ListConfigResourcesResponse(RefusableResponse, key=74, versions=(0, 1), flexible=0):
    config_resources: list[ConfigResource] = array(ConfigResource)
