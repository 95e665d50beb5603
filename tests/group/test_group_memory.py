"""What all groups of a broker take has a bound, whichever shards they are in.

Goal: what is told is what is there, to the byte (`shard_checks`, behind each step of the others);
at the bound nothing is added, what is there goes on, and room is found again. Method: shards that
share what they may take.
Rules: classic-groups.md#bounds, committed-offsets.md#bounds.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.group.consumer_kit import Coordinator as Consumers
from tests.group.shard_kit import Coordinator, subscription

from holdfast.core.group.group_memory import GROUP_OVERHEAD_BYTES, GroupMemory
from holdfast.core.group.shard import GroupShard
from holdfast.wire.errors import ErrorCode

E = ErrorCode
OK = {("t", 0): E.NONE}
LARGE = {"range": subscription("t") + bytes(10_000)}


class Sharing(Coordinator):
    """A shard beside others of the same broker."""

    def __init__(self, memory: GroupMemory, **settings: Any) -> None:
        self.memory = memory
        super().__init__(**settings)

    def load(self) -> GroupShard:
        shard = GroupShard(self.settings, self._new_id, memory=self.memory)
        shard.loaded(self.now_ms)
        return shard


def fill(memory: GroupMemory) -> None:
    """Let nothing more be added."""
    memory.bytes_max = memory.bytes


def test_a_broker_that_is_full_takes_nothing_more_of_anybody() -> None:
    coordinator = Coordinator()
    memory = coordinator.shard._memory
    (a,) = coordinator.stable("g", "a")
    assert coordinator.commit("h", {("t", 0): 1}) == OK
    fill(memory)
    assert coordinator.answers[coordinator.join("g")].error_code == E.GROUP_MAX_SIZE_REACHED
    assert coordinator.answers[coordinator.join("new")].error_code == E.POLICY_VIOLATION
    assert coordinator.commit("new", {("t", 0): 1}) == {("t", 0): E.POLICY_VIOLATION}
    assert coordinator.commit("h", {("t", 1): 1}) == {("t", 1): E.POLICY_VIOLATION}
    more = coordinator.join("g", a, protocols=LARGE)
    assert coordinator.answers[more].error_code == E.GROUP_MAX_SIZE_REACHED
    assert coordinator.state("g") == "Stable", "who said too much is still a member"


def test_what_is_there_goes_on_and_makes_room_when_it_goes() -> None:
    coordinator = Coordinator()
    memory = coordinator.shard._memory
    (a,) = coordinator.stable("g", "a", protocols=LARGE)
    assert coordinator.commit("h", {("t", 0): 1}) == OK
    fill(memory)
    assert coordinator.beat("g", a, 1) is E.NONE
    assert coordinator.commit("h", {("t", 0): 2}) == OK, "it takes an older one's place"
    again = coordinator.answers[coordinator.join("g", a, protocols={"range": subscription("t")})]
    assert again.error_code == E.NONE, "less may always be said"
    coordinator.leave("g", (a, None))
    assert coordinator.answers[coordinator.join("new")].error_code == E.MEMBER_ID_REQUIRED


def test_one_shard_s_groups_leave_less_for_the_others_until_it_is_thrown_away() -> None:
    memory = GroupMemory(10 * GROUP_OVERHEAD_BYTES)
    one, other = Sharing(memory), Sharing(memory)
    number = 0
    while one.commit(f"g{number}", {("t", 0): 1}) == OK:
        number += 1
    assert 0 < number <= 10
    # What a shard checks of itself holds for both together.
    taken = one.shard._groups.bytes + one.shard._offsets.bytes
    assert memory.bytes == taken
    call = other.join("h")
    assert other.answers[call].error_code == E.POLICY_VIOLATION
    one.shard.let_go()
    assert memory.bytes == 0
    one.shard.let_go()
    assert memory.bytes == 0, "once"


def test_members_of_the_other_protocol_count_too() -> None:
    coordinator = Consumers()
    memory = coordinator.shard._memory
    assert memory is coordinator.shard.around.memory
    assert coordinator.join("m", "t").error_code == E.NONE
    before = memory.bytes
    assert coordinator.join("n" * 1000, "t").error_code == E.NONE
    assert memory.bytes - before > 3000, "a member, and its long id"
    fill(memory)
    assert coordinator.join("o", "t").error_code == E.GROUP_MAX_SIZE_REACHED
    assert coordinator.heartbeat("n" * 1000, -1).error_code == E.NONE
    assert coordinator.join("o", "t").error_code == E.NONE


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_room_is_left_up_to_the_bound(more: int) -> None:
    memory = GroupMemory(100)
    memory.bytes = 50
    assert memory.has_room(50 + more) == (more <= 0)
    memory.bytes = 200
    assert memory.has_room(more) == (more <= 0), "less may always be"
