"""ListGroups (key 16), versions 0 to 5.

An empty filter lets everything through: states since version 4, types since 5.
"""

from __future__ import annotations

from holdfast.wire.schema import Request, Response, Struct, array, int16, int32, string


class ListGroupsRequest(Request, key=16, versions=(0, 5), flexible=3):
    states_filter: list[str] = array(string, since=4)
    types_filter: list[str] = array(string, since=5)


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, ignorable=True)
    group_type: str = string(since=5, ignorable=True)


class ListGroupsResponse(Response, key=16, versions=(0, 5), flexible=3):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
