"""BrokerHeartbeat (63), versions 0-1: a broker is alive, and wants to serve or to leave."""

from __future__ import annotations

from holdfast.core.controller.broker_sessions import heartbeat
from holdfast.node.controller.controller import Controller
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
)


def handle_on_controller(
    controller: Controller, context: RequestContext, request: BrokerHeartbeatRequest
) -> Deferred:
    return controller.decide(
        context,
        lambda state, now_ms: heartbeat(state, request, now_ms),
        about_broker=request.broker_id,
    )
