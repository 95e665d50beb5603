"""UpdateRaftVoter (82), version 0: a voter says where it listens now (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.voter_changes import update_voter
from holdfast.core.voters import Voter
from holdfast.node.access import is_broker
from holdfast.node.context import Deferred, RequestContext
from holdfast.node.quorum_requests import listener_of
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.update_raft_voter import (
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)

if TYPE_CHECKING:
    from holdfast.node.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: UpdateRaftVoterRequest
) -> Deferred | UpdateRaftVoterResponse:
    if not is_broker(context):
        return _answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.cluster_id not in (None, controller.cluster_id):
        return _answer(ErrorCode.INCONSISTENT_CLUSTER_ID)
    if request.current_leader_epoch != controller.epoch:
        older = request.current_leader_epoch < controller.epoch
        return _answer(ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH)
    found = listener_of(controller, request.listeners)
    if found is None:
        return _answer(ErrorCode.INVALID_REQUEST)
    voter = Voter(request.voter_id, found.host, found.port, bytes(request.voter_directory_id))
    return controller.change_voters(
        context,
        lambda situation: update_voter(situation, voter),
        lambda code, _: _answer(code),
    )


def _answer(code: ErrorCode) -> UpdateRaftVoterResponse:
    return UpdateRaftVoterResponse(error_code=code)
