"""Goal: whatever is on its way when the log takes nothing, its client is told what Kafka says.

Method: each request that appends, with each answer of the log. Then the same again with a log that
takes it, which must work. Seen to fail: with the log's own code told as it is, with a commit that
is told what members are, and with each refusal left out in turn.

Rules: classic-groups.md#refused-appends.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.group.shard_kit import Coordinator

from holdfast.core.group.append_errors import append_error, commit_append_error
from holdfast.wire.errors import ErrorCode

E = ErrorCode
MAPPED = {
    E.NOT_ENOUGH_REPLICAS: E.COORDINATOR_NOT_AVAILABLE,
    E.UNKNOWN_TOPIC_OR_PARTITION: E.COORDINATOR_NOT_AVAILABLE,
    E.REQUEST_TIMED_OUT: E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_LEADER_OR_FOLLOWER: E.NOT_COORDINATOR,
    E.KAFKA_STORAGE_ERROR: E.NOT_COORDINATOR,
    E.MESSAGE_TOO_LARGE: E.UNKNOWN_SERVER_ERROR,
    E.RECORD_LIST_TOO_LARGE: E.UNKNOWN_SERVER_ERROR,
    E.INVALID_FETCH_SIZE: E.UNKNOWN_SERVER_ERROR,
    E.INVALID_PRODUCER_EPOCH: E.INVALID_PRODUCER_EPOCH,
}


def first_join(coordinator: Coordinator) -> int:
    code: int = coordinator.answers[coordinator.join("new", version=3)].error_code
    return code


def leader_syncs(coordinator: Coordinator) -> int:
    (a,) = list(coordinator.inner("g").roster.members)
    if coordinator.state("g") != "CompletingRebalance":
        coordinator.join("g", a)
    generation = coordinator.generation("g")
    code: int = coordinator.answers[coordinator.sync("g", a, generation)].error_code
    return code


def static_member_comes_back(coordinator: Coordinator) -> int:
    code: int = coordinator.answers[coordinator.join("s", instance="i")].error_code
    return code


def last_one_leaves(coordinator: Coordinator) -> int:
    members = list(coordinator.inner("g").roster.members)
    if not members:  # it has left, whatever the log says
        return ErrorCode.NONE
    response = coordinator.leave("g", (members[0], None))
    code: int = response.error_code or response.members[0].error_code
    return code


def commit(coordinator: Coordinator) -> int:
    return coordinator.commit("simple", {("t", 1): 7})[("t", 1)]


def delete_offset(coordinator: Coordinator) -> int:
    response = coordinator.delete_offsets("simple", ("t", 0))
    code: int = response.error_code or response.topics[0].partitions[0].error_code
    return code


def delete_group(coordinator: Coordinator) -> int:
    return coordinator.delete_group("simple")


STEPS: tuple[Callable[[Coordinator], int], ...] = (
    first_join,
    leader_syncs,
    static_member_comes_back,
    last_one_leaves,
    commit,
    delete_offset,
    delete_group,
)


@pytest.mark.parametrize("refusal", MAPPED, ids=lambda code: code.name)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_the_client_is_told_and_may_try_again(
    step: Callable[[Coordinator], int], refusal: ErrorCode
) -> None:
    coordinator = Coordinator()
    coordinator.stable("g", "a")
    (a,) = list(coordinator.inner("g").roster.members)
    coordinator.join("g", a)
    static = coordinator.answers[coordinator.join("s", instance="i")].member_id
    coordinator.sync("s", static, 1, {static: b"all"})
    coordinator.commit("simple", {("t", 0): 1})
    log, coordinator.refusal = list(coordinator.log), refusal
    expected = commit_append_error(refusal) if step is commit else MAPPED[refusal]
    assert step(coordinator) == expected
    assert coordinator.log == log
    coordinator.refusal = None
    assert step(coordinator) == ErrorCode.NONE


def test_what_the_log_says_is_told_in_the_words_of_a_coordinator() -> None:
    for code, told in MAPPED.items():
        assert append_error(code) is told
        too_large = code in (E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE)
        assert commit_append_error(code) is (E.INVALID_COMMIT_OFFSET_SIZE if too_large else told)


def test_a_refused_assignment_is_told_to_all_and_the_group_rebalances() -> None:
    coordinator = Coordinator()
    a, b = coordinator.stable("g", "a", "b")
    coordinator.join("g", a)
    coordinator.join("g", b)
    waits = coordinator.sync("g", b, 3)
    coordinator.refusal = E.NOT_ENOUGH_REPLICAS
    leader = coordinator.sync("g", a, 3, {a: b"0", b: b"1"})
    for call in (waits, leader):
        assert coordinator.answers[call].error_code == E.COORDINATOR_NOT_AVAILABLE
        assert coordinator.answers[call].assignment == b""
    assert coordinator.beat("g", b, 3) is E.REBALANCE_IN_PROGRESS
    coordinator.refusal = None
    coordinator.pass_time(60_000)  # nobody came back: their sessions have ended
    assert coordinator.state("g") == "Empty"


def test_an_expiry_that_is_refused_comes_again_with_the_next_check() -> None:
    coordinator = Coordinator(offsets_retention_ms=1000, offsets_retention_check_ms=600)
    coordinator.commit("g", {("t", 0): 1})
    coordinator.refusal = E.NOT_ENOUGH_REPLICAS
    coordinator.pass_time(1799)
    assert coordinator.offsets("g")
    coordinator.refusal = None
    coordinator.pass_time(1)
    assert not coordinator.offsets("g")
