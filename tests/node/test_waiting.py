"""The waiting room: nobody waits for what has happened, and nobody waits for ever.

Goal: no wake-up is lost, deadlines are kept, and settled waits are forgotten. Method: a real loop
with short deadlines; completion is a flag that the test sets. No time is asserted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
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


def test_a_wait_is_asked_once_however_many_of_its_keys_are_woken() -> None:
    """A fetch looks at all its partitions when it is asked.

    Seen to fail: a thousand of them woken at once, by one produce request, were a million looks.
    """

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
