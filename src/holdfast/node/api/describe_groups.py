"""DescribeGroups (key 15), versions 0 to 6: classic groups, as tools show them.

A group that is named twice is described once.

Rules: classic-groups.md#describing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from holdfast.core.group.append_errors import append_error
from holdfast.node.broker.broker import Broker
from holdfast.node.coordinator.coordinator import Asked, GroupPart, Told
from holdfast.node.coordinator.led_shard import Decide
from holdfast.node.door.request_context import (
    Deferred,
    RequestContext,
    ResourceType,
    authorized_operations,
    refusal,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(broker: Broker, context: RequestContext, request: DescribeGroupsRequest) -> Deferred:
    shows_operations = request.include_authorized_operations

    def answer(groups: list[DescribedGroup]) -> DescribeGroupsResponse:
        for group in groups:
            if shows_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = authorized_operations(
                    context, ResourceType.GROUP, group.group_id
                )
        return DescribeGroupsResponse(groups=groups)

    return broker.groups.coordinator.ask_groups(context, _parts(context, request), answer)


def _parts(context: RequestContext, request: DescribeGroupsRequest) -> Iterator[GroupPart]:
    for group_id in dict.fromkeys(request.groups):
        refused = partial(_refused, group_id)
        why = refusal(context, group_id)
        if why is not None:
            yield Told(refused(why.code))
        else:
            yield Asked(
                group_id,
                _decision(group_id),
                refused,
            )


def _decision(group_id: str) -> Decide:
    return lambda shard, caller, now_ms: shard.describe_group(caller, group_id, now_ms)


def _refused(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=append_error(code))
