"""What control batches of the metadata log hold.

Rules: batches.md#control-batches, metadata-log.md#snapshots, quorum.md#a-new-epoch.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    Message,
    Struct,
    array,
    int16,
    int32,
    int64,
    struct,
    uuid,
)
from holdfast.wire.structs import KRaftVersionFeature, QuorumEndpoint


class ControlMessage(Message):
    """What begins with the version of what follows."""

    version: int = int16()


class LeaderChangeVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: bytes = uuid(since=1)


class LeaderChangeMessage(ControlMessage, versions=(0, 1), flexible=0):
    leader_id: int = int32()
    voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)
    granting_voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)


class SnapshotHeaderRecord(ControlMessage, versions=(0, 0), flexible=0):
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(ControlMessage, versions=(0, 0), flexible=0):
    """No fields of its own."""


class KRaftVersionRecord(ControlMessage, versions=(0, 0), flexible=0):
    k_raft_version: int = int16()


class VotersRecordVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    endpoints: list[QuorumEndpoint] = array(QuorumEndpoint)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class VotersRecord(ControlMessage, versions=(0, 0), flexible=0):
    voters: list[VotersRecordVoter] = array(VotersRecordVoter)
