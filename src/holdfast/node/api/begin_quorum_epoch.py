"""BeginQuorumEpoch (53) on a controller, versions 0-1: the quorum's new leader tells of itself.

Versions: 1 names the voter that is meant, and where the leader listens (KIP-853).
"""

from __future__ import annotations

from holdfast.core.quorum.voter_events import Answer
from holdfast.node.api.quorum_requests import (
    epoch_response,
    is_epoch,
    is_meant,
    listener_of,
    misdirected,
)
from holdfast.node.controller.controller import Controller
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)


def handle_on_controller(
    controller: Controller, context: RequestContext, request: BeginQuorumEpochRequest
) -> Deferred | BeginQuorumEpochResponse:
    refusal = misdirected(controller, request)
    if refusal is not ErrorCode.NONE:
        return BeginQuorumEpochResponse(error_code=refusal)
    told = request.topics[0].partitions[0]
    if told.leader_id < 0 or not is_epoch(controller, told.leader_epoch):
        return epoch_response(
            BeginQuorumEpochResponse, controller, Answer(0, -1, -1, ErrorCode.INVALID_REQUEST)
        )
    if not is_meant(controller, request.voter_id, bytes(told.voter_directory_id)):
        return epoch_response(
            BeginQuorumEpochResponse, controller, Answer(0, -1, -1, ErrorCode.INVALID_VOTER_KEY)
        )
    deferred = context.defer()
    listener = listener_of(controller, request.leader_endpoints)
    controller.quorum.begin_requested(
        told.leader_epoch,
        told.leader_id,
        lambda answer: deferred.answer(
            epoch_response(BeginQuorumEpochResponse, controller, answer)
        ),
        (listener.host, listener.port) if listener is not None else None,
    )
    return deferred
