"""kafka-metadata-quorum's text: held against what Apache Kafka 4.3 printed for the same values."""

from __future__ import annotations

from dataclasses import replace

from holdfast.cli.quorum.quorum_format import replication_lines, status_lines
from holdfast.cluster.quorum import QuorumReplica, QuorumState

LEADER = QuorumReplica(
    id=0,
    directory_id=bytes(16),
    log_end=20,
    last_fetch_ms=1_795_184_623_940,
    last_caught_up_ms=1_795_184_623_940,
    endpoints=("CONTROLLER://127.0.0.1:22722",),
)
ALONE = QuorumState(leader=0, epoch=1, high_watermark=18, voters=(LEADER,), observers=())
BEHIND = replace(
    LEADER,
    id=101,
    directory_id=bytes(15) + b"\x01",
    log_end=12,
    last_caught_up_ms=1_795_184_623_440,
    endpoints=(),
)
NEVER = replace(BEHIND, id=102, last_fetch_ms=-1, last_caught_up_ms=-1, log_end=0)


def test_status_of_one_controller() -> None:
    """Goal: Kafka's text. Method: copied from its own tool's output."""
    assert status_lines("holdfast-apache-kafka1", ALONE) == [
        "ClusterId:              holdfast-apache-kafka1",
        "LeaderId:               0",
        "LeaderEpoch:            1",
        "HighWatermark:          18",
        "MaxFollowerLag:         0",
        "MaxFollowerLagTimeMs:   0",
        'CurrentVoters:          [{"id": 0, "endpoints": ["CONTROLLER://127.0.0.1:22722"]}]',
        "CurrentObservers:       []",
    ]


def test_replication_of_one_controller() -> None:
    """Goal: Kafka's table, tabs and padding included. Method: as above."""
    header = (
        "NodeId\tDirectoryId           \tLogEndOffset\tLag\tLastFetchTimestamp"
        "\tLastCaughtUpTimestamp\tStatus\t"
    )
    row = (
        "0     \tAAAAAAAAAAAAAAAAAAAAAA\t20          \t0  \t1795184623940     "
        "\t1795184623940        \tLeader\t"
    )
    assert replication_lines(ALONE, now_ms=0) == [header, row]
    human = replication_lines(ALONE, now_ms=LEADER.last_fetch_ms + 6, human_readable=True)
    assert human[1] == row.replace("1795184623940     ", "6 ms ago          ").replace(
        "1795184623940        ", "6 ms ago             "
    )


def test_followers_and_observers() -> None:
    """Goal: leader first, lags counted, what is not known is -1. Method: a quorum of three."""
    state = replace(ALONE, voters=(BEHIND, LEADER), observers=(NEVER,))
    status = status_lines("x", state)
    assert status[4:6] == ["MaxFollowerLag:         8", "MaxFollowerLagTimeMs:   500"]
    assert '"directoryId": "AAAAAAAAAAAAAAAAAAAAAQ"}' in status[6]
    rows = [line.split("\t") for line in replication_lines(state, now_ms=0, human_readable=True)]
    assert [(row[0].strip(), row[3].strip(), row[6].strip()) for row in rows[1:]] == [
        ("0", "0", "Leader"),
        ("101", "8", "Follower"),
        ("102", "20", "Observer"),
    ]
    assert rows[3][4].strip() == "-1"
    unknown = replace(state, voters=(LEADER, NEVER))
    assert status_lines("x", unknown)[5] == "MaxFollowerLagTimeMs:   -1"
