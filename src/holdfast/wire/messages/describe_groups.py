"""DescribeGroups (key 15), versions 0 to 6: classic groups as tools show them.

From 6 on a group that is not there is an error; before, it is answered as dead.
"""

from __future__ import annotations

from typing import Final

from holdfast.wire.schema import (
    Request,
    Response,
    Struct,
    array,
    blob,
    boolean,
    int16,
    int32,
    string,
)

OPERATIONS_NOT_ASKED: Final = -(1 << 31)
"""What stands for a bit field of authorized operations that nobody asked for."""


class DescribeGroupsRequest(Request, key=15, versions=(0, 6), flexible=5):
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(since=3)


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable=4, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = blob()
    member_assignment: bytes = blob()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(since=6, nullable=6, default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=OPERATIONS_NOT_ASKED)


class DescribeGroupsResponse(Response, key=15, versions=(0, 6), flexible=5):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
