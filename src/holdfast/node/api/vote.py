"""Vote (52) on a controller, versions 0-2: another voter asks for ours.

Versions: 1 names the voter that is meant, and directories (KIP-853); 2 may only ask whether it
would be voted for (KIP-996). A vote is on the disk before it is answered.
"""

from __future__ import annotations

from holdfast.core.quorum.voter_events import Answer, LogEnd
from holdfast.core.quorum.voter_set import ReplicaKey
from holdfast.node.api.quorum_requests import is_epoch, is_meant, leader_endpoints, misdirected
from holdfast.node.controller.controller import Controller
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import vote as wire
from holdfast.wire.structs import QuorumNode
from holdfast.wire.well_known import METADATA_TOPIC


def handle_on_controller(
    controller: Controller, context: RequestContext, request: wire.VoteRequest
) -> Deferred | wire.VoteResponse:
    refusal = misdirected(controller, request)
    if refusal is not ErrorCode.NONE:
        return wire.VoteResponse(error_code=refusal)
    asked = request.topics[0].partitions[0]
    log_end = LogEnd(asked.last_offset_epoch, asked.last_offset)
    is_sound = asked.replica_id >= 0 and is_epoch(controller, asked.replica_epoch)
    if not is_sound or min(log_end) < 0:
        return _response(controller, Answer(0, -1, -1, ErrorCode.INVALID_REQUEST))
    if not is_meant(controller, request.voter_id, bytes(asked.voter_directory_id)):
        return _response(controller, Answer(0, -1, -1, ErrorCode.INVALID_VOTER_KEY))
    deferred = context.defer()
    controller.quorum.vote_requested(
        asked.replica_epoch,
        ReplicaKey(asked.replica_id, bytes(asked.replica_directory_id)),
        log_end,
        pre_vote=asked.pre_vote,
        reply=lambda answer: deferred.answer(_response(controller, answer)),
    )
    return deferred


def _response(controller: Controller, answer: Answer) -> wire.VoteResponse:
    data = wire.ResponsePartitionData(
        partition_index=0,
        error_code=answer.error,
        leader_id=answer.leader_id,
        leader_epoch=answer.epoch,
        vote_granted=answer.granted,
    )
    return wire.VoteResponse(
        topics=[wire.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[data])],
        node_endpoints=leader_endpoints(controller, answer.leader_id, QuorumNode),
    )
