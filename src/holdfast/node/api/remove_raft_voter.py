"""RemoveRaftVoter (81), version 0: a voter loses its vote, the active controller perhaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.quorum.voter_changes import remove_voter
from holdfast.core.quorum.voter_set import ReplicaKey
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: RemoveRaftVoterRequest
) -> Deferred | RemoveRaftVoterResponse:
    if request.cluster_id not in (None, controller.cluster_id):
        return RemoveRaftVoterResponse(
            error_code=ErrorCode.INCONSISTENT_CLUSTER_ID,
            error_message=f"This is cluster {controller.cluster_id}.",
        )
    key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
    return controller.change_voters(
        context,
        lambda situation: remove_voter(situation, key),
        lambda code, message: RemoveRaftVoterResponse(error_code=code, error_message=message),
    )
