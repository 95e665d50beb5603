"""AllocateProducerIds (67), version 0: a broker wants a block of producer ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.brokers import allocate_producer_ids
from holdfast.node.access import is_broker
from holdfast.node.context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

if TYPE_CHECKING:
    from holdfast.node.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: AllocateProducerIdsRequest
) -> Deferred | AllocateProducerIdsResponse:
    if not is_broker(context):
        return AllocateProducerIdsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return controller.decide(context, lambda state, _: allocate_producer_ids(state, request))
