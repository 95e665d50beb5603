"""JoinGroup (key 11), versions 0 to 9: become a member of a classic group.

The answer comes when the group has all its members: see core/group/classic.

Rules: classic-groups.md#joining.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast.core.group.any_group import Caller
from holdfast.core.group.append_errors import append_error
from holdfast.core.group.classic.classic_member import join_refused
from holdfast.node.broker.broker import Broker
from holdfast.node.door.request_context import RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


def handle(broker: Broker, context: RequestContext, request: JoinGroupRequest) -> Any:
    refused = partial(_refused, context.version, request.member_id)
    why = refusal(context, request.group_id)
    if why is not None:
        return refused(why.code)
    if not request.group_id:
        return refused(ErrorCode.INVALID_GROUP_ID)
    return broker.groups.coordinator.ask(
        context,
        request.group_id,
        lambda shard, caller, now_ms: shard.join(caller, request, now_ms),
        refused,
    )


def _refused(version: int, member_id: str, code: ErrorCode) -> JoinGroupResponse:
    return join_refused(Caller(-1, version), append_error(code), member_id)
