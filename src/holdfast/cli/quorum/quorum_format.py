"""What `holdfast metadata-quorum` prints: kafka-metadata-quorum's text, character by character.

Pure: a quorum's state and the time go in, lines come out.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.cluster.quorum import QuorumReplica, QuorumState
from holdfast.wire.uuids import NULL_UUID, uuid_text

HEADER = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)
LABEL_WIDTH = 24


def status_lines(cluster_id: str, state: QuorumState) -> list[str]:
    """`describe --status`."""
    values = {
        "ClusterId": cluster_id,
        "LeaderId": state.leader,
        "LeaderEpoch": state.epoch,
        "HighWatermark": state.high_watermark,
        "MaxFollowerLag": _lag_max(state),
        "MaxFollowerLagTimeMs": _lag_ms_max(state),
        "CurrentVoters": _members(state.voters),
        "CurrentObservers": _members(state.observers),
    }
    return [f"{f'{label}:':<{LABEL_WIDTH}}{value}" for label, value in values.items()]


def replication_lines(
    state: QuorumState, *, now_ms: int, human_readable: bool = False
) -> list[str]:
    """`describe --replication`: the leader, the other voters, the observers."""

    def moment(at_ms: int) -> str:
        if human_readable and at_ms >= 0:
            return f"{now_ms - at_ms} ms ago"
        return str(at_ms)

    def row(replica: QuorumReplica, status: str) -> tuple[str, ...]:
        return (
            str(replica.id),
            uuid_text(replica.directory_id),
            str(replica.log_end),
            str(state.leader_log_end - replica.log_end),
            moment(replica.last_fetch_ms),
            moment(replica.last_caught_up_ms),
            status,
        )

    leaders = [row(each, "Leader") for each in state.voters if each.id == state.leader]
    followers = [row(each, "Follower") for each in state.voters if each.id != state.leader]
    observers = [row(each, "Observer") for each in state.observers]
    return _table([HEADER, *leaders, *followers, *observers])


def _lag_max(state: QuorumState) -> int:
    ends = [each.log_end for each in state.voters]
    return state.leader_log_end - min(ends, default=state.leader_log_end)


def _lag_ms_max(state: QuorumState) -> int:
    """How long ago the voter that is furthest behind had everything; -1: not known."""
    leader = next((each for each in state.voters if each.id == state.leader), None)
    last = min(state.voters, key=lambda each: each.log_end, default=None)
    if leader is None or last is None:
        return -1
    if leader == last:
        return 0
    if min(leader.last_caught_up_ms, last.last_caught_up_ms) < 0:
        return -1
    return leader.last_caught_up_ms - last.last_caught_up_ms


def _members(replicas: Sequence[QuorumReplica]) -> str:
    return f"[{', '.join(_member(each) for each in replicas)}]"


def _member(replica: QuorumReplica) -> str:
    fields = [f'"id": {replica.id}']
    if replica.directory_id != NULL_UUID:
        fields.append(f'"directoryId": "{uuid_text(replica.directory_id)}"')
    if replica.endpoints:
        quoted = ", ".join(f'"{endpoint}"' for endpoint in replica.endpoints)
        fields.append(f'"endpoints": [{quoted}]')
    return "{" + ", ".join(fields) + "}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
