"""What DescribeQuorum's answers become, and who is believed when two controllers differ."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from holdfast.cluster import processes
from holdfast.cluster.layout import NodeRecord
from holdfast.cluster.nodes import node_status
from holdfast.cluster.quorum import QuorumReplica, QuorumState, RefusedError, read, request
from holdfast.wire.codec import decode, encode
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)


def answer(code: int = 0, top: int = 0, **fields: object) -> DescribeQuorumResponse:
    values: dict[str, object] = {"error_code": code, "leader_id": 101, "leader_epoch": 7}
    partition = ResponsePartitionData(**(values | fields))  # type: ignore[arg-type]
    topic = ResponseTopicData(topic_name="__cluster_metadata", partitions=[partition])
    return DescribeQuorumResponse(error_code=top, topics=[topic])


def replica(node: int, end: int) -> ReplicaState:
    return ReplicaState(
        replica_id=node,
        log_end_offset=end,
        last_fetch_timestamp=-1,
        last_caught_up_timestamp=5,
    )


def test_an_answer_becomes_the_quorum_s_state() -> None:
    """Goal: leader, epoch, ends and lags are right. Method: through the codec, every version."""
    response = answer(
        high_watermark=40,
        current_voters=[replica(100, 41), replica(101, 44), replica(102, -1)],
        observers=[replica(0, 44)],
    )
    for version in range(3):
        state = read(decode(DescribeQuorumResponse, version, encode(response, version)))
        assert (state.leader, state.epoch, state.high_watermark) == (101, 7, 40)
        assert state.leader_log_end == 44
        assert [state.lag(node) for node in (100, 101, 102, 0, 9)] == [3, 0, None, 0, None]
    assert state.voters[0] == QuorumReplica(
        id=100, directory_id=bytes(16), log_end=41, last_fetch_ms=-1, last_caught_up_ms=5
    )


def test_a_refusal_is_named() -> None:
    """Goal: a controller that isn't active is not taken for one. Method: both codes, no topic."""
    not_leader = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for refused in (answer(not_leader), answer(0, not_leader)):
        with pytest.raises(RefusedError, match="NOT_LEADER_OR_FOLLOWER"):
            read(refused)
    with pytest.raises(RefusedError, match="without"):
        read(DescribeQuorumResponse())


def test_what_is_asked() -> None:
    """Goal: the metadata partition alone. Method: through the codec."""
    found = decode(DescribeQuorumRequest, 2, encode(request(), 2))
    (topic,) = found.topics
    assert (topic.topic_name, [one.partition_index for one in topic.partitions]) == (
        "__cluster_metadata",
        [0],
    )


def test_a_leader_that_is_no_voter_any_more() -> None:
    """Goal: no lag is made up. Method: a state whose leader has no row."""
    state = QuorumState(leader=1, epoch=1, high_watermark=0, voters=(), observers=())
    assert (state.leader_log_end, state.lag(1)) == (-1, None)


def test_of_a_controller_that_is_dead_nothing_is_told() -> None:
    """Seen to fail: the active one had last heard of it at the end, so it stayed in sync."""
    voters = [replica(100, 44), replica(101, 44)]
    state = read(answer(high_watermark=44, current_voters=voters))
    own = processes.identify(os.getpid())
    dead = NodeRecord(
        id=100,
        roles=("controller",),
        host="127.0.0.1",
        port=1,
        log_file="log",
        config_file="config",
    )
    alive = replace(dead, pid=os.getpid(), process=own)
    lags = [node_status(each, None, [], state).lag for each in (dead, alive)]
    assert lags == [None, 0]
