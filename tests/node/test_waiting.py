"""The waiting room: nobody waits for what has happened, and nobody waits for ever.

Goal: no wake-up is lost, deadlines are kept, and settled waits are forgotten. Method: a real loop
with short deadlines; completion is a flag that the test sets. No time is asserted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from tests.log.log_kit import virtual

from holdfast.node.door import waiting_room as module
from holdfast.node.door.waiting_room import DEADLINE_STEP_MS, OffsetQueue, WaitingRoom
from holdfast.runtime.ports import Runtime
from holdfast.runtime.real import real_runtime
from holdfast.testing.ground.loop import run as run_virtual

BOUND_SECONDS = 20


class Flag:
    """A wait that is over once it is set."""

    sender: Hashable = None

    def __init__(self, *, over: bool = False) -> None:
        self.over = over
        self.asked = 0
        self.completed = 0
        self.expiries = 0
        self.expired = asyncio.Event()

    def try_complete(self) -> bool:
        self.asked += 1
        self.completed += self.over
        return self.over

    def expire(self) -> None:
        self.expiries += 1
        self.expired.set()


class Part:
    """A wait for offsets that notes which of its parts were settled."""

    sender: Hashable = None

    def __init__(self) -> None:
        self.settled: list[int] = []
        self.finished = False
        self.expired = asyncio.Event()

    def settle(self, part: int) -> None:
        self.settled.append(part)

    def expire(self) -> None:
        self.finished = True
        self.expired.set()


class LoopClock:
    """The loop's own time."""

    def wall_ms(self) -> int:
        raise AssertionError("a deadline is no matter of the wall clock")

    def monotonic_ms(self) -> int:
        return int(1000 * asyncio.get_running_loop().time() + 1e-6)


def run(scenario: Callable[[WaitingRoom], Coroutine[object, object, None]]) -> None:
    """Nothing that fails in a turn of the loop goes unseen."""
    failed: list[Mapping[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, about: failed.append(about))
        async with asyncio.timeout(BOUND_SECONDS):
            await scenario(WaitingRoom(loop, real_runtime().clock))

    asyncio.run(main())
    assert failed == []


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_what_has_happened_before_is_seen_at_once() -> None:
    """Register, then check again: the guard against a lost wake-up."""

    async def scenario(room: WaitingRoom) -> None:
        flag = Flag(over=True)
        room.park(flag, ["a"], 60_000)
        assert flag.completed == 1
        assert room.parked == 0

    run(scenario)


def test_a_wake_up_asks_once_however_often_it_is_called() -> None:
    async def scenario(room: WaitingRoom) -> None:
        flag = Flag()
        room.park(flag, ["a", "b"], 60_000)
        for _ in range(5):
            room.wake("a")
        await turn()
        assert flag.asked == 2, "when it was parked, and once for the five"
        flag.over = True
        room.wake("a")
        room.wake("b")
        await turn()
        assert flag.completed == 1, "answered through one key, forgotten under the other"
        assert room.parked == 0

    run(scenario)


def test_a_wait_is_asked_once_however_many_of_its_keys_are_woken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fetch looks at all its partitions when it is asked. Method: a slice has time for all keys.

    Seen to fail: a thousand of them woken at once, by one produce request, were a million looks.
    """
    monkeypatch.setattr(module, "SLICE_S", 60.0)

    async def scenario(room: WaitingRoom) -> None:
        many, other = Flag(), Flag()
        room.park(many, range(1000), 60_000)
        room.park(other, [999], 60_000)
        for key in range(1000):
            room.wake(key)
        await turn()
        assert (many.asked, other.asked) == (2, 2), "when it was parked, and once for all keys"
        many.over = other.over = True
        room.wake(999)
        await turn()
        assert (many.completed, other.completed) == (1, 1)
        assert room.parked == 0

    run(scenario)


def test_who_is_woken_does_not_stand_behind_hundreds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: slices of one question; a client has many waits woken, and meanwhile another's is.

    Seen to fail: five hundred fetches of a megabyte were read in one turn of the loop.
    """
    monkeypatch.setattr(module, "SLICE_S", 0.0)

    async def scenario(room: WaitingRoom) -> None:
        many, other = [Flag() for _ in range(50)], Flag()
        for each in many:
            room.park(each, ["many"], 60_000)
        room.park(other, ["other"], 60_000)
        room.wake("many")
        await asyncio.sleep(0)
        assert 1 <= sum(each.asked - 1 for each in many) <= 2, "one that is due, one left behind"
        room.wake("other")
        await asyncio.sleep(0)
        assert other.asked == 2
        assert sum(each.asked - 1 for each in many) <= 4
        for _ in range(60):
            await asyncio.sleep(0)
        assert all(each.asked == 2 for each in many), "each has its turn, and once"

    run(scenario)


def test_a_crowd_hears_of_a_change_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: slices of one, and a crowd of a few; a change meanwhile is told them all again.

    Seen to fail: 90,000 parked fetches of one partition were told of each append in one turn.
    """
    monkeypatch.setattr(module, "SLICE_S", 0.0)
    monkeypatch.setattr(module, "CROWD", 2)

    async def scenario(room: WaitingRoom) -> None:
        first, crowd, other = Flag(), [Flag() for _ in range(20)], Flag()
        room.park(first, ["many"], 60_000)
        for each in crowd:
            room.park(each, ["many"], 60_000)
        room.park(other, ["other"], 60_000)
        room.wake("many")
        await asyncio.sleep(0)
        assert first.asked == 2
        assert len(room._due) + len(room._behind) + sum(each.asked - 1 for each in crowd) <= 4
        room.wake("other")
        await asyncio.sleep(0)
        assert other.asked == 2
        before = [each.asked for each in crowd]
        room.wake("many")
        for _ in range(100):
            await asyncio.sleep(0)
        assert all(each.asked > asked for each, asked in zip(crowd, before, strict=True))
        assert all(each.asked <= 4 for each in (first, *crowd)), "and no more for nothing"
        assert not room._crowds

    run(scenario)


@pytest.mark.parametrize("turns", [3, 10, 30])
@pytest.mark.parametrize("answered", [0, 20])
@pytest.mark.parametrize("slice_s", [0.0, 60.0])
def test_nobody_of_a_crowd_is_passed_over_as_others_are_answered(
    slice_s: float, answered: int, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: those behind the first moved up as these left, and were taken for told."""
    monkeypatch.setattr(module, "SLICE_S", slice_s)
    monkeypatch.setattr(module, "CROWD", 4)

    async def scenario(room: WaitingRoom) -> None:
        crowd = [Flag() for _ in range(30)]
        for each in crowd:
            room.park(each, ["many"], 60_000)
        for each in crowd[:answered]:
            each.over = True
        room.wake("many")
        for _ in range(turns):
            await asyncio.sleep(0)
        for each in crowd:
            each.over = True
        room.wake("many")
        for _ in range(100):
            await asyncio.sleep(0)
        assert [each.completed for each in crowd] == [1] * 30
        assert not room._crowds
        assert not room._watchers

    run(scenario)


def test_one_of_a_crowd_that_has_left_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_S", 0.0)
    monkeypatch.setattr(module, "CROWD", 1)

    class Watching:
        sender = "a client"

        def __init__(self) -> None:
            self.told = 0

        def touched(self, key: Hashable) -> bool:
            assert key == "many"
            self.told += 1
            return False

        def ask(self) -> None:
            raise AssertionError("it has nothing to look for")

    async def scenario(room: WaitingRoom) -> None:
        crowd = [Watching() for _ in range(10)]
        for each in crowd:
            room.watch("many", each)
        room.wake("many")
        await asyncio.sleep(0)
        for each in crowd[5:]:
            room.unwatch("many", each)
        for _ in range(50):
            await asyncio.sleep(0)
        assert [each.told for each in crowd] == [1] * 5 + [0] * 5
        assert not room._crowds

    run(scenario)


def test_what_is_touched_and_not_told_yet_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that goes on must know of it before it calls a partition quiet."""
    monkeypatch.setattr(module, "SLICE_S", 0.0)
    monkeypatch.setattr(module, "CROWD", 1)

    async def scenario(room: WaitingRoom) -> None:
        for _ in range(5):
            room.park(Flag(), ["many"], 60_000)
        room.park(Flag(), ["few"], 60_000)
        room.wake("few")
        room.wake("many")
        for keys in ({"many": 0, "few": 0}, dict.fromkeys(["few", "many", *range(9)])):
            assert sorted(map(str, room.untold(keys))) == ["few", "many"]
        await asyncio.sleep(0)
        assert room.untold({"many": 0, "few": 0}) == ["many"]
        for _ in range(20):
            await asyncio.sleep(0)
        assert room.untold({"many": 0, "few": 0}) == []

    run(scenario)


@pytest.mark.parametrize("kind", ["fetches", "appends"])
def test_those_that_end_together_end_by_turns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: 88,000 fetches that ended in one millisecond held the loop for 1.2 s."""
    monkeypatch.setattr(module, "SLICE_S", 0.0)

    async def scenario(room: WaitingRoom) -> None:
        loop, turns = asyncio.get_running_loop(), 0
        at: list[int] = []

        class Noted(Part):
            def try_complete(self) -> bool:
                return False

            def expire(self) -> None:
                at.append(turns)
                super().expire()

        waits = [Noted() for _ in range(20)]
        for wait in waits:
            if kind == "fetches":
                room.park(wait, ["a"], 5)
            else:
                room.expire_after(wait, 5)

        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        turn()
        await waits[-1].expired.wait()
        assert len(at) == 20
        assert max(map(at.count, at)) <= 2
        assert (room.parked, len(room._over), room._ending) == (0, 0, {})

    run(scenario)


def test_a_wait_that_was_answered_leaves_no_timer() -> None:
    async def scenario(room: WaitingRoom) -> None:
        flags = [Flag() for _ in range(3)]
        forget = [room.park(flag, ["a"], 1000) for flag in flags]
        timers = [ending.timer for ending in room._ending.values()]
        for each in forget:
            each()
        assert not room._ending
        assert all(timer.cancelled() for timer in timers)

    run(scenario)


def test_a_deadline_answers_with_what_there_is() -> None:
    async def scenario(room: WaitingRoom) -> None:
        flag = Flag()
        room.park(flag, ["a"], 1)
        with suppress(TimeoutError):
            await asyncio.wait_for(flag.expired.wait(), BOUND_SECONDS / 2)
        assert flag.expiries == 1
        assert room.parked == 0
        room.wake("a")
        await turn()
        assert flag.asked == 1

    run(scenario)


def test_who_is_put_away_by_another_one_s_answer_is_not_asked() -> None:
    """Both were woken in one turn; a request is answered once."""

    async def scenario(room: WaitingRoom) -> None:
        second = Flag()

        class First(Flag):
            def try_complete(self) -> bool:
                if self.over:
                    forget_second()
                return super().try_complete()

        first = First()
        room.park(first, ["a"], 60_000)
        forget_second = room.park(second, ["a"], 60_000)
        first.over = second.over = True
        room.wake("a")
        await turn()
        assert (first.completed, second.completed, room.parked) == (1, 0, 0)

    run(scenario)


def test_what_is_forgotten_is_neither_asked_nor_answered() -> None:
    async def scenario(room: WaitingRoom) -> None:
        gone, other = Flag(), Flag()
        forget = room.park(gone, ["a", "b"], 1)
        room.park(other, ["a"], 100)
        forget()
        assert room.parked == 1
        asked = gone.asked
        room.wake("a")
        await other.expired.wait()
        assert gone.asked == asked
        assert not gone.expired.is_set()
        forget()  # its connection may end in two ways at once

    run(scenario)


def test_closing_answers_everybody() -> None:
    async def scenario(room: WaitingRoom) -> None:
        flag, part = Flag(), Part()
        room.park(flag, ["a", "b"], 60_000)
        room.expire_after(part, 60_000)
        room.close()
        assert flag.expired.is_set()
        assert part.expired.is_set()
        assert room.parked == 0

    run(scenario)


def test_offsets_are_released_in_their_order_and_not_before() -> None:
    async def scenario(_: WaitingRoom) -> None:
        queue, wait = OffsetQueue(), Part()
        for part, required in enumerate([30, 10, 20]):
            queue.add(required, wait, part)
        queue.release(9)
        assert wait.settled == []
        queue.release(20)
        assert wait.settled == [1, 2]
        queue.release_all()
        assert wait.settled == [1, 2, 0]
        assert len(queue) == 0

    run(scenario)


def test_an_expired_wait_is_neither_settled_nor_kept() -> None:
    async def scenario(room: WaitingRoom) -> None:
        queue, wait = OffsetQueue(), Part()
        queue.add(5, wait, 0)
        room.expire_after(wait, 1)
        await wait.expired.wait()
        queue.release(100)
        assert wait.settled == []
        queue.add(200, wait, 1)
        queue.drop_finished()
        assert len(queue) == 0

    run(scenario)


def test_a_wait_that_was_answered_in_time_does_not_expire() -> None:
    async def scenario(room: WaitingRoom) -> None:
        kept, other = Part(), Part()
        step = room.expire_after(kept, 1)
        room.keep(kept, step)
        room.expire_after(other, 100)
        await other.expired.wait()
        assert not kept.expired.is_set()

    run(scenario)


@pytest.mark.parametrize("begun_ms", [0, 1, 25, DEADLINE_STEP_MS - 1, DEADLINE_STEP_MS])
@pytest.mark.parametrize("timeout_ms", [0, 20, DEADLINE_STEP_MS, 1000])
def test_a_deadline_comes_in_its_step_and_never_early(begun_ms: int, timeout_ms: int) -> None:
    class Dated(Part):
        at_s = 0.0

        def expire(self) -> None:
            self.at_s = asyncio.get_running_loop().time()
            super().expire()

    async def story() -> None:
        loop = asyncio.get_running_loop()
        room, wait = WaitingRoom(loop, LoopClock()), Dated()
        await asyncio.sleep(begun_ms / 1000)
        began_s = loop.time()
        room.expire_after(wait, timeout_ms)
        await wait.expired.wait()
        waited_ms = round(1000 * (wait.at_s - began_s))
        assert timeout_ms <= waited_ms <= timeout_ms + DEADLINE_STEP_MS

    run_virtual(story)


def test_what_nobody_waits_for_any_more_is_not_registered() -> None:
    """Seen to fail: each key that was ever waited for was kept."""

    async def scenario(room: WaitingRoom) -> None:
        answered, left = Flag(), Flag()
        room.park(answered, ["a", "b"], 60_000)
        forget = room.park(left, ["b", "c"], 60_000)
        forget()
        answered.over = True
        room.wake("a")
        await turn()
        assert answered.completed == 1
        assert not room._watchers

    run(scenario)


def test_a_wait_that_breaks_costs_the_others_nothing() -> None:
    """All that was woken in one turn was forgotten when the first of it raised."""

    class Broken(Flag):
        def try_complete(self) -> bool:
            self.asked += 1
            assert self.asked == 1, "broken on purpose"
            return False

    async def scenario(room: WaitingRoom) -> None:
        complaints: list[dict[str, object]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        broken, others = Broken(), [Flag(), Flag()]
        for key, wait in enumerate([broken, *others]):
            room.park(wait, [key], 60_000)
        for key in (0, 1, 2):
            room.wake(key)
        for other in others:
            other.over = True
        for _ in range(10):
            await asyncio.sleep(0)
        assert [other.completed for other in others] == [1, 1]
        assert len(complaints) == 1
        assert room.parked == 1

    run(scenario)


def test_who_waits_when_the_node_stops_is_answered_once() -> None:
    """A node goes on for a while as it stops, for longer than its deadlines (seen to fail)."""

    async def scenario(room: WaitingRoom) -> None:
        flag, later = Flag(), Flag()
        room.park(flag, ["a"], 1)
        room.close()
        room.park(later, ["b"], 20)
        await later.expired.wait()
        assert flag.expiries == 1

    run(scenario)


def test_deadlines_that_are_weeks_away_leave_little_behind() -> None:
    """Seen to fail: a client that allows weeks left a timer for each twentieth of a second."""

    async def body(runtime: Runtime) -> None:
        room = WaitingRoom(asyncio.get_running_loop(), runtime.clock)
        for _ in range(2000):
            wait = Part()
            room.keep(wait, room.expire_after(wait, (1 << 31) - 1))
            await asyncio.sleep(0.05)
        assert len(room._deadlines) < 10
        patient = Part()
        room.expire_after(patient, 200_000)
        await asyncio.sleep(199.9)
        assert not patient.finished
        await asyncio.sleep(0.4)
        assert patient.finished

    virtual(body)
