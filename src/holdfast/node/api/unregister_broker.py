"""UnregisterBroker (64), version 0: brokers forward it, the controller decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.brokers import unregister_broker
from holdfast.node.context import (
    CLUSTER_NAME,
    Deferred,
    Operation,
    RequestContext,
    ResourceType,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from holdfast.node.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: UnregisterBrokerRequest
) -> Deferred | UnregisterBrokerResponse:
    if not context.allows(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        why = f"{context.principal} may not alter the cluster."
        return refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, why)
    return controller.decide(context, lambda state, _: unregister_broker(state, request))


def refuse(
    _request: UnregisterBrokerRequest, code: ErrorCode, message: str
) -> UnregisterBrokerResponse:
    """Refuse the request."""
    return UnregisterBrokerResponse(error_code=code, error_message=message)
