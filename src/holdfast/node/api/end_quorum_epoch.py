"""EndQuorumEpoch (54) on a controller, versions 0-1: the quorum's leader steps down.

Versions: 1 names the successors with their directories (KIP-853).
"""

from __future__ import annotations

from holdfast.core.quorum.voter_events import Answer
from holdfast.node.api.quorum_requests import epoch_response, is_epoch, misdirected
from holdfast.node.controller.controller import Controller
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse


def handle_on_controller(
    controller: Controller, context: RequestContext, request: EndQuorumEpochRequest
) -> Deferred | EndQuorumEpochResponse:
    refusal = misdirected(controller, request)
    if refusal is not ErrorCode.NONE:
        return EndQuorumEpochResponse(error_code=refusal)
    told = request.topics[0].partitions[0]
    if told.leader_id < 0 or not is_epoch(controller, told.leader_epoch):
        return epoch_response(
            EndQuorumEpochResponse, controller, Answer(0, -1, -1, ErrorCode.INVALID_REQUEST)
        )
    named = [each.candidate_id for each in told.preferred_candidates]
    deferred = context.defer()
    controller.quorum.end_requested(
        told.leader_epoch,
        told.leader_id,
        named or list(told.preferred_successors),
        lambda answer: deferred.answer(epoch_response(EndQuorumEpochResponse, controller, answer)),
    )
    return deferred
