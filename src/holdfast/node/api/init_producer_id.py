"""InitProducerId (key 22): an id for an idempotent producer (rules: producers.md#producer-ids).

Served: 0 to 5. Without a transactional id the time-out means nothing, whatever it is, and each call
gets a fresh id in epoch 0. Transactional ids are refused: there are no transactions yet.
"""

from __future__ import annotations

from typing import Final

from holdfast.node.broker.broker import Broker
from holdfast.node.door.api_table import IDEMPOTENT_WRITE
from holdfast.node.door.request_context import CLUSTER_NAME, Deferred, RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import init_producer_id as wire

NONE: Final = -1  # no producer id, or no epoch


def handle(
    broker: Broker, context: RequestContext, request: wire.InitProducerIdRequest
) -> wire.InitProducerIdResponse | Deferred:
    """Take the next id of the broker's block, or wait until it has got one."""
    if request.transactional_id is not None:
        refused = refusal(context, request.transactional_id)
    else:
        refused = refusal(context, CLUSTER_NAME, IDEMPOTENT_WRITE)
    if refused is not None:
        return _refused(refused.code)
    half_known = (request.producer_id == NONE) != (request.producer_epoch == NONE)
    if half_known or request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    producer_id = broker.producer_ids.take()
    if producer_id is not None:
        return wire.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    deferred = context.defer()

    def answer(taken: int | None) -> None:
        deferred.answer(
            _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)  # retriable
            if taken is None
            else wire.InitProducerIdResponse(producer_id=taken, producer_epoch=0)
        )

    broker.producer_ids.take_later(answer)
    return deferred


def _refused(error: ErrorCode) -> wire.InitProducerIdResponse:
    return wire.InitProducerIdResponse(error_code=error, producer_id=NONE, producer_epoch=NONE)
