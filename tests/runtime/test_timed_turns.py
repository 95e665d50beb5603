"""Goal: what many are due for is done a few at a time, once each, and not for who is gone.

Method: virtual time, and keys that count the turns of the loop in which they have theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.runtime.timed_turns import TimedTurns
from holdfast.testing.ground.loop import run

FEW = 3


def played(story: Callable[[TimedTurns[int], list[int]], Coroutine[Any, Any, None]]) -> None:
    """Play with turns of which the keys that had them are listed."""
    done: list[int] = []

    async def body() -> None:
        await story(TimedTurns(done.append, in_a_turn=FEW), done)

    run(body)


def test_those_that_are_due_together_go_a_few_in_each_turn() -> None:
    async def story(turns: TimedTurns[int], done: list[int]) -> None:
        for key in range(5 * FEW):
            turns.add(key, 1000)
            turns.add(key, 1)  # is not sooner for that
        for key in range(5 * FEW, 10 * FEW):
            turns.now(key)
            turns.now(key)
        assert len(turns) == 10 * FEW
        assert done == [], "none before its turn"
        seen = []
        for _ in range(5):
            await asyncio.sleep(0)
            seen.append(len(done))
        assert seen == [FEW * turn for turn in range(1, 6)]
        await asyncio.sleep(0.9)
        assert len(done) == 5 * FEW
        while len(done) == 5 * FEW:
            await asyncio.sleep(0.001)
        for turn in range(7, 11):
            await asyncio.sleep(0)
            assert len(done) <= FEW * turn
        await asyncio.sleep(0.1)
        assert sorted(done) == [*range(10 * FEW)]
        assert not turns

    played(story)


def test_who_is_forgotten_has_no_turn() -> None:
    async def story(turns: TimedTurns[int], done: list[int]) -> None:
        for key in (1, 2):
            turns.add(key, 1000)
            turns.now(key)
        for _ in range(2):
            turns.forget(2)
        await asyncio.sleep(0.5)
        assert done == [1]
        turns.add(3, 1000)
        await asyncio.sleep(0.7)
        assert done == [1, 1], "it was due twice"
        turns.clear()
        assert not turns
        await asyncio.sleep(1)
        assert done == [1, 1]

    played(story)


def test_the_longest_time_there_is() -> None:
    async def story(turns: TimedTurns[int], done: list[int]) -> None:
        turns.add(1, 2**63 - 1)
        await asyncio.sleep(80_000)
        assert not done
        assert len(turns) == 1

    played(story)
