"""AddRaftVoter (key 80), versions 0 to 1.

Makes an observer of the metadata log a voter (KIP-853).
"""

from __future__ import annotations

from holdfast.wire.schema import (
    ExplainedResponse,
    Request,
    array,
    boolean,
    int32,
    string,
    uuid,
)
from holdfast.wire.structs import QuorumEndpoint


class AddRaftVoterRequest(Request, key=80, versions=(0, 1), flexible=0):
    cluster_id: str | None = string(nullable=0)
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[QuorumEndpoint] = array(QuorumEndpoint)
    ack_when_committed: bool = boolean(since=1, default=True)


class AddRaftVoterResponse(ExplainedResponse, key=80, versions=(0, 1), flexible=0):
    """Says what became of it."""
