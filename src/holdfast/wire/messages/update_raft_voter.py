"""UpdateRaftVoter (key 82), versions 0 to 0.

A voter tells the leader where it listens now and which levels of kraft.version it knows (KIP-853).
"""

from __future__ import annotations

from holdfast.wire.schema import (
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    string,
    struct,
    uuid,
)
from holdfast.wire.structs import KRaftVersionFeature, QuorumEndpoint


class UpdateRaftVoterRequest(Request, key=82, versions=(0, 0), flexible=0):
    cluster_id: str | None = string(nullable=0)
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[QuorumEndpoint] = array(QuorumEndpoint)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class CurrentLeader(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


class UpdateRaftVoterResponse(Response, key=82, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader = struct(CurrentLeader, tag=0, ignorable=True)
