"""LeaveGroup (key 13), versions 0 to 5.

From 3 on several members at once, each by its id, its instance's, or both.
"""

from __future__ import annotations

from holdfast.wire.schema import Request, Response, Struct, array, int16, int32, string


class MemberIdentity(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable=3, default=None)
    reason: str | None = string(since=5, nullable=5, default=None, ignorable=True)


class LeaveGroupRequest(Request, key=13, versions=(0, 5), flexible=4):
    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


class MemberResponse(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable=3)
    error_code: int = int16()


class LeaveGroupResponse(Response, key=13, versions=(0, 5), flexible=4):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)
