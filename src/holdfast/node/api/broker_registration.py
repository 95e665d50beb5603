"""BrokerRegistration (62), versions 0-4: a broker has started and wants an epoch."""

from __future__ import annotations

from holdfast.core.controller.broker_sessions import register
from holdfast.node.controller.controller import Controller
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
)


def handle_on_controller(
    controller: Controller, context: RequestContext, request: BrokerRegistrationRequest
) -> Deferred:
    return controller.decide(context, lambda state, now_ms: register(state, request, now_ms))
