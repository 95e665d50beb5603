"""Goal: the voters change only as KIP-853 allows. Method: tables, and random histories."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from holdfast.core.quorum.leader_view import ReplicaView
from holdfast.core.quorum.voter_changes import (
    BOOTSTRAP_OFFSET,
    LATELY_MS,
    VOTERS_MAX,
    Situation,
    VoterHistory,
    add_voter,
    remove_voter,
    update_voter,
    voters_of,
    voters_record,
)
from holdfast.core.quorum.voter_set import ReplicaKey, Voter, VoterSet
from holdfast.core.refusal import Refusal
from holdfast.wire.codec import decode, encode
from holdfast.wire.errors import ErrorCode
from holdfast.wire.records.control import VotersRecord

NOW_MS = 10_000_000
CLOSE = ReplicaView(ReplicaKey(3), 9, NOW_MS, NOW_MS - 5)


def voter(node: int, salt: int = 1) -> Voter:
    return Voter(node, f"h{node}", 9000 + node, bytes([salt]) + node.to_bytes(15, "big"))


def voters(*nodes: int) -> VoterSet:
    return VoterSet.of(voter(node) for node in nodes)


def situation(*nodes: int, version: int = 1, committed: int = 20) -> Situation:
    history = VoterHistory(VoterSet())
    history.version_appended(10, version)
    history.voters_appended(11, voters(*nodes))
    return Situation(history, committed, 9, NOW_MS)


def code(outcome: VoterSet | Refusal) -> ErrorCode:
    return outcome.code if isinstance(outcome, Refusal) else ErrorCode.NONE


def test_one_comes_one_goes_one_moves() -> None:
    assert add_voter(situation(1, 2), voter(3), CLOSE) == voters(1, 2, 3)
    assert remove_voter(situation(1, 2, 3), voter(2).key) == voters(1, 3)
    moved = voter(2)._replace(host="elsewhere")
    assert update_voter(situation(1, 2), moved) == VoterSet.of([voter(1), moved])


@pytest.mark.parametrize(
    ("fetched_ms", "caught_up_ms", "expected"),
    [
        (NOW_MS, -1, ErrorCode.REQUEST_TIMED_OUT),  # never had everything
        (NOW_MS - LATELY_MS - 1, 5, ErrorCode.REQUEST_TIMED_OUT),
        (NOW_MS - LATELY_MS, 5, ErrorCode.NONE),
    ],
)
def test_a_new_voter_must_have_caught_up_and_be_there(
    fetched_ms: int, caught_up_ms: int, expected: ErrorCode
) -> None:
    seen = ReplicaView(ReplicaKey(2), 9, fetched_ms, caught_up_ms)
    assert code(add_voter(situation(1), voter(2), seen)) is expected
    assert code(add_voter(situation(1), voter(2), None)) is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("committed", [9, 10, 11])
def test_one_change_at_a_time_and_only_in_an_epoch_that_committed(committed: int) -> None:
    """At 9 nothing of the epoch is committed; up to 11 the last set is not."""
    now = situation(1, 2, committed=committed)
    for outcome in (
        add_voter(now, voter(3), CLOSE),
        remove_voter(now, voter(1).key),
        update_voter(now, voter(1)),
    ):
        assert code(outcome) is ErrorCode.REQUEST_TIMED_OUT


def test_fixed_voters_stay() -> None:
    now = situation(1, 2, version=0)
    assert code(add_voter(now, voter(3), CLOSE)) is ErrorCode.UNSUPPORTED_VERSION
    assert code(remove_voter(now, voter(1).key)) is ErrorCode.UNSUPPORTED_VERSION


def test_refusals() -> None:
    now = situation(1, 2)
    assert code(add_voter(now, voter(2, salt=9), CLOSE)) is ErrorCode.DUPLICATE_VOTER
    assert code(add_voter(now, Voter(3, "h", 1), CLOSE)) is ErrorCode.INVALID_REQUEST
    assert code(remove_voter(now, voter(2, salt=9).key)) is ErrorCode.VOTER_NOT_FOUND
    assert code(remove_voter(now, ReplicaKey(3))) is ErrorCode.VOTER_NOT_FOUND
    assert code(remove_voter(situation(1), voter(1).key)) is ErrorCode.INVALID_REQUEST
    assert code(update_voter(now, voter(2, salt=9))) is ErrorCode.VOTER_NOT_FOUND
    full = situation(*range(VOTERS_MAX))
    assert code(add_voter(full, voter(99), CLOSE)) is ErrorCode.INVALID_REQUEST


def test_majorities_of_neighbouring_sets_overlap() -> None:
    """What makes one change at a time safe: no two majorities of old and new are disjoint."""
    for size in range(1, 6):
        old = situation(*range(size))
        changed = [add_voter(old, voter(size), CLOSE)]
        if size > 1:
            changed.append(remove_voter(old, voter(0).key))
        for new in changed:
            assert isinstance(new, VoterSet)
            before = old.history.latest
            for one in combinations(before.ids, before.majority):
                for other in combinations(new.ids, new.majority):
                    assert set(one) & set(other)


# --- history ------------------------------------------------------------------------------------


def test_a_set_counts_when_appended_and_no_longer_when_truncated() -> None:
    history = VoterHistory(voters(1))
    assert history.latest_offset == BOOTSTRAP_OFFSET
    history.version_appended(4, 1)
    history.voters_appended(5, voters(1, 2))
    history.voters_appended(8, voters(1, 2, 3))
    assert history.latest == voters(1, 2, 3)
    assert [history.at(end) for end in (5, 6, 8, 9)] == [
        voters(1), voters(1, 2), voters(1, 2), voters(1, 2, 3),
    ]  # fmt: skip
    assert not history.truncated(9)
    assert history.truncated(8)
    assert history.latest == voters(1, 2)
    assert history.truncated(4)
    assert (history.latest, history.kraft_version) == (voters(1), 0)


def test_a_set_from_a_file_is_to_be_written_down_once() -> None:
    history = VoterHistory(VoterSet())
    assert not history.needs_writing
    history.loaded(BOOTSTRAP_OFFSET, 1, voters(1))
    assert history.needs_writing
    history.version_appended(1, 1)
    history.voters_appended(2, voters(1))
    assert not history.needs_writing
    assert not history.truncated(1), "the set from the file is in force again: the same one"
    assert history.latest == voters(1)
    assert history.kraft_version == 1
    assert history.needs_writing


@pytest.mark.parametrize("seed", range(20))
def test_what_is_committed_may_be_forgotten(seed: int) -> None:
    """Beside a history that forgets nothing."""
    draw = random.Random(seed)
    lean, full = VoterHistory(voters(0)), VoterHistory(voters(0))
    end, committed = 0, 0
    for _ in range(200):
        match draw.randrange(4):
            case 0 | 1:
                end += draw.randint(1, 3)
                found = voters(*draw.sample(range(6), draw.randint(1, 5)))
                for history in (lean, full):
                    history.voters_appended(end - 1, found)
            case 2:
                committed = draw.randint(committed, end)
                lean.committed(committed)
            case 3:
                end = draw.randint(committed, end)
                assert lean.truncated(end) == full.truncated(end)
        assert lean.latest == full.latest
        assert lean.latest_offset == full.latest_offset
        for at in range(committed, end + 1):
            assert lean.at(at) == full.at(at)


def test_records() -> None:
    record = voters_record(voters(3, 1), "CONTROLLER")
    read = decode(VotersRecord, 0, encode(record, 0))
    assert voters_of(read, ["CONTROLLER"]) == voters(1, 3)
    assert voters_of(read, ["OTHER"]) == voters(1, 3)
