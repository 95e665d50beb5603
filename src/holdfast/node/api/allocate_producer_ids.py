"""AllocateProducerIds (67), version 0: a broker wants a block of producer ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.controller.broker_sessions import allocate_producer_ids
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
)

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: AllocateProducerIdsRequest
) -> Deferred:
    return controller.decide(context, lambda state, _: allocate_producer_ids(state, request))
