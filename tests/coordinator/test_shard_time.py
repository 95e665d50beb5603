"""What is due in a shard, and when: timers, a process that stood still, a clock that was set.

Goal: sessions end when they should, and not because this process did not read what it was sent;
what is due is done a slice at a time; a clock that was set ends no session, and is noticed.
Method: a real shard in virtual time; the process stands still as by SIGSTOP, beside a client that
goes on and whose heartbeats lie unread.
Rules: classic-groups.md#sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.coordinator.room_kit import Room, play
from tests.log.log_kit import virtual

from holdfast.core.group.shard_machine import ShardMachine
from holdfast.core.log_machine import Decision
from holdfast.node.coordinator import stalls
from holdfast.node.coordinator.shard_time import APART_MS_MAX
from holdfast.node.coordinator.stalls import GRACE_MS, GRACES_MAX, INTERVAL_MS, LATE_MS, Stalls
from holdfast.runtime.ports import Runtime
from holdfast.testing.ground.loop import Process, VirtualLoop
from holdfast.wire.errors import ErrorCode

SESSION_MS = 6000


def play_apart(story: Callable[[Room, Process], Coroutine[Any, Any, None]], **more: Any) -> None:
    """Run a story about a room that lives in a process of its own."""

    async def main(runtime: Runtime) -> None:
        loop = VirtualLoop.running()
        process = Process("broker", loop)

        async def make() -> Room:
            return Room(runtime, **more)

        room = await process.start(make())
        await story(room, process)
        await process.start(_close(room))

    virtual(main)


async def _close(room: Room) -> None:
    room.close()


async def _members(room: Room, *groups: str) -> dict[str, str]:
    return {group: await room.member(group, session_timeout_ms=SESSION_MS) for group in groups}


def _is_member(room: Room, group: str, member: str) -> bool:
    found: Any = room.led.shard._groups.get(group)
    return member in found.state.roster.members


# -- sessions ------------------------------------------------------------------------------------


def test_a_session_that_runs_out_ends_without_anybody_asking() -> None:
    async def story(room: Room) -> None:
        member = await room.member("g", session_timeout_ms=SESSION_MS)
        began = room.clock().monotonic_ms()
        await room.until(lambda: not _is_member(room, "g", member))
        took_ms = room.clock().monotonic_ms() - began
        assert SESSION_MS - 100 <= took_ms <= SESSION_MS + 100

    play(story)


def test_a_session_that_is_put_off_needs_no_timer_of_its_own() -> None:
    async def story(room: Room) -> None:
        member = await room.member("g", session_timeout_ms=SESSION_MS)
        for _ in range(10):
            await asyncio.sleep(SESSION_MS / 2000)
            call = room.beat("g", member, 1)
            assert room.answers[call].error_code == ErrorCode.NONE
        await asyncio.sleep(SESSION_MS / 1000 - 0.1)
        assert _is_member(room, "g", member)
        await asyncio.sleep(0.2)
        assert not _is_member(room, "g", member)

    play(story)


def test_a_deadline_that_comes_nearer_moves_the_timer() -> None:
    async def story(room: Room) -> None:
        slow = await room.member("slow", session_timeout_ms=60_000)
        quick = await room.member("quick", session_timeout_ms=SESSION_MS)
        await asyncio.sleep(SESSION_MS / 1000 + 0.1)
        assert not _is_member(room, "quick", quick)
        assert _is_member(room, "slow", slow)

    play(story)


# -- a process that stood still ------------------------------------------------------------------


@pytest.mark.parametrize("stood_ms", [SESSION_MS - 500, 4 * SESSION_MS])
def test_members_that_are_well_outlive_a_process_that_stood_still(stood_ms: int) -> None:
    """Whatever the timers' order is when it goes on, and however many ask before the others.

    The shorter stall ends just as the first session does: its timer is not late at all.
    """

    async def story(room: Room, process: Process) -> None:
        members = await process.start(_members(room, *"abcdef"))
        await asyncio.sleep(0.45)  # the first session has 5.5 s left
        process.pause()
        await asyncio.sleep(stood_ms / 1000)
        process.resume()

        async def beat(group: str) -> None:
            call = room.beat(group, members[group], 1)
            assert room.answers[call].error_code == ErrorCode.NONE, group

        for group in members:  # their heartbeats are read one after the other
            await process.start(beat(group))
            await asyncio.sleep(GRACE_MS / 1000 / 10)
        await asyncio.sleep(2 * GRACE_MS / 1000)
        assert all(_is_member(room, *each) for each in members.items())

    play_apart(story)


def test_who_is_not_well_loses_its_place_soon_after() -> None:
    async def story(room: Room, process: Process) -> None:
        members = await process.start(_members(room, "a", "b"))
        process.pause()
        await asyncio.sleep(2 * SESSION_MS / 1000)
        process.resume()
        await asyncio.sleep(0.1)
        call = await process.start(_beat(room, "a", members["a"]))
        assert room.answers[call].error_code == ErrorCode.NONE
        await asyncio.sleep(GRACE_MS / 1000 + 0.1)
        assert _is_member(room, "a", members["a"])
        assert not _is_member(room, "b", members["b"])

    play_apart(story)


async def _beat(room: Room, group: str, member: str) -> int:
    return room.beat(group, member, 1)


def test_a_process_that_is_always_late_ends_sessions_too() -> None:
    async def story(room: Room, process: Process) -> None:
        members = await process.start(_members(room, "a"))
        for _ in range(SESSION_MS // 1000 + 2 * GRACES_MAX):
            process.pause()
            await asyncio.sleep((LATE_MS + INTERVAL_MS + 200) / 1000)
            process.resume()
            await asyncio.sleep(0.05)
        assert not _is_member(room, "a", members["a"])

    play_apart(story)


def test_a_stall_is_noticed_before_its_own_timer_comes() -> None:
    async def story(_room: Room, process: Process) -> None:
        async def make(runtime: Runtime) -> Stalls:
            return Stalls(asyncio.get_running_loop(), runtime.clock)

        watched = await process.start(make(_room.runtime))
        assert watched.grace_ms == 0
        process.pause()
        await asyncio.sleep((LATE_MS + INTERVAL_MS) / 1000 + 0.01)
        assert watched.grace_ms == GRACE_MS, "asked by whoever comes first"
        process.resume()
        await asyncio.sleep(0.4)
        assert 0 < watched.grace_ms < GRACE_MS, "and not begun anew by its own timer"
        await asyncio.sleep(GRACE_MS / 1000)
        assert watched.grace_ms == 0
        watched.close()

    play_apart(story)


def test_graces_are_few_in_a_row_and_given_anew_after_a_while() -> None:
    async def story(_room: Room, process: Process) -> None:
        async def make(runtime: Runtime) -> Stalls:
            return Stalls(asyncio.get_running_loop(), runtime.clock)

        watched = await process.start(make(_room.runtime))
        given = []
        for _ in range(GRACES_MAX + 2):
            process.pause()
            await asyncio.sleep(2 * (LATE_MS + INTERVAL_MS) / 1000)
            process.resume()
            given.append(watched.grace_ms > stalls.GRACE_MS / 2)
        assert given == [True] * GRACES_MAX + [False] * 2
        await asyncio.sleep(2 * GRACE_MS / 1000)
        process.pause()
        await asyncio.sleep(2 * (LATE_MS + INTERVAL_MS) / 1000)
        process.resume()
        assert watched.grace_ms > 0
        watched.close()

    play_apart(story)


# -- a clock that was set ------------------------------------------------------------------------


@pytest.mark.parametrize("by_ms", [10 * APART_MS_MAX, -10 * APART_MS_MAX])
def test_a_clock_that_was_set_ends_no_session_and_is_told(by_ms: int) -> None:
    async def story(room: Room) -> None:
        member = await room.member("g", session_timeout_ms=SESSION_MS)
        room.clock().step(by_ms)
        await asyncio.sleep(1)
        assert _is_member(room, "g", member)
        assert not room.wrong_clocks, "nobody asked yet"
        room.beat("g", member, 1)
        assert room.wrong_clocks == [room.led]

    play(story)


def test_a_clock_that_drifts_is_not_one_that_was_set() -> None:
    async def story(room: Room) -> None:
        room.clock().step(APART_MS_MAX - 1000)
        room.commit("g", 1)
        assert not room.wrong_clocks

    play(story)


def test_who_asks_a_shard_that_ends_for_its_clock_is_refused_once() -> None:
    async def story(room: Room) -> None:
        room.clock().step(2 * APART_MS_MAX)
        room.ends_with_clock = True
        call = room.commit("g", 1)
        await room.turns()
        assert room.refusals == {call: ErrorCode.NOT_COORDINATOR}
        assert not room.log.end

    play(story)


# -- slices --------------------------------------------------------------------------------------


def test_what_is_due_at_once_is_done_by_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have their turn after a few milliseconds, and then the rest is done."""

    async def story(room: Room) -> None:
        loop = VirtualLoop.running()
        members = {f"g{number}": "" for number in range(8)}
        for group in members:
            members[group] = await room.member(group, session_timeout_ms=SESSION_MS)
        done: list[float] = []
        due = ShardMachine.due

        def slow(self: ShardMachine, now_ms: int) -> Decision:
            loop.now += 0.003  # as long as it took
            done.append(loop.now)
            return due(self, now_ms)

        monkeypatch.setattr(ShardMachine, "due", slow)
        turns: list[float] = []

        def turn() -> None:
            turns.append(loop.now)
            loop.call_later(0.0005, turn)

        turn()
        await room.until(lambda: not any(_is_member(room, *each) for each in members.items()))
        for one, other in zip(done[::2], done[2::2], strict=False):
            assert any(one <= turn <= other for turn in turns), "two in a row, then others"

    play(story)


def test_a_process_that_stood_still_between_two_slices_ends_no_session_of_who_is_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(room: Room) -> None:
        loop = VirtualLoop.running()
        members = {f"g{number}": "" for number in range(8)}
        for group in members:
            members[group] = await room.member(group, session_timeout_ms=SESSION_MS)
        well = await room.member("well", session_timeout_ms=SESSION_MS)
        await asyncio.sleep(SESSION_MS / 2000)
        room.beat("well", well, 1)
        due = ShardMachine.due
        slices: list[float] = []

        def slow(self: ShardMachine, now_ms: int) -> Decision:
            loop.now += 0.003 if slices else LATE_MS / 2000  # by then all the others are due
            slices.append(loop.now)
            if len(slices) == 4:
                loop.call_soon(stand_still)
            return due(self, now_ms)

        def stand_still() -> None:
            loop.now += 3 * SESSION_MS / 1000

        monkeypatch.setattr(ShardMachine, "due", slow)
        await room.until(lambda: len(slices) >= 4)
        await asyncio.sleep(GRACE_MS / 2000)
        room.beat("well", well, 1)  # it lay unread
        await room.until(lambda: not any(_is_member(room, *each) for each in members.items()))
        assert _is_member(room, "well", well)

    play(story)
