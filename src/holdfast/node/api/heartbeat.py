"""Heartbeat (key 12), versions 0 to 4: a member of a classic group is alive.

Rules: classic-groups.md#heartbeats.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.group.append_errors import append_error
from holdfast.node.broker.broker import Broker
from holdfast.node.door.request_context import RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(broker: Broker, context: RequestContext, request: HeartbeatRequest) -> Any:
    why = refusal(context, request.group_id)
    if why is not None:
        return HeartbeatResponse(error_code=why.code)
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    return broker.groups.coordinator.ask(
        context,
        request.group_id,
        lambda shard, caller, now_ms: shard.heartbeat(caller, request, now_ms),
        _refused,
    )


def _refused(code: ErrorCode) -> HeartbeatResponse:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # A member that is told so would look for another coordinator; this one is only not ready,
        # and its session begins anew with the load. As Apache Kafka.
        code = ErrorCode.NONE
    return HeartbeatResponse(error_code=append_error(code))
