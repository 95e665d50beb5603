"""FindCoordinator (key 10), versions 0 to 6.

From 4 on several keys at once. Key types: 0 group, 1 transaction, 2 share group.
"""

from __future__ import annotations

from holdfast.wire.schema import Request, Response, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Request, key=10, versions=(0, 6), flexible=3):
    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(string, since=4)


class Coordinator(Struct):
    key: str = string(since=4)
    node_id: int = int32(since=4)
    host: str = string(since=4)
    port: int = int32(since=4)
    error_code: int = int16(since=4)
    error_message: str | None = string(since=4, nullable=4, ignorable=True)


class FindCoordinatorResponse(Response, key=10, versions=(0, 6), flexible=3):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable=1, ignorable=True)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)
