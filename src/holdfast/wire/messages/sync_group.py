"""SyncGroup (key 14), versions 0 to 5.

The leader's request carries what each member gets, everybody's answer what this one got.
"""

from __future__ import annotations

from holdfast.wire.schema import Request, Response, Struct, array, blob, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = blob()


class SyncGroupRequest(Request, key=14, versions=(0, 5), flexible=4):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    protocol_type: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Response, key=14, versions=(0, 5), flexible=4):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    assignment: bytes = blob()
