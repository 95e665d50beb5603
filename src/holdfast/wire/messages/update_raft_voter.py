"""UpdateRaftVoter (key 82), versions 0 to 0.

A voter tells the leader where it listens now and which levels of kraft.version it knows (KIP-853).
"""

from __future__ import annotations

from holdfast.wire.schema import (
    RefusableResponse,
    Request,
    array,
    int32,
    string,
    struct,
    uuid,
)
from holdfast.wire.structs import KRaftVersionFeature, LeaderIdAndEpoch, QuorumEndpoint


class UpdateRaftVoterRequest(Request, key=82, versions=(0, 0), flexible=0):
    cluster_id: str | None = string(nullable=0)
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[QuorumEndpoint] = array(QuorumEndpoint)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class CurrentLeader(LeaderIdAndEpoch):
    host: str = string()
    port: int = int32()


class UpdateRaftVoterResponse(RefusableResponse, key=82, versions=(0, 0), flexible=0):
    current_leader: CurrentLeader = struct(CurrentLeader, tag=0, ignorable=True)
