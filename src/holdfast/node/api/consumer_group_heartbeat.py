"""ConsumerGroupHeartbeat (key 68): as JoinGroup, for consumers with `group.protocol=consumer`.

Served: 0 and 1, and refused in both.
"""

from __future__ import annotations

from holdfast.node.api.join_group import NO_GROUPS
from holdfast.node.broker.broker import Broker
from holdfast.node.door.request_context import RequestContext, refusal
from holdfast.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(
    _broker: Broker, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    code, message = refusal(context, request.group_id) or NO_GROUPS
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)
