"""UnregisterBroker (64), version 0: brokers forward it, the controller decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.controller.broker_sessions import unregister_broker
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: UnregisterBrokerRequest
) -> Deferred:
    return controller.decide(context, lambda state, _: unregister_broker(state, request))


def refuse(
    _request: UnregisterBrokerRequest, code: ErrorCode, message: str
) -> UnregisterBrokerResponse:
    """Refuse the request."""
    return UnregisterBrokerResponse(error_code=code, error_message=message)
