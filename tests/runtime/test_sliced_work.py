"""Goal: long work of requests takes turns, holds little at once, and ends when nobody waits.

Method: generators that note what they do, on a virtual loop with a worker in virtual time; between
any two slices the loop gets back to what else it has to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from holdfast.runtime import own_time
from holdfast.runtime.ports import WorkerFullError
from holdfast.runtime.sliced_work import HOLD, HOLDING_MAX, REST, Job, SlicedWork, Steps
from holdfast.testing.ground.loop import VirtualLoop
from holdfast.testing.ground.loop import run as run_virtual
from holdfast.testing.ground.worker import MemoryWorker
from holdfast.wire.errors import WireError


class Seen:
    """What became of some pieces of work, in the order in which it did."""

    def __init__(self, *, queue_max: int = 100, rests: bool = True) -> None:
        self.events: list[object] = []
        worker = MemoryWorker(1, queue_max=queue_max)
        self.work = SlicedWork(asyncio.get_running_loop(), worker, rests=rests)
        self.ends: list[Callable[[], None]] = []

    def begin(
        self, name: str, steps: Steps[object], kind: str = "look-ups", client: str = "c"
    ) -> None:
        self.ends.append(
            self.work.begin(
                steps,
                next(steps),
                queue=(kind, client),
                done=lambda outcome: self.events.append((name, outcome)),
                failed=lambda: self.events.append((name, "failed")),
            )
        )

    async def all_over(self) -> None:
        for _ in range(10_000):
            if not self.work.pieces:
                return
            await asyncio.sleep(0.001)
        raise AssertionError(f"{self.work.pieces} pieces go on for ever")


def played(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(story, loop=VirtualLoop())


def test_slices_take_turns_and_the_loop_gets_back_between_them() -> None:
    async def story() -> None:
        seen = Seen()

        def steps(name: str, kind: str | None) -> Steps[object]:
            for number in range(3):
                yield kind
                seen.events.append(f"{name}{number}")
                asyncio.get_running_loop().call_soon(seen.events.append, "loop")
            return "done"

        seen.begin("a", steps("a", REST))
        seen.begin("b", steps("b", HOLD))
        await seen.all_over()
        assert [e for e in seen.events if e != "loop"] == [
            "a0", "b0", "b1", "a1", "b2", ("b", "done"), "a2", ("a", "done"),
        ]  # fmt: skip
        gaps = [seen.events.index(slice_) for slice_ in ("a0", "b0", "b1", "a1", "b2", "a2")]
        assert all("loop" in seen.events[at:next_] for at, next_ in pairwise(gaps))

    played(story)


def test_others_have_the_loop_for_twice_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: a look-up that took half a second took the next one a millisecond later."""
    spent = [0.0]
    monkeypatch.setattr(own_time, "thread_time", lambda: spent[0])

    async def story() -> None:
        seen = Seen()
        loop = VirtualLoop.running()
        turns: list[tuple[float, float]] = []

        def steps() -> Steps[object]:
            for took_s in (0.5, 0.25, 0.0):
                yield HOLD
                began = loop.now
                loop.now += took_s
                spent[0] += took_s
                turns.append((began, loop.now))
            return None

        seen.begin("piece", steps())
        await seen.all_over()
        for (began, ended), (next_one, _) in pairwise(turns):
            assert next_one - ended >= 2 * (ended - began)

    played(story)


def test_a_slice_in_which_the_process_stood_still_costs_no_such_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen to fail: a minute of SIGSTOP had all such work stand still for two more."""
    monkeypatch.setattr(own_time, "thread_time", lambda: 0.0)

    async def story() -> None:
        seen = Seen()
        loop = VirtualLoop.running()

        def steps() -> Steps[object]:
            yield HOLD
            loop.now += 60
            yield HOLD
            return loop.now

        began = loop.now
        seen.begin("piece", steps())
        await seen.all_over()
        assert seen.events == [("piece", pytest.approx(began + 60, abs=1))]

    played(story)


def test_work_that_is_for_all_does_not_rest() -> None:
    """Seen to fail: Metadata of ten thousand partitions took two seconds while a broker started.

    Method: a slice takes no virtual time, so without rests all of them are over at once.
    """

    async def story() -> None:
        seen = Seen(rests=False)
        loop = asyncio.get_running_loop()

        def steps() -> Steps[object]:
            for _ in range(3):
                loop.call_soon(seen.events.append, "loop")
                yield REST
                seen.events.append(loop.time())
            return "done"

        began = loop.time()
        seen.begin("a", steps())
        await seen.all_over()
        assert seen.events == ["loop", began] * 3 + [("a", "done")]

    played(story)


def test_few_are_in_the_middle_of_something() -> None:
    """Also when many begin at once, each with a job, and when one rests in between."""

    async def story() -> None:
        seen = Seen()
        held: set[int] = set()
        most = 0

        def steps(number: int) -> Steps[object]:
            nonlocal most
            for _ in range(2):
                body: object = yield lambda: held.add(number)
                assert body is None
                most = max(most, len(held))
                yield HOLD
                held.discard(number)
                yield REST
            return number

        for number in range(5 * HOLDING_MAX):
            seen.begin("piece", steps(number))
        await seen.all_over()
        assert len(seen.events) == 5 * HOLDING_MAX
        assert 1 < most <= HOLDING_MAX

    played(story)


def test_a_job_s_failure_comes_back_to_who_asked_for_it() -> None:
    async def story() -> None:
        seen = Seen()

        def fails() -> None:
            raise WireError("it does not inflate")

        def steps() -> Steps[object]:
            try:
                yield fails
            except WireError as error:
                return str(error)
            return "no failure"

        seen.begin("piece", steps())
        await seen.all_over()
        assert seen.events == [("piece", "it does not inflate")]

    played(story)


def test_a_full_worker_is_nobody_s_mistake_and_others_go_on() -> None:
    async def story() -> None:
        seen = Seen(queue_max=0)

        def steps(wanted: Job | str | None) -> Steps[object]:
            yield wanted
            return "done"

        seen.begin("full", steps(lambda: None))
        seen.begin("other", steps(HOLD))
        await seen.all_over()
        assert seen.events == [("full", "failed"), ("other", "done")]
        assert issubclass(WorkerFullError, Exception)

    played(story)


def test_a_mistake_ends_one_piece_and_is_told() -> None:
    async def story() -> None:
        seen = Seen()
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: told.append(str(context["exception"]))
        )

        def wrong() -> Steps[object]:
            yield HOLD
            raise AssertionError("a bug")

        def right() -> Steps[object]:
            yield HOLD
            return "done"

        seen.begin("wrong", wrong())
        seen.begin("right", right())
        await seen.all_over()
        assert (told, seen.events) == (["a bug"], [("wrong", "failed"), ("right", "done")])

    played(story)


@pytest.mark.parametrize("kind", ["rest", "hold", "job"])
def test_what_nobody_waits_for_ends_and_gives_its_place_back(kind: str) -> None:
    async def story() -> None:
        seen = Seen()
        wanted: Job | str | None = {"rest": REST, "hold": HOLD, "job": lambda: None}[kind]

        def steps(number: int) -> Steps[object]:
            try:
                while True:
                    yield wanted
            finally:
                seen.events.append(number)

        for number in range(2 * HOLDING_MAX):
            seen.begin("piece", steps(number))
        await asyncio.sleep(0.01)
        for end in seen.ends:
            end()
            end()
        assert sorted(map(str, seen.events)) == sorted(map(str, range(2 * HOLDING_MAX)))
        await seen.all_over()

    played(story)


def test_one_that_is_ended_out_of_its_own_slice() -> None:
    """Its connection is lost by what it does: it is not asked again."""

    async def story() -> None:
        seen = Seen()

        def steps() -> Steps[object]:
            yield HOLD
            seen.ends[0]()
            yield HOLD
            seen.events.append("asked again")
            return None

        seen.begin("piece", steps())
        await seen.all_over()
        assert seen.events == []

    played(story)


def test_nothing_goes_on_when_the_node_stops() -> None:
    async def story() -> None:
        seen = Seen()

        def steps() -> Steps[object]:
            while True:
                yield HOLD
                seen.events.append("goes on")

        seen.begin("piece", steps())
        seen.work.close()
        await asyncio.sleep(0.1)
        assert seen.events == []

    played(story)


def endless() -> Steps[object]:
    while True:
        yield REST


def test_who_begins_many_waits_for_himself() -> None:
    """Seen to fail: a producer waited 23 s behind look-ups that one client had sent."""

    async def story() -> None:
        seen = Seen()

        def steps(name: str) -> Steps[object]:
            yield REST
            seen.events.append(name)
            return None

        for number in range(20):
            seen.begin("piece", steps(f"many {number}"), client="many")
        seen.begin("piece", steps("one"), client="one")
        seen.begin("piece", steps("append"), kind="appends", client="other")
        await seen.all_over()
        order = [event for event in seen.events if isinstance(event, str)]
        assert order[:5] == ["many 0", "append", "one", "many 1", "many 2"]
        assert order[5:] == [f"many {number}" for number in range(3, 20)]

    played(story)


def test_what_nobody_waits_for_takes_no_turn_and_is_not_kept() -> None:
    """Seen to fail: 13,000 look-ups whose clients had gone took a millisecond each, and memory."""

    async def story() -> None:
        seen = Seen()
        for number in range(1000):
            seen.begin("piece", endless(), client=f"c{number}")
        assert seen.work.pieces == 1000
        for end in seen.ends:
            end()
        assert seen.work.pieces == 0
        began = asyncio.get_running_loop().time()
        seen.begin("alive", (value for value in (REST,)))
        await seen.all_over()
        assert asyncio.get_running_loop().time() - began < 0.01

    played(story)
