"""ListGroups (key 16), versions 0 to 5: the groups of the shards that are led here.

Who may not describe the cluster is told of those groups that it may describe.

Rules: classic-groups.md#listing.
"""

from __future__ import annotations

from holdfast.core.group.append_errors import append_error
from holdfast.node.broker.broker import Broker
from holdfast.node.door.api_table import DESCRIBE_CLUSTER, DESCRIBE_GROUP
from holdfast.node.door.request_context import (
    CLUSTER_NAME,
    Deferred,
    RequestContext,
    refusal,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(broker: Broker, context: RequestContext, request: ListGroupsRequest) -> Deferred:
    sees_all = refusal(context, CLUSTER_NAME, DESCRIBE_CLUSTER) is None

    def answer(parts: list[list[ListedGroup] | ErrorCode]) -> ListGroupsResponse:
        groups: list[ListedGroup] = []
        for part in parts:
            if isinstance(part, ErrorCode):
                return ListGroupsResponse(error_code=part)
            groups += part
        if not sees_all:
            groups = [
                each for each in groups if refusal(context, each.group_id, DESCRIBE_GROUP) is None
            ]
        return ListGroupsResponse(groups=groups)

    return broker.groups.coordinator.ask_shards(
        context,
        lambda shard, caller, now_ms: shard.list_groups(
            caller, request.states_filter, request.types_filter, now_ms
        ),
        _refused,
        answer,
    )


def _refused(code: ErrorCode) -> list[ListedGroup] | ErrorCode:
    """A shard that is led elsewhere by now has its groups there."""
    return [] if code is ErrorCode.NOT_COORDINATOR else append_error(code)
