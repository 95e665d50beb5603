"""Goal: answers are those of each version, and what members say of themselves is kept and bounded.

Method: cases; every answer goes through its version's codec. Seen to fail: with null for no
protocol before version 7, with the session's time for the rebalance's, with the old leader's id
from version 9 on, with LeaveGroup's list before version 3, and without each bound.

Rules: classic-groups.md#answers, classic-groups.md#joining, classic-groups.md#leaving,
classic-groups.md#bounds, classic-groups.md#describing, classic-groups.md#listing.
"""

from __future__ import annotations

import pytest
from tests.group.shard_kit import Coordinator, subscription

from holdfast.core.group.classic.classic_joining import ID_BYTES_MAX, NEW_MEMBER_JOIN_MS
from holdfast.wire.errors import ErrorCode


@pytest.mark.parametrize("version", range(10))
def test_each_version_of_join_group_gets_a_member_in(version: int) -> None:
    coordinator = Coordinator()
    call = coordinator.join("g", version=version, session_ms=7000, rebalance_ms=9000)
    response = coordinator.answers[call]
    if version >= 4:
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert response.protocol_name == (None if version >= 7 else "")
        call = coordinator.join("g", response.member_id, version=version, session_ms=7000)
        response = coordinator.answers[call]
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 1)
    assert response.leader == response.member_id == "c-1"
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    (member,) = response.members
    assert (member.member_id, member.metadata) == ("c-1", subscription("t"))
    kept = coordinator.inner("g").roster.members["c-1"]
    expected = 7000 if version == 0 else 9000 if version < 4 else 60_000
    assert (kept.session_timeout_ms, kept.rebalance_timeout_ms) == (7000, expected)


@pytest.mark.parametrize("version", [2, 6, 7, 9])
def test_an_error_has_no_protocol_as_its_version_says_it(version: int) -> None:
    coordinator = Coordinator()
    coordinator.stable("g", "a")
    call = coordinator.join("g", "nobody", version=version)
    response = coordinator.answers[call]
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert response.protocol_name == (None if version >= 7 else "")
    assert (response.member_id, response.leader, response.generation_id) == ("nobody", "", -1)


@pytest.mark.parametrize(
    ("session_ms", "code"),
    [
        (5999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6000, ErrorCode.MEMBER_ID_REQUIRED),
        (1_800_000, ErrorCode.MEMBER_ID_REQUIRED),
        (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
        (-1, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_sessions_have_bounds(session_ms: int, code: ErrorCode) -> None:
    coordinator = Coordinator()
    response = coordinator.answers[coordinator.join("g", session_ms=session_ms)]
    assert response.error_code == code
    assert bool(coordinator.log) == (code is ErrorCode.MEMBER_ID_REQUIRED)


def test_a_group_has_a_name() -> None:
    coordinator = Coordinator()
    answers = coordinator.answers
    assert answers[coordinator.join("", "m")].error_code == ErrorCode.INVALID_GROUP_ID
    assert answers[coordinator.join("", "m")].member_id == "m"
    assert answers[coordinator.sync("", "m", 1)].error_code == ErrorCode.INVALID_GROUP_ID
    assert coordinator.beat("", "m", 1) is ErrorCode.INVALID_GROUP_ID
    assert coordinator.leave("", ("m", None)).error_code == ErrorCode.INVALID_GROUP_ID
    assert coordinator.delete_offsets("", ("t", 0)).error_code == ErrorCode.INVALID_GROUP_ID
    assert not coordinator.log
    # Offsets alone may be of a group without one: old consumers had none.
    assert coordinator.commit("", {("t", 0): 1}) == {("t", 0): ErrorCode.NONE}
    assert coordinator.offsets("") == {("t", 0): 1}
    assert coordinator.delete_group("") is ErrorCode.NONE


def test_an_id_that_was_given_out_is_not_for_an_instance() -> None:
    coordinator = Coordinator()
    member_id = coordinator.answers[coordinator.join("g")].member_id
    response = coordinator.answers[coordinator.join("g", member_id, instance="i")]
    assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")


def test_a_member_that_never_joined_is_waited_for_five_minutes() -> None:
    coordinator = Coordinator()
    a, b = coordinator.stable("g", "a", "b", session_ms=1_800_000, rebalance_ms=1_800_000)
    call = coordinator.join("g", version=3, session_ms=6000, rebalance_ms=6000)
    coordinator.pass_time(NEW_MEMBER_JOIN_MS - 1)
    assert call not in coordinator.answers
    coordinator.pass_time(1)
    assert coordinator.answers[call].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.answers[call].member_id == ""
    assert list(coordinator.inner("g").roster.members) == [a, b]


def test_a_member_that_asks_twice_is_answered_twice() -> None:
    coordinator = Coordinator()
    a, b = coordinator.stable("g", "a", "b")
    first, second = (coordinator.join("g", a) for _ in range(2))
    assert coordinator.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.answers[first].member_id == a
    coordinator.join("g", b)
    assert coordinator.answers[second].generation_id == 3
    first, second = (coordinator.sync("g", b, 3) for _ in range(2))
    assert coordinator.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.sync("g", a, 3, {b: b"1"})
    assert coordinator.answers[second].assignment == b"1"


def test_other_preferences_are_news() -> None:
    coordinator = Coordinator()
    some = {"range": b"", "rr": b""}
    _, b = coordinator.stable("g", "a", "b", protocols=some)
    assert coordinator.join("g", b, protocols=some) in coordinator.answers
    assert (
        coordinator.join("g", b, protocols=dict(reversed(some.items()))) not in coordinator.answers
    )
    assert coordinator.state("g") == "PreparingRebalance"


def test_who_waits_for_the_leader_is_told_that_another_rebalance_began() -> None:
    coordinator = Coordinator()
    a, b = coordinator.stable("g", "a", "b")
    coordinator.join("g", a)
    coordinator.join("g", b)
    waits = coordinator.sync("g", b, 3)
    coordinator.new_member("g", "c")
    assert coordinator.answers[waits].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_session_does_not_end_while_the_member_waits_and_goes_on_behind_it() -> None:
    coordinator = Coordinator()
    a, b = coordinator.stable("g", "a", "b", session_ms=6000, rebalance_ms=30_000)
    waits = coordinator.join("g", a, session_ms=6000, rebalance_ms=30_000)
    for _ in range(5):  # b takes its time to rejoin
        coordinator.pass_time(5000)
        assert coordinator.beat("g", b, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.join("g", b, session_ms=6000, rebalance_ms=30_000)
    assert coordinator.answers[waits].generation_id == 3
    waits = coordinator.sync("g", b, 3)
    for _ in range(4):  # and a to assign
        coordinator.pass_time(5000)
        assert coordinator.beat("g", a, 3) is ErrorCode.NONE
    coordinator.sync("g", a, 3, {b: b"1"})
    assert coordinator.answers[waits].assignment == b"1"
    coordinator.pass_time(5000)
    assert coordinator.beat("g", a, 3) is ErrorCode.NONE
    coordinator.pass_time(1000)
    assert coordinator.beat("g", b, 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_initial_delay_ends_when_nobody_came_during_a_step() -> None:
    coordinator = Coordinator(initial_rebalance_delay_ms=3000)
    _, first = coordinator.new_member("g", "a")
    coordinator.pass_time(1000)
    coordinator.new_member("g", "b")
    coordinator.pass_time(4999)
    assert first not in coordinator.answers
    coordinator.pass_time(1)
    assert coordinator.answers[first].generation_id == 1


def test_a_group_becomes_empty_once() -> None:
    coordinator = Coordinator()
    a, b = coordinator.stable("g", "a", "b", session_ms=1_800_000, rebalance_ms=6000)
    coordinator.leave("g", (b, None))
    coordinator.join("g", session_ms=6000)  # its id ends with the time to rejoin
    before = len(coordinator.log)
    coordinator.pass_time(6000)
    assert coordinator.beat("g", a, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.state("g") == "Empty"
    assert len(coordinator.log) == before + 1


def test_a_new_life_of_the_last_that_did_not_sync_ends_the_wait() -> None:
    coordinator = Coordinator()
    rebalance_ms, session_ms = 6000, 1_800_000
    members = []
    for instance in "ij":
        call = coordinator.join("g", instance=instance, rebalance_ms=6000, session_ms=session_ms)
        members.append(call)
    leader = next(iter(coordinator.inner("g").roster.members))
    coordinator.join("g", leader, instance="i", rebalance_ms=rebalance_ms, session_ms=session_ms)
    coordinator.sync("g", leader, 2, {}, instance="i")
    coordinator.join("g", instance="j", rebalance_ms=rebalance_ms, session_ms=session_ms)
    coordinator.pass_time(60_000)
    assert coordinator.state("g") == "Stable"


# -- leaving -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_each_version_of_leave_group(version: int) -> None:
    coordinator = Coordinator()
    a, _ = coordinator.stable("g", "a", "b")
    for group, member_id, code in (
        ("g", "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ("elsewhere", a, ErrorCode.UNKNOWN_MEMBER_ID),
        ("g", a, ErrorCode.NONE),
    ):
        response = coordinator.leave(group, (member_id, None), version=version)
        if version < 3:
            assert (response.error_code, response.members) == (code, [])
        else:
            (result,) = response.members
            assert (response.error_code, result.error_code) == (ErrorCode.NONE, code)
            assert (result.member_id, result.group_instance_id) == (member_id, None)


def test_several_members_leave_at_once() -> None:
    coordinator = Coordinator()
    a, b = coordinator.stable("g", "a", "b")
    static = coordinator.join("g", instance="i")
    pending = coordinator.answers[coordinator.join("g")].member_id
    response = coordinator.leave(
        "g", (a, None), (a, None), ("", "i"), ("", "j"), ("", None), (b, "i"), (pending, None)
    )
    codes = [ErrorCode(each.error_code).name for each in response.members]
    unknown = "UNKNOWN_MEMBER_ID"
    assert codes == ["NONE", unknown, "NONE", unknown, unknown, unknown, "NONE"]
    assert coordinator.answers[static].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    roster = coordinator.inner("g").roster
    assert (list(roster.members), list(roster.pending)) == ([b], [])


def test_a_member_whose_sync_waits_leaves() -> None:
    coordinator = Coordinator()
    a, b = coordinator.stable("g", "a", "b")
    coordinator.join("g", a)
    coordinator.join("g", b)
    waits = coordinator.sync("g", b, 3)
    coordinator.leave("g", (b, None))
    assert coordinator.answers[waits].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_assigns_to_members_only() -> None:
    coordinator = Coordinator()
    (a,) = coordinator.stable("g", "a")
    b, _ = coordinator.new_member("g", "b")
    coordinator.join("g", a)
    waits = coordinator.sync("g", b, 2)
    coordinator.sync("g", a, 2, {"nobody": b"x", a: b"0"})
    assert coordinator.answers[waits].assignment == b""
    coordinator.move()
    assigned = {
        each.member_id: each.member_assignment for each in coordinator.describe("g").members
    }
    assert assigned == {a: b"0", b: b""}


# -- bounds ------------------------------------------------------------------------------------


def test_what_members_say_has_a_bound() -> None:
    coordinator = Coordinator(group_bytes_max=6000)
    (a,) = coordinator.stable("g", "a")
    code = ErrorCode.GROUP_MAX_SIZE_REACHED
    large = {"range": bytes(5900)}
    assert coordinator.answers[coordinator.join("g", protocols=large)].error_code == code
    assert coordinator.answers[coordinator.join("g", a, protocols=large)].error_code == code
    assert coordinator.state("g") == "Stable", "who said too much is still a member"
    many = {f"protocol {count}": b"" for count in range(60)}
    assert coordinator.answers[coordinator.join("g", protocols=many)].error_code == code
    codes = [coordinator.answers[coordinator.join("g")].error_code for _ in range(10)]
    assert codes[0] == ErrorCode.MEMBER_ID_REQUIRED
    assert codes[-1] == code, "ids that are given out count too"
    coordinator.pass_time(9000)
    coordinator.beat("g", a, 1)
    coordinator.pass_time(2000)
    assert coordinator.answers[coordinator.join("g")].error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_who_says_as_much_as_before_has_room() -> None:
    coordinator = Coordinator(group_bytes_max=6_000)
    large = {"range": bytes(3000)}
    (a,) = coordinator.stable("g", "a", protocols=large)
    again = coordinator.answers[coordinator.join("g", a, protocols=large)]
    assert (again.error_code, again.generation_id) == (ErrorCode.NONE, 2)


def test_an_id_that_the_log_could_not_hold_is_not_given_out() -> None:
    """An instance's id may be as long as a text can be, and a UUID would come behind it."""
    coordinator = Coordinator()
    uuid = "-1"  # in the tests
    longest = "i" * (ID_BYTES_MAX - len(uuid))
    taken = coordinator.answers[coordinator.join("g", instance=longest)]
    assert taken.error_code == ErrorCode.NONE
    assert coordinator.sync("g", taken.member_id, 1, {taken.member_id: b""}) in coordinator.answers
    for instance in (longest + "ii", "\N{GREEK SMALL LETTER ALPHA}" * (ID_BYTES_MAX // 2)):
        refused = coordinator.answers[coordinator.join("h", instance=instance)]
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert refused.member_id == ""
    assert not coordinator.inner("h").roster.members


def test_a_shard_has_so_many_groups() -> None:
    coordinator = Coordinator(groups_max=2)
    coordinator.join("g")
    assert coordinator.commit("h", {("t", 0): 1}) == {("t", 0): ErrorCode.NONE}
    response = coordinator.answers[coordinator.join("i")]
    assert response.error_code == ErrorCode.POLICY_VIOLATION
    assert coordinator.commit("i", {("t", 0): 1}) == {("t", 0): ErrorCode.POLICY_VIOLATION}
    assert coordinator.commit("h", {("t", 0): 2}) == {("t", 0): ErrorCode.NONE}
    assert coordinator.state("i") == "Dead"


def test_a_group_that_is_too_large_when_it_is_loaded_rebalances() -> None:
    coordinator = Coordinator()
    members = coordinator.stable("g", "a", "b", "c")
    kept = coordinator.settings
    coordinator.settings = type(kept)(initial_rebalance_delay_ms=0, members_max=2)
    coordinator.move()
    assert coordinator.state("g") == "PreparingRebalance"
    assert coordinator.beat("g", members[0], 3 - 1) is not ErrorCode.UNKNOWN_MEMBER_ID
    calls = [coordinator.join("g", each) for each in members]
    assert coordinator.answers[calls[2]].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert coordinator.answers[calls[0]].error_code == ErrorCode.NONE
    assert list(coordinator.inner("g").roster.members) == members[:2]


# -- describing and listing --------------------------------------------------------------------


def test_a_group_is_described() -> None:
    coordinator = Coordinator()
    a, b = coordinator.stable("g", "a", "b")
    described = coordinator.describe("g")
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    first = described.members[0]
    assert (first.member_id, first.client_id, first.client_host) == (a, "a", "/127.0.0.1")
    assert (first.member_metadata, first.member_assignment) == (subscription("t"), b"a")
    coordinator.leave("g", (b, None))
    described = coordinator.describe("g")
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert described.members[0].member_metadata == b""
    assert described.members[0].member_assignment == b"a"


def test_a_group_that_is_not_there_is_dead() -> None:
    coordinator = Coordinator()
    described = coordinator.describe("g", version=5)
    assert (described.error_code, described.error_message) == (ErrorCode.NONE, None)
    described = coordinator.describe("g", version=6)
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert described.error_message == "Group g not found."
    assert described.group_state == "Dead"


def test_groups_are_listed_by_state_and_type() -> None:
    coordinator = Coordinator()
    coordinator.stable("stable", "a")
    coordinator.commit("simple", {("t", 0): 1})
    listed = {each.group_id: each for each in coordinator.list_groups()}
    assert (listed["stable"].protocol_type, listed["simple"].protocol_type) == ("consumer", "")
    assert {each.group_type for each in listed.values()} == {"classic"}
    for states, types, expected in (
        ([" STABLE "], [], ["stable"]),
        (["Empty", "stable"], ["CLASSIC"], ["stable", "simple"]),
        (["Nonsense"], [], []),
        ([], ["consumer"], []),
    ):
        assert [each.group_id for each in coordinator.list_groups(states, types)] == expected
