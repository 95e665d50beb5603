"""Goal: the controller refuses an ISR for the first reason that holds.

Method: a request that is right is spoilt in one or two ways; of two, the earlier check must win.
Rules: replication.md#refusing-an-isr.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.control_kit import Cluster, identity

from holdfast.core.metadata.image import RecoveryState
from holdfast.wire.errors import ErrorCode

E = ErrorCode


def _cluster() -> Cluster:
    cluster = Cluster().start(0, 1, 2, 3)
    cluster.create("t", [0, 1, 2])
    cluster.alter(0, "t", 0, [0, 1])  # so that the partition epoch is 1 and 2 may join
    return cluster


def _code(cluster: Cluster, requester: int, isr: list[int], **changes: Any) -> ErrorCode:
    response = cluster.alter(requester, "t", 0, isr, **changes)
    if response.error_code:
        return ErrorCode(response.error_code)
    return ErrorCode(response.topics[0].partitions[0].error_code)


# Each row spoils the request further down the list of checks.
SPOILT: list[tuple[ErrorCode, dict[str, Any]]] = [
    (E.STALE_BROKER_EPOCH, {"broker_epoch": 1_000_000}),
    (E.UNKNOWN_TOPIC_ID, {"topic_id": identity(77)}),
    (E.UNKNOWN_TOPIC_OR_PARTITION, {"partition_index": 5}),
    (E.NOT_CONTROLLER, {"leader_epoch": 9}),
    (E.FENCED_LEADER_EPOCH, {"leader_epoch": -1}),
    (E.INVALID_REQUEST, {"requester": 1}),
    (E.INVALID_UPDATE_VERSION, {"partition_epoch": 0}),
    (E.INVALID_REQUEST, {"isr": [0, 3]}),
    (E.INVALID_REQUEST, {"isr": [1, 2]}),
    (E.INVALID_REQUEST, {"isr": [0, 1, 1]}),
    (E.INVALID_REQUEST, {"leader_recovery_state": 1}),
    (E.INELIGIBLE_REPLICA, {"broker_epochs": {2: 1_000_000}}),
]


@pytest.mark.parametrize(("expected", "spoil"), SPOILT)
def test_one_thing_wrong(expected: ErrorCode, spoil: dict[str, Any]) -> None:
    cluster = _cluster()
    before = cluster.partition("t")
    spoil = dict(spoil)
    requester, isr = spoil.pop("requester", 0), spoil.pop("isr", [0, 1, 2])
    assert _code(cluster, requester, isr, **spoil) is expected
    assert cluster.partition("t") == before


@pytest.mark.parametrize("first", range(len(SPOILT)))
@pytest.mark.parametrize("second", range(len(SPOILT)))
def test_of_two_things_wrong_the_earlier_check_speaks(first: int, second: int) -> None:
    earlier, later = sorted((first, second))
    expected, spoil = SPOILT[earlier]
    spoil = {**SPOILT[later][1], **spoil}  # where both touch one field, the earlier wins
    cluster = _cluster()
    requester, isr = spoil.pop("requester", 0), spoil.pop("isr", [0, 1, 2])
    code = _code(cluster, requester, isr, **spoil)
    # Two lies about one epoch can't both be told; then the later row alone is not contradicted.
    assert code is expected


def test_a_partition_epoch_from_the_future_says_that_we_are_behind() -> None:
    assert _code(_cluster(), 0, [0, 1, 2], partition_epoch=9) is E.NOT_CONTROLLER


@pytest.mark.parametrize("fate", ["fenced", "leaving", "gone", "restarted"])
def test_who_may_not_be_in_an_isr(fate: str) -> None:
    cluster = _cluster()
    epoch = cluster.epoch(2)
    epochs = {2: epoch}
    if fate == "fenced":
        cluster.die(2)
        cluster.advance(4000)
    elif fate == "leaving":
        cluster.beat(1, current_metadata_offset=0)  # holds the departure up
        cluster.beat(2, want_shut_down=True)
    elif fate == "restarted":  # KIP-903: a fetch from before its restart proposes it
        cluster.die(2)
        cluster.advance(4000)
        cluster.start(2)
        assert cluster.epoch(2) != epoch
    elif fate == "gone":
        del cluster.state.image.brokers[2]
    assert _code(cluster, 0, [0, 1, 2], broker_epochs=epochs) is E.INELIGIBLE_REPLICA


def test_an_unchecked_broker_epoch_is_taken() -> None:
    assert _code(_cluster(), 0, [0, 1, 2], broker_epochs={2: -1}) is E.NONE


def test_the_answer_says_what_the_partition_is_now() -> None:
    cluster = _cluster()
    response = cluster.alter(0, "t", 0, [0, 1, 2])
    answer = response.topics[0].partitions[0]
    assert answer.error_code == E.NONE
    assert (answer.leader_id, answer.leader_epoch, answer.partition_epoch) == (0, 0, 2)
    assert answer.isr == [0, 1, 2]
    partition = cluster.partition("t")
    assert (partition.isr, partition.partition_epoch, partition.leader_epoch) == ((0, 1, 2), 2, 0)


def test_asking_for_what_is_so_changes_nothing() -> None:
    cluster = _cluster()
    before = cluster.state.image.offset
    assert _code(cluster, 0, [0, 1]) is E.NONE
    assert cluster.state.image.offset == before


def test_a_recovering_leader_stays_alone_until_it_has_recovered() -> None:
    cluster = Cluster(unclean_leader_election_enable=True).start(0, 1, 2)
    cluster.create("t", [0, 1])
    cluster.alter(0, "t", 0, [0])
    cluster.die(0)
    cluster.advance(4000)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (1, (1,))
    assert partition.recovery_state is RecoveryState.RECOVERING
    cluster.start(0)
    assert _code(cluster, 1, [1, 0]) is E.INVALID_REQUEST
    recovered = int(RecoveryState.RECOVERED)
    assert _code(cluster, 1, [1], leader_recovery_state=recovered) is E.NONE
    assert cluster.partition("t").recovery_state is RecoveryState.RECOVERED
    assert _code(cluster, 1, [1, 0]) is E.NONE
    recovering = int(RecoveryState.RECOVERING)
    assert _code(cluster, 1, [1], leader_recovery_state=recovering) is E.INVALID_REQUEST
