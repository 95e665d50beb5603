"""A shard that is led: what it decides is in the log before anybody hears of it.

Goal: answers, reads too, are held until all is committed that they may tell of; what the log
refuses is told as refused and leaves nothing behind; commits of one turn are one batch and are
answered in their order; whoever waits when the epoch ends is told so once, whatever it waits for;
a decision that can't be brought to its end costs one client its answer, and no group its shard.
Method: a real partition over a log in memory, in virtual time; the follower is asked by the test.
Rules: classic-groups.md#refused-appends, committed-offsets.md#committing.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from tests.coordinator.room_kit import COMMIT_TIMEOUT_MS, Room, decoded, play
from tests.group.shard_kit import commit_request
from tests.log.log_kit import memory_disk

from holdfast.core.group.any_group import Caller
from holdfast.core.group.consumer.consumer_patterns import PatternRefresh
from holdfast.core.log_machine import Decision
from holdfast.node.broker.leading_replica import Appended, LeadingReplica
from holdfast.node.coordinator.led_shard import SHARED_RECORDS_MAX
from holdfast.testing.ground.disk import DiskFault
from holdfast.wire.errors import ErrorCode
from holdfast.wire.records.group_tables import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

TWO = {"replicas": (0, 1)}


# -- answers are held ----------------------------------------------------------------------------


def test_a_commit_is_answered_when_it_is_committed_and_not_before() -> None:
    async def story(room: Room) -> None:
        call = room.commit("g", 7)
        await room.turns()
        assert room.log.end == 1, "it is in the log"
        assert not room.answers
        room.follower_fetches()
        await room.turns()
        assert room.code_of(call) is ErrorCode.NONE

    play(story, **TWO)


def test_a_read_sees_what_is_not_committed_and_waits_for_it() -> None:
    async def story(room: Room) -> None:
        commit = room.commit("g", 7)
        read = room.fetch("g")
        await room.turns()
        assert not room.answers, "its answer would tell of what may still be lost"
        room.follower_fetches()
        await room.turns()
        assert list(room.answers) == [commit, read]
        assert room.offset_of(read) == 7

    play(story, **TWO)


def test_a_read_of_what_is_committed_waits_for_nothing() -> None:
    async def story(room: Room) -> None:
        room.commit("g", 7)
        await room.turns()
        room.follower_fetches()
        await room.turns()
        assert room.offset_of(room.fetch("g")) == 7, "at once"

    play(story, **TWO)


def test_a_heartbeat_that_tells_of_nothing_new_waits_for_nothing_and_leaves_nothing() -> None:
    """Goal: thousands a second need no place among those that wait; the others keep theirs.

    Method: a heartbeat with all committed; while nothing is; behind a commit of the same turn; and
    while answers that came before it are on their way out. Seen to fail without each condition.
    """

    async def story(room: Room) -> None:
        async def committed() -> None:
            room.follower_fetches()
            await room.turns()

        first = room.join("g")
        await committed()
        member = room.answers[first].member_id
        joined = room.join("g", member)
        await committed()
        await room.until(lambda: joined in room.answers)
        generation = room.answers[joined].generation_id
        room.sync("g", member, generation, **{member: b"all"})
        await committed()
        room.waited.clear()
        beat = room.beat("g", member, generation)
        assert room.answers[beat].error_code == ErrorCode.NONE
        assert (room.waited, len(room.calls)) == ([], 0)

        commit = room.commit("g", 7, member_id=member, generation=generation)
        behind = room.beat("g", member, generation)
        await room.turns()
        while_held = room.beat("g", member, generation)
        assert room.waited == [behind, while_held]
        assert not {commit, behind, while_held} & room.answers.keys()
        await committed()
        assert list(room.answers)[-3:] == [commit, behind, while_held]

        room.waited.clear()
        with patch.object(type(room.calls), "is_quiet", False):
            beat = room.beat("g", member, generation)
        assert room.waited == [beat]
        await room.turns()
        assert room.answers[beat].error_code == ErrorCode.NONE

    play(story, **TWO)


def test_who_asks_for_patterns_to_be_looked_at_is_known_meanwhile() -> None:
    """What its client may not describe does not count: so its call must still be there."""

    async def story(room: Room) -> None:
        found: list[bool] = []

        def decide(shard: Any, caller: Caller, now_ms: int) -> Decision:
            shard.around.refreshes["g"] = PatternRefresh(
                group_id="g", patterns=(), call=caller.call
            )
            decision: Decision = shard._begin(now_ms)
            decision.answer(caller.call, "told")
            return decision

        def refresh(_led: Any, asked: PatternRefresh) -> None:
            found.append(room.calls.find(asked.call) is not None)

        room.led._around = replace(room.around, refresh=refresh)
        call = room.ask(decide)
        assert (found, room.answers[call]) == ([True], "told")

    play(story)


def test_what_was_loaded_is_told_once_it_is_committed_in_this_epoch() -> None:
    """A record that only this replica may have must not be told of."""

    async def story(room: Room) -> None:
        room.commit("g", 7)
        await room.turns()
        room.led.resign()
        room.elect()
        room.led = room.load()
        read = room.fetch("g")
        await room.turns()
        assert read not in room.answers
        room.follower_fetches()
        await room.turns()
        assert room.offset_of(read) == 7

    play(story, **TWO)


def test_who_waits_for_too_long_is_told_and_is_not_told_again() -> None:
    async def story(room: Room) -> None:
        call = room.commit("g", 7)
        await room.until(lambda: bool(room.refusals), COMMIT_TIMEOUT_MS / 1000 + 1)
        assert room.refusals == {call: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert not room.led._held
        room.partition.acknowledgements.drop_finished()
        assert not room.partition.acknowledgements, "a stalled partition does not collect them"
        room.follower_fetches()
        assert room.offset_of(room.fetch("g")) == 7, "it came true all the same"

    play(story, **TWO)


# -- commits share a batch -----------------------------------------------------------------------


def test_commits_of_one_turn_are_one_batch_and_are_answered_in_their_order() -> None:
    async def story(room: Room) -> None:
        calls = [room.commit(f"g{number % 3}", number) for number in range(10)]
        assert not room.log.end, "the turn is not over"
        await room.turns()
        assert [len(batch) for batch in room.batches()] == [10]
        await room.until(lambda: len(room.answers) == 10)
        assert list(room.answers) == calls
        assert room.offset_of(room.fetch("g0")) == 9
        room.commit("g0", 20)
        await room.turns()
        assert len(room.batches()) == 2, "another turn's is another batch"

    play(story)


def test_what_is_no_commit_finds_those_before_it_in_the_log() -> None:
    async def story(room: Room) -> None:
        commit = room.commit("g", 7)
        read = room.fetch("g")
        assert len(room.batches()) == 1, "the commit went first"
        assert list(room.answers) == [commit, read]
        assert room.offset_of(read) == 7

    play(story)


def test_a_commit_that_changes_nothing_does_not_overtake_the_others() -> None:
    """It is answered from a state that has them, or behind them: never as if they were lost."""

    async def story(room: Room) -> None:
        first = room.commit("g", 7)
        refused = room.commit("g", 8, generation=5, member_id="nobody")
        assert room.code_of(refused) is ErrorCode.GROUP_ID_NOT_FOUND
        await room.turns()
        assert room.code_of(first) is ErrorCode.NONE
        assert [len(batch) for batch in room.batches()] == [1]

    play(story)


def test_a_batch_of_commits_has_so_many_records_and_bytes() -> None:
    async def story(room: Room) -> None:
        many = {("t", index): 1 for index in range(SHARED_RECORDS_MAX - 1)}
        room.commit_all(commit_request("g", many))
        room.commit("g", 5)
        assert not room.log.end
        room.commit("g", 6)
        assert [len(batch) for batch in room.batches()] == [SHARED_RECORDS_MAX]
        await room.turns()
        assert [len(batch) for batch in room.batches()] == [SHARED_RECORDS_MAX, 1]

    play(story)


def test_commits_that_would_be_too_large_together_are_not_put_together() -> None:
    async def story(room: Room) -> None:
        calls = [room.commit(f"g{number}", 1, metadata="m" * 400) for number in range(5)]
        await room.turns()
        assert len(room.batches()) == 3, "two fit into a batch of 1000 bytes"
        await room.until(lambda: len(room.answers) == 5)
        assert {room.code_of(call) for call in calls} == {ErrorCode.NONE}

    play(story, max_message_bytes=1000)


# -- what the log refuses ------------------------------------------------------------------------


def test_a_commit_that_the_log_refuses_leaves_nothing_behind() -> None:
    async def story(room: Room) -> None:
        kept = room.commit("g", 7)
        await room.turns()
        room.follower_fetches()
        room.shrink(0)
        refused = [room.commit("g", 8), room.commit("h", 9)]
        await room.turns()
        assert room.code_of(kept) is ErrorCode.NONE
        assert {room.code_of(call) for call in refused} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        room.shrink(0, 1)
        room.follower_fetches()
        assert room.offset_of(room.fetch("g")) == 7
        assert room.offset_of(room.fetch("h")) == -1

    play(story, **TWO, min_insync=2)


def test_what_is_larger_than_a_batch_may_be_is_refused_and_costs_the_others_nothing() -> None:
    async def story(room: Room) -> None:
        small = room.commit("g", 7)
        large = room.commit("h", 8, metadata="m" * 1500)
        await room.until(lambda: len(room.answers) == 2)
        assert room.code_of(small) is ErrorCode.NONE
        assert room.code_of(large) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert room.offset_of(room.fetch("h")) == -1

    play(story, max_message_bytes=1000)


def test_a_leader_whose_assignment_is_refused_rebalances() -> None:
    async def story(room: Room) -> None:
        first = room.join("g")
        room.follower_fetches()
        await room.turns()
        member = room.answers[first].member_id
        joined = room.join("g", member)
        await room.until(lambda: joined in room.answers)
        generation = room.answers[joined].generation_id
        room.shrink(0)
        synced = room.sync("g", member, generation, **{member: b"x"})
        await room.turns()
        assert room.answers[synced].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        beat = room.beat("g", member, generation)
        assert room.answers[beat].error_code == ErrorCode.REBALANCE_IN_PROGRESS

    play(story, **TWO, min_insync=2)


# -- the end of an epoch -------------------------------------------------------------------------


def test_each_thing_that_waits_is_refused_once_when_the_epoch_ends() -> None:
    """Commits that are not appended, answers that are held, and joins that are parked."""

    async def story(room: Room) -> None:
        parked = room.join("g")
        room.follower_fetches()
        await room.turns()
        member = room.answers[parked].member_id
        join = room.join("g", member)  # waits for the delay of an empty group
        held = room.commit("h", 7)
        await room.turns()
        open_commit = room.commit("h", 8)
        room.depose()
        room.led.resign()
        await room.turns()
        expected = dict.fromkeys((join, held, open_commit), ErrorCode.NOT_COORDINATOR)
        assert room.refusals == expected
        assert not len(room.calls)
        assert room.log.end == 2, "the group, and what was held"

    play(story, **TWO, initial_rebalance_delay_ms=3000)


@pytest.mark.parametrize("is_same_broker", [True, False])
def test_what_is_held_in_an_epoch_is_not_acknowledged_in_the_next(is_same_broker: bool) -> None:
    """The high watermark of the next epoch says nothing about what this one appended."""

    async def story(room: Room) -> None:
        held = room.commit("g", 7)
        await room.turns()
        if is_same_broker:
            room.elect()
        else:
            room.depose()
        if is_same_broker:
            room.follower_fetches()
        room.led.resign()
        await room.turns()
        assert room.refusals == {held: ErrorCode.NOT_COORDINATOR}
        assert not room.answers

    play(story, **TWO)


def test_an_open_commit_is_not_appended_in_the_next_epoch() -> None:
    async def story(room: Room) -> None:
        call = room.commit("g", 7)
        room.elect()
        await room.turns()
        assert not room.log.end
        assert room.refusals == {call: ErrorCode.NOT_COORDINATOR}

    play(story)


def test_a_shard_that_is_over_decides_nothing() -> None:
    async def story(room: Room) -> None:
        member = await room.member("g", session_timeout_ms=6000)
        end = room.log.end
        room.led.resign()
        assert room.led.refusal() is ErrorCode.NOT_COORDINATOR
        await room.until(lambda: room.clock().monotonic_ms() > 10_000)
        assert room.log.end == end, f"{member}'s session is not this broker's to end"

    play(story)


def test_a_disk_that_fails_costs_who_asks_its_answer_and_nothing_else() -> None:
    async def story(room: Room) -> None:
        member = await room.member("g")
        open_commit = room.commit("h", 7)
        memory_disk(room.runtime).inject(DiskFault(operations=["append"], code=errno.EIO))
        read = room.fetch("h")
        assert room.code_of(open_commit) is ErrorCode.NOT_COORDINATOR
        assert room.offset_of(read) == -1, "what was not written is not told"
        left = room.leave("g", member)
        assert room.answers[left].error_code == ErrorCode.NOT_COORDINATOR
        room.partition.fail()
        room.led.resign()
        assert room.led.refusal() is ErrorCode.NOT_COORDINATOR
        assert not room.broken

    play(story)


def test_a_disk_that_fails_inside_an_append_ends_the_shard_once() -> None:
    """Whoever hears of it may take the role away before the decision is refused."""

    async def story(room: Room) -> None:
        first = room.join("g")
        member = room.answers[first].member_id
        joined = room.join("g", member)
        await room.until(lambda: joined in room.answers)
        open_commit = room.commit("h", 7)

        def fail(*_: object, **_more: object) -> Appended:
            room.partition.fail()
            room.led.resign()
            return Appended(ErrorCode.KAFKA_STORAGE_ERROR)

        with patch.object(LeadingReplica, "append", fail):
            synced = room.sync("g", member, 1, **{member: b"x"})
        await room.turns()
        assert room.refusals == dict.fromkeys((open_commit, synced), ErrorCode.NOT_COORDINATOR)
        assert not room.broken
        assert not len(room.calls)

    play(story)


# -- our own mistakes ----------------------------------------------------------------------------


def test_what_has_no_bytes_is_refused_and_its_shard_goes_on() -> None:
    async def story(room: Room) -> None:
        def decide(shard: Any, caller: Caller, _now_ms: int) -> Decision:
            decision: Decision = shard._begin(0)
            name = "n" * 40_000  # a text of the log has 32,767 bytes
            decision.append(GroupMetadataKey(group="g"), GroupMetadataValue(leader=name))
            decision.answer(caller.call, "written", lambda code: code)
            made: Decision = shard._decided(decision)
            return made

        call = room.ask(decide)
        assert room.answers[call] is ErrorCode.UNKNOWN_SERVER_ERROR
        commit = room.commit("g", 7)
        await room.turns()
        assert room.code_of(commit) is ErrorCode.NONE, "or no group of the shard would go on"
        assert not room.broken

    play(story)


@pytest.mark.parametrize("fails", ["decide", "apply"])
def test_a_mistake_in_a_decision_ends_the_shard_and_not_its_groups(fails: str) -> None:
    """What is half decided can't be gone on with: the log says how it is."""

    async def story(room: Room) -> None:
        held = room.commit("h", 7)
        await room.turns()
        open_commit = room.commit("h", 8)

        def decide(shard: Any, caller: Caller, _now_ms: int) -> Decision:
            decision: Decision = shard._begin(0)
            decision.append(GroupMetadataKey(group="g"), None)
            decision.answer(caller.call, "written")
            if fails == "decide":
                raise AssertionError("ours")
            decision.once_applied(_raise)
            made: Decision = shard._decided(decision)
            return made

        with pytest.raises(AssertionError, match="ours"):
            room.ask(decide)
        assert room.broken == [room.led]
        await room.turns()
        assert {held, open_commit} <= room.refusals.keys()
        assert not len(room.calls), "nobody waits for a shard that is gone"

    play(story, **TWO)


def _raise() -> None:
    raise AssertionError("ours")


# -- connections that go -------------------------------------------------------------------------


def test_who_has_gone_is_not_answered_and_stays_a_member() -> None:
    async def story(room: Room) -> None:
        first = room.join("g")
        member = room.answers[first].member_id
        join = room.join("g", member)
        room.led.forget(join)
        await room.until(lambda: _generation(room) == 1)
        assert join not in room.answers
        assert join not in room.refusals
        assert not len(room.calls)
        again = room.join("g", member)
        assert room.answers[again].generation_id == 1

    play(story, initial_rebalance_delay_ms=500)


def _generation(room: Room) -> int:
    group: Any = room.led.shard._groups.get("g")
    generation: int = group.state.generation
    return generation


def test_who_has_gone_while_its_answer_is_held_is_forgotten() -> None:
    async def story(room: Room) -> None:
        call = room.commit("g", 7)
        await room.turns()
        room.led.forget(call)
        room.follower_fetches()
        await room.turns()
        assert not room.answers
        assert not room.refusals
        assert not len(room.calls)
        assert room.offset_of(room.fetch("g")) == 7

    play(story, **TWO)


def test_records_are_stamped_and_written_as_groups_write_them() -> None:
    async def story(room: Room) -> None:
        room.commit("g", 7)
        await room.turns()
        ((record,),) = room.batches()
        key, value = decoded(record)
        assert isinstance(key, OffsetCommitKey)
        assert isinstance(value, OffsetCommitValue)
        assert (key.group, key.topic, key.partition, value.offset) == ("g", "t", 0, 7)
        assert record.timestamp == value.commit_timestamp == room.clock().wall_ms()

    play(story)
