"""DescribeGroups (key 15), versions 0 to 6: classic groups, as tools show them.

A group that is named twice is described once.

Rules: classic-groups.md#describing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from holdfast.core.group.append_errors import append_error
from holdfast.node.broker.broker import Broker
from holdfast.node.coordinator.coordinator import Asked, GroupPart, Told
from holdfast.node.coordinator.led_shard import Decide
from holdfast.node.coordinator.pieces import Piece, Pieces
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
    pieces = Pieces(lambda groups: DescribeGroupsResponse(groups=groups), context.version)

    def told(group: DescribedGroup) -> Piece:
        if shows_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = authorized_operations(
                context, ResourceType.GROUP, group.group_id
            )
        return pieces.piece([group])

    return broker.groups.coordinator.ask_groups(
        context, _parts(context, request, told), pieces.join, is_flexible=pieces.is_flexible
    )


def _parts(
    context: RequestContext,
    request: DescribeGroupsRequest,
    told: Callable[[DescribedGroup], Piece],
) -> Iterator[GroupPart]:
    for group_id in dict.fromkeys(request.groups):
        refused = partial(_refused, told, group_id)
        why = refusal(context, group_id)
        if why is not None:
            yield Told(refused(why.code))
        else:
            yield Asked(group_id, _decision(group_id), refused, told)


def _decision(group_id: str) -> Decide:
    return lambda shard, caller, now_ms: shard.describe_group(caller, group_id, now_ms)


def _refused(told: Callable[[DescribedGroup], Piece], group_id: str, code: ErrorCode) -> Piece:
    return told(DescribedGroup(group_id=group_id, error_code=append_error(code)))
