"""Goal: a shard holds groups of several kinds, one at a time, and does its work in bounded parts.

Method: cases, with a kind of group made up for it. Seen to fail: with an old record that comes back
behind a group's end, with a group that is not asked what it wants after a decision, with all groups
looked at in one turn, and with a call that is remembered although it was answered.

Rules: classic-groups.md#kinds, classic-groups.md#sessions, group-records.md#unknown-types.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.group.shard_kit import Coordinator, subscription

from holdfast.core.deadlines import NEVER_MS
from holdfast.core.group.any_group import AnyGroup, Caller
from holdfast.core.group.classic.classic_group import ClassicGroup, ClassicGroups
from holdfast.core.group.classic.classic_state import MOVES, GroupState
from holdfast.core.group.group_directory import GroupDirectory
from holdfast.core.group.group_settings import GroupSettings
from holdfast.core.group.shard import GroupShard
from holdfast.core.group.shard_machine import GROUPS_PER_TURN
from holdfast.core.log_machine import Decision
from holdfast.wire.errors import ErrorCode
from holdfast.wire.records.group_tables import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from holdfast.wire.schema import Struct
from holdfast.wire.uuids import NULL_UUID

CLASSIC_KEY = GroupMetadataKey(group="g")
MODERN_KEY = ConsumerGroupMetadataKey(group_id="g")
MEMBER_KEY = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
MODERN = ConsumerGroupMetadataValue(epoch=1)
OFFSET_KEY = OffsetCommitKey(group="g", topic="t", partition=0)
OFFSET = OffsetCommitValue(offset=5)


class ModernGroup(ClassicGroup):
    """A group of another kind, which is empty unless it is told otherwise."""

    inhabited = False

    @property
    def kind(self) -> str:
        return "consumer"

    @property
    def is_empty(self) -> bool:
        return not self.inhabited

    def replay(self, key: Struct, value: Struct | None) -> None:
        self.inhabited = isinstance(key, ConsumerGroupMemberMetadataKey) and value is not None

    def tombstones(self, decision: Decision) -> None:
        decision.append(ConsumerGroupMetadataKey(group_id=self.group_id), None)


class ModernGroups(ClassicGroups):
    name = "consumer"
    key_types = (ConsumerGroupMetadataKey, ConsumerGroupMemberMetadataKey)
    existence_type = ConsumerGroupMetadataKey

    def group_id_of(self, key: Struct) -> str:
        assert isinstance(key, (ConsumerGroupMetadataKey, ConsumerGroupMemberMetadataKey))
        return key.group_id

    def make(self, group_id: str) -> ModernGroup:
        return ModernGroup(group_id, self._settings, self._new_id, self._memory)


def kinds() -> list[ClassicGroups]:
    made: Callable[[], str] = iter("abcdefgh").__next__
    return [kind(GroupSettings(), made) for kind in (ClassicGroups, ModernGroups)]


class BothKinds(Coordinator):
    def load(self) -> GroupShard:
        shard = GroupShard(self.settings, self._new_id, kinds()[1:])
        shard.loaded(self.now_ms)
        return shard


def found(directory: GroupDirectory) -> AnyGroup | None:
    return directory.get("g")


# -- kinds -------------------------------------------------------------------------------------


def test_a_group_has_the_kind_of_its_records() -> None:
    directory = GroupDirectory(kinds())
    directory.replay(MODERN_KEY, MODERN)
    assert isinstance(found(directory), ModernGroup)
    directory.replay(MODERN_KEY, None)
    assert found(directory) is None
    directory.replay(MEMBER_KEY, None)
    assert found(directory) is None, "what removes makes nothing"
    directory.replay(CLASSIC_KEY, GroupMetadataValue(generation=1))
    assert type(found(directory)) is ClassicGroup


def test_a_record_of_the_kind_before_changes_nothing() -> None:
    directory = GroupDirectory(kinds())
    directory.replay(MODERN_KEY, MODERN)
    directory.replay(MEMBER_KEY, MODERN)
    directory.replay(CLASSIC_KEY, None)
    directory.replay(CLASSIC_KEY, GroupMetadataValue(generation=1))
    assert isinstance(found(directory), ModernGroup), "it has members"
    directory.replay(MEMBER_KEY, None)
    assert isinstance(found(directory), ModernGroup), "a member went, and not the group"
    directory.replay(CLASSIC_KEY, GroupMetadataValue(generation=1))
    assert type(found(directory)) is ClassicGroup, "an empty group gives way"
    directory.replay(MODERN_KEY, None)
    assert type(found(directory)) is ClassicGroup


def test_offsets_alone_make_a_classic_group_that_gives_way() -> None:
    coordinator = BothKinds()
    shard = coordinator.shard
    shard.replay(OFFSET_KEY, OFFSET)
    shard.loaded(coordinator.now_ms)
    assert [each.group_type for each in coordinator.list_groups()] == ["classic"]
    shard.replay(MODERN_KEY, MODERN)
    shard.loaded(coordinator.now_ms)
    assert [each.group_type for each in coordinator.list_groups([], ["Consumer"])] == ["consumer"]
    assert coordinator.offsets("g") == {("t", 0): 5}
    described = coordinator.describe("g")
    assert described.error_message == "Group g is not a classic group."
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_who_joins_an_empty_group_of_another_kind_makes_a_classic_one() -> None:
    coordinator = BothKinds()
    coordinator.shard.replay(MODERN_KEY, MODERN)
    coordinator.shard.loaded(coordinator.now_ms)
    response = coordinator.answers[coordinator.join("g", "somebody")]
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not coordinator.log
    coordinator.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    response = coordinator.answers[coordinator.join("g")]
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [each.group_type for each in coordinator.list_groups()] == ["consumer"]
    coordinator.refusal = None
    response = coordinator.answers[coordinator.join("g")]
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert [each.group_type for each in coordinator.list_groups()] == ["classic"]
    assert len(coordinator.log) == 2


def test_who_joins_a_group_of_another_kind_that_has_members_asks_that() -> None:
    coordinator = BothKinds()
    coordinator.shard.replay(MODERN_KEY, MODERN)
    coordinator.shard.replay(MEMBER_KEY, MODERN)
    coordinator.shard.loaded(coordinator.now_ms)
    coordinator.join("g")
    assert [each.group_type for each in coordinator.list_groups()] == ["consumer"]
    assert not coordinator.log


# -- what is loaded ----------------------------------------------------------------------------


def test_the_last_record_of_a_group_counts_and_offsets_of_old_logs_too() -> None:
    coordinator = Coordinator()
    shard = GroupShard(coordinator.settings, str)
    member = GroupMetadataMember(
        member_id="m",
        client_id="c",
        client_host="/h",
        rebalance_timeout=-1,
        session_timeout=7000,
        subscription=subscription("t"),
        assignment=b"all",
    )
    for generation in (1, 2):
        shard.replay(
            CLASSIC_KEY,
            GroupMetadataValue(
                protocol_type="consumer",
                generation=generation,
                protocol="range",
                leader="m",
                members=[member],
            ),
        )
    shard.loaded(coordinator.now_ms)
    coordinator.shard = shard
    kept = coordinator.inner("g")
    assert (kept.generation, kept.state) == (2, GroupState.STABLE)
    assert kept.roster.members["m"].rebalance_timeout_ms == 7000, "old records have the session's"
    assert kept.subscribes_to("t")
    assert not kept.subscribes_to("u")
    assert shard.deadline_ms == coordinator.now_ms + 7000
    shard.replay(CLASSIC_KEY, None)
    assert coordinator.state("g") == "Dead"


def test_every_state_has_its_moves() -> None:
    reached = {state for moves in MOVES.values() for state in moves}
    assert reached == set(GroupState)
    assert MOVES[GroupState.DEAD] == frozenset()


# -- bounded work ------------------------------------------------------------------------------


def test_a_turn_looks_at_some_groups_and_the_rest_are_due_at_once() -> None:
    coordinator = Coordinator()
    count = 2 * GROUPS_PER_TURN + 1
    for index in range(count):
        coordinator.join(f"g{index}", session_ms=6000)
    coordinator.now_ms += 6000
    shard, turns = coordinator.shard, 0
    while shard.deadline_ms <= coordinator.now_ms:
        shard.apply(shard.due(coordinator.now_ms))
        turns += 1
    assert turns == 3
    assert all(not coordinator.inner(f"g{index}").roster.pending for index in range(count))


def test_a_group_that_was_deleted_is_not_due() -> None:
    coordinator = Coordinator()
    coordinator.join("g")
    assert coordinator.delete_group("g") is ErrorCode.NONE
    coordinator.pass_time(60_000)
    assert coordinator.shard.deadline_ms == NEVER_MS


def test_a_record_ends_a_turn() -> None:
    coordinator = Coordinator()
    coordinator.stable("g", "a")
    coordinator.stable("h", "b")
    coordinator.commit("i", {("t", 0): 1})
    coordinator.shard.topics_deleted([("t", NULL_UUID)], coordinator.now_ms)
    coordinator.now_ms += 10_000
    decision = coordinator.shard.due(coordinator.now_ms)
    assert len(decision.records) == 1
    assert isinstance(decision.records[0][0], GroupMetadataKey)
    assert coordinator.shard.deadline_ms <= coordinator.now_ms
    coordinator.perform(decision)
    coordinator.run_due()
    assert {each.group_state for each in coordinator.list_groups()} == {"Empty"}


def test_calls_are_remembered_until_they_are_answered() -> None:
    coordinator = Coordinator()
    a, b = coordinator.stable("g", "a", "b")
    coordinator.join("g", a)
    assert list(coordinator.shard._groups._parked) == [coordinator.calls]
    coordinator.join("g", b)
    waits = coordinator.sync("g", b, 3)
    assert list(coordinator.shard._groups._parked) == [waits]
    coordinator.shard.forget(waits)
    coordinator.shard.forget(waits)
    coordinator.shard.forget(999)
    assert not coordinator.shard._groups._parked
    coordinator.sync("g", a, 3, {a: b"0", b: b"1"})
    assert waits not in coordinator.answers
    assert coordinator.beat("g", b, 3) is ErrorCode.NONE


def test_a_shard_that_is_given_up_answers_all_that_wait() -> None:
    coordinator = Coordinator()
    a, b = coordinator.stable("g", "a", "b")
    coordinator.join("g", a)
    coordinator.join("g", b)
    sync = coordinator.sync("g", b, 3)
    (c,) = coordinator.stable("h", "c")
    _, join = coordinator.new_member("h", "d")
    given = coordinator.shard.resign(ErrorCode.NOT_COORDINATOR)
    answers = {each.call: each.response for each in given}
    assert answers.keys() == {sync, join}
    assert {each.error_code for each in answers.values()} == {ErrorCode.NOT_COORDINATOR}
    assert answers[join].member_id != c


def test_an_open_decision_comes_first() -> None:
    coordinator = Coordinator()
    coordinator.commit("g", {("t", 0): 1})
    shard, now_ms = coordinator.shard, coordinator.now_ms
    decision = shard.delete_group(Caller(100, 2), "g", now_ms)
    with pytest.raises(AssertionError, match="open decision"):
        shard.describe_group(Caller(101, 6), "g", now_ms)
    assert coordinator.shard._offsets.count == 1, "nothing is true yet"
    shard.apply(decision)
    assert coordinator.state("g") == "Dead"
