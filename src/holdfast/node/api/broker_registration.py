"""BrokerRegistration (62), versions 0-4: a broker has started and wants an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.brokers import register
from holdfast.node.access import is_broker
from holdfast.node.context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

if TYPE_CHECKING:
    from holdfast.node.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: BrokerRegistrationRequest
) -> Deferred | BrokerRegistrationResponse:
    if not is_broker(context):
        return BrokerRegistrationResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return controller.decide(context, lambda state, now_ms: register(state, request, now_ms))
