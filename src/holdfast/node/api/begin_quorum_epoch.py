"""BeginQuorumEpoch (53) on a controller, versions 0-1: the quorum's new leader tells of itself.

Versions: 1 names the voter that is meant, and where the leader listens (KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.quorum.voter_events import Answer
from holdfast.node.api.quorum_requests import is_meant, leader_endpoints, listener_of, misdirected
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import begin_quorum_epoch as wire
from holdfast.wire.structs import QuorumEpochPartition, QuorumEpochTopic, QuorumNode
from holdfast.wire.well_known import METADATA_TOPIC

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: wire.BeginQuorumEpochRequest
) -> Deferred | wire.BeginQuorumEpochResponse:
    refusal = misdirected(controller, request)
    if refusal is not ErrorCode.NONE:
        return wire.BeginQuorumEpochResponse(error_code=refusal)
    told = request.topics[0].partitions[0]
    if told.leader_id < 0 or told.leader_epoch < 0:
        return _response(controller, Answer(0, -1, -1, ErrorCode.INVALID_REQUEST))
    if not is_meant(controller, request.voter_id, bytes(told.voter_directory_id)):
        return _response(controller, Answer(0, -1, -1, ErrorCode.INVALID_VOTER_KEY))
    deferred = context.defer()
    listener = listener_of(controller, request.leader_endpoints)
    controller.quorum.begin_requested(
        told.leader_epoch,
        told.leader_id,
        lambda answer: deferred.answer(_response(controller, answer)),
        (listener.host, listener.port) if listener is not None else None,
    )
    return deferred


def _response(controller: Controller, answer: Answer) -> wire.BeginQuorumEpochResponse:
    data = QuorumEpochPartition(
        partition_index=0,
        error_code=answer.error,
        leader_id=answer.leader_id,
        leader_epoch=answer.epoch,
    )
    return wire.BeginQuorumEpochResponse(
        topics=[QuorumEpochTopic(topic_name=METADATA_TOPIC, partitions=[data])],
        node_endpoints=leader_endpoints(controller, answer.leader_id, QuorumNode),
    )
