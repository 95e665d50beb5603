"""EndQuorumEpoch (54) on a controller, versions 0-1: the quorum's leader steps down.

Versions: 1 names the successors with their directories (KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.quorum.voter_events import Answer
from holdfast.node.api.quorum_requests import leader_endpoints, misdirected
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import end_quorum_epoch as wire
from holdfast.wire.structs import QuorumEpochPartition, QuorumEpochTopic, QuorumNode
from holdfast.wire.well_known import METADATA_TOPIC

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: wire.EndQuorumEpochRequest
) -> Deferred | wire.EndQuorumEpochResponse:
    refusal = misdirected(controller, request)
    if refusal is not ErrorCode.NONE:
        return wire.EndQuorumEpochResponse(error_code=refusal)
    told = request.topics[0].partitions[0]
    if told.leader_id < 0 or told.leader_epoch < 0:
        return _response(controller, Answer(0, -1, -1, ErrorCode.INVALID_REQUEST))
    named = [each.candidate_id for each in told.preferred_candidates]
    deferred = context.defer()
    controller.quorum.end_requested(
        told.leader_epoch,
        told.leader_id,
        named or list(told.preferred_successors),
        lambda answer: deferred.answer(_response(controller, answer)),
    )
    return deferred


def _response(controller: Controller, answer: Answer) -> wire.EndQuorumEpochResponse:
    data = QuorumEpochPartition(
        partition_index=0,
        error_code=answer.error,
        leader_id=answer.leader_id,
        leader_epoch=answer.epoch,
    )
    return wire.EndQuorumEpochResponse(
        topics=[QuorumEpochTopic(topic_name=METADATA_TOPIC, partitions=[data])],
        node_endpoints=leader_endpoints(controller, answer.leader_id, QuorumNode),
    )
