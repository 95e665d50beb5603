"""DeleteGroups (key 42), versions 0 to 2."""

from __future__ import annotations

from holdfast.wire.schema import Request, Struct, ThrottledResponse, array, int16, string


class DeleteGroupsRequest(Request, key=42, versions=(0, 2), flexible=2):
    groups_names: list[str] = array(string)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(ThrottledResponse, key=42, versions=(0, 2), flexible=2):
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
