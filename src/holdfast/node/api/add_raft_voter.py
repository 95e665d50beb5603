"""AddRaftVoter (80), versions 0-1: an observer of the metadata log becomes a voter (KIP-853).

Versions: 1 may ask for an answer as soon as the change is decided, before it is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.quorum.voter_changes import add_voter
from holdfast.core.quorum.voter_set import Voter
from holdfast.node.api.quorum_requests import listener_of
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: AddRaftVoterRequest
) -> Deferred | AddRaftVoterResponse:
    if request.cluster_id not in (None, controller.cluster_id):
        return AddRaftVoterResponse(
            error_code=ErrorCode.INCONSISTENT_CLUSTER_ID,
            error_message=f"This is cluster {controller.cluster_id}.",
        )
    found = listener_of(controller, request.listeners)
    if found is None:
        names = ", ".join(controller.settings.controller_listener_names)
        return AddRaftVoterResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"The new voter must have one of the listeners {names}.",
        )
    voter = Voter(request.voter_id, found.host, found.port, bytes(request.voter_directory_id))
    return controller.change_voters(
        context,
        lambda situation: add_voter(situation, voter, controller.readers.get(voter.key)),
        lambda code, message: AddRaftVoterResponse(error_code=code, error_message=message),
        at_once=not request.ack_when_committed,
    )
