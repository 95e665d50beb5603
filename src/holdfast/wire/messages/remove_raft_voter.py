"""RemoveRaftVoter (key 81), versions 0 to 0.

Takes a voter out of the metadata log's quorum (KIP-853).
"""

from __future__ import annotations

from holdfast.wire.schema import ExplainedResponse, Request, int32, string, uuid


class RemoveRaftVoterRequest(Request, key=81, versions=(0, 0), flexible=0):
    cluster_id: str | None = string(nullable=0)
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


class RemoveRaftVoterResponse(ExplainedResponse, key=81, versions=(0, 0), flexible=0):
    """Says what became of it."""
