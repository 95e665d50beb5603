"""BrokerHeartbeat (63), versions 0-1: a broker is alive, and wants to serve or to leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.brokers import heartbeat
from holdfast.node.access import is_broker
from holdfast.node.context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)

if TYPE_CHECKING:
    from holdfast.node.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: BrokerHeartbeatRequest
) -> Deferred | BrokerHeartbeatResponse:
    if not is_broker(context):
        return BrokerHeartbeatResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return controller.decide(
        context,
        lambda state, now_ms: heartbeat(state, request, now_ms),
        about_broker=request.broker_id,
    )
