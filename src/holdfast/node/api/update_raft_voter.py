"""UpdateRaftVoter (82), version 0: a voter says where it listens now (KIP-853)."""

from __future__ import annotations

from holdfast.core.quorum.voter_changes import update_voter
from holdfast.core.quorum.voter_set import Voter
from holdfast.node.api.quorum_requests import listener_of
from holdfast.node.controller.controller import Controller
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.update_raft_voter import (
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)


def handle_on_controller(
    controller: Controller, context: RequestContext, request: UpdateRaftVoterRequest
) -> Deferred | UpdateRaftVoterResponse:
    if request.cluster_id not in (None, controller.cluster_id):
        return UpdateRaftVoterResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if request.current_leader_epoch != controller.epoch:
        older = request.current_leader_epoch < controller.epoch
        return UpdateRaftVoterResponse(
            error_code=ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        )
    found = listener_of(controller, request.listeners)
    if found is None:
        return UpdateRaftVoterResponse(error_code=ErrorCode.INVALID_REQUEST)
    voter = Voter(request.voter_id, found.host, found.port, bytes(request.voter_directory_id))
    return controller.change_voters(
        context,
        lambda situation: update_voter(situation, voter),
        lambda code, _: UpdateRaftVoterResponse(error_code=code),
    )
