"""ConsumerGroupHeartbeat (key 68), versions 0 and 1: all that a member of KIP-848 says and hears.

Rules: consumer-groups.md#requests.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.group.append_errors import append_error
from holdfast.core.refusal import Refusal
from holdfast.node.broker.broker import Broker
from holdfast.node.door.api_table import DESCRIBE_TOPIC
from holdfast.node.door.request_context import RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(broker: Broker, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Any:
    if not broker.groups.coordinator.serves_consumer_protocol:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    why = _refusal(context, request)
    if why is not None:
        return ConsumerGroupHeartbeatResponse(error_code=why.code, error_message=why.message)
    return broker.groups.coordinator.ask(
        context,
        request.group_id,
        lambda shard, caller, now_ms: shard.consumer_heartbeat(caller, request, now_ms),
        _refused,
    )


def _refusal(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Refusal | None:
    why = refusal(context, request.group_id)
    if why is not None:
        return why
    for name in request.subscribed_topic_names or ():
        why = refusal(context, name, DESCRIBE_TOPIC)
        if why is not None:
            return why
    return None


def _refused(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=append_error(code))
