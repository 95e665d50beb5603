"""LeaveGroup (key 13), versions 0 to 5: members leave a group, from version 3 on several at once.

Rules: classic-groups.md#leaving.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.group.append_errors import append_error
from holdfast.node.broker.broker import Broker
from holdfast.node.door.request_context import RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


def handle(broker: Broker, context: RequestContext, request: LeaveGroupRequest) -> Any:
    why = refusal(context, request.group_id)
    if why is not None:
        return LeaveGroupResponse(error_code=why.code)
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    return broker.groups.coordinator.ask(
        context,
        request.group_id,
        lambda shard, caller, now_ms: shard.leave(caller, request, now_ms),
        lambda code: LeaveGroupResponse(error_code=append_error(code)),
    )
