"""ConsumerGroupDescribe (key 69), versions 0 and 1: groups of KIP-848, as tools show them.

A group that is named twice is described once.

Rules: consumer-groups.md#describe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from holdfast.core.group.append_errors import append_error
from holdfast.node.broker.broker import Broker
from holdfast.node.coordinator.coordinator import Asked, GroupPart, Told
from holdfast.node.coordinator.led_shard import Decide
from holdfast.node.coordinator.pieces import Piece, Pieces
from holdfast.node.door.api_table import DESCRIBE_TOPIC
from holdfast.node.door.request_context import (
    Deferred,
    RequestContext,
    ResourceType,
    authorized_operations,
    refusal,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)


def handle(
    broker: Broker, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Deferred:
    shows_operations = request.include_authorized_operations
    pieces = Pieces(lambda groups: ConsumerGroupDescribeResponse(groups=groups), context.version)

    def told(group: ConsumerGroupDescribedGroup) -> Piece:
        return pieces.piece([_shown(context, group, shows_operations)])

    return broker.groups.coordinator.ask_groups(
        context,
        _parts(broker, context, request, told),
        pieces.join,
        is_flexible=pieces.is_flexible,
    )


def _shown(
    context: RequestContext, group: ConsumerGroupDescribedGroup, shows_operations: bool
) -> ConsumerGroupDescribedGroup:
    """Tell nothing of a group that reads what its asker may not know of."""
    names = dict.fromkeys(
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    )
    names.update(
        dict.fromkeys(name for member in group.members for name in member.subscribed_topic_names)
    )
    if any(refusal(context, name, DESCRIBE_TOPIC) is not None for name in names):
        return ConsumerGroupDescribedGroup(
            group_id=group.group_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="The group has described topic(s) that the client is not authorized to "
            "describe.",
        )
    if shows_operations and group.error_code == ErrorCode.NONE:
        group.authorized_operations = authorized_operations(
            context, ResourceType.GROUP, group.group_id
        )
    return group


def _parts(
    broker: Broker,
    context: RequestContext,
    request: ConsumerGroupDescribeRequest,
    told: Callable[[ConsumerGroupDescribedGroup], Piece],
) -> Iterator[GroupPart]:
    is_served = broker.groups.coordinator.serves_consumer_protocol
    for group_id in dict.fromkeys(request.group_ids):
        refused = partial(_refused, told, group_id)
        if not is_served:
            yield Told(refused(ErrorCode.UNSUPPORTED_VERSION))
            continue
        why = refusal(context, group_id)
        if why is not None:
            yield Told(refused(why.code))
        elif not group_id:
            yield Told(refused(ErrorCode.INVALID_GROUP_ID))
        else:
            yield Asked(group_id, _decision(group_id), refused, told)


def _decision(group_id: str) -> Decide:
    return lambda shard, caller, now_ms: shard.describe_consumer_group(caller, group_id, now_ms)


def _refused(
    told: Callable[[ConsumerGroupDescribedGroup], Piece], group_id: str, code: ErrorCode
) -> Piece:
    return told(ConsumerGroupDescribedGroup(group_id=group_id, error_code=append_error(code)))
