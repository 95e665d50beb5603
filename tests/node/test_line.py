"""Goal: who stands in line goes on once, in order, and nobody does while the line rests.

Method: a loop with virtual time.
"""

from __future__ import annotations

import asyncio

from holdfast.node.door.line import REST_FACTOR, Line
from holdfast.testing.ground.loop import VirtualLoop
from holdfast.testing.ground.loop import run as run_virtual


class Standing:
    def __init__(self, name: str, gone: list[str]) -> None:
        self.name = name
        self.gone = gone

    def take_turn(self) -> None:
        self.gone.append(self.name)


def test_turns_come_one_by_one_and_not_in_a_rest() -> None:
    """Also in a rest that begins when somebody's turn was to come next."""

    async def story() -> None:
        line, gone = Line(), list[str]()
        for name in "abc":
            line.add(Standing(name, gone))
        await asyncio.sleep(0)
        assert gone == ["a"]
        line.rest_after(1.0)
        await asyncio.sleep(0.9 * REST_FACTOR)
        assert gone == ["a"]
        assert line.is_resting
        await asyncio.sleep(0.2 * REST_FACTOR)
        assert gone == ["a", "b", "c"]
        assert len(line) == 0
        line.rest_after(1.0)
        line.add(Standing("d", gone))
        await asyncio.sleep(0.9 * REST_FACTOR)
        assert gone == ["a", "b", "c"]
        await asyncio.sleep(0.2 * REST_FACTOR)
        assert gone == ["a", "b", "c", "d"]
        line.rest_after(0.001, least_s=1.0)
        line.add(Standing("e", gone))
        await asyncio.sleep(0.9)
        assert len(line) == 1
        await asyncio.sleep(0.2)
        assert len(line) == 0

    run_virtual(story, loop=VirtualLoop())


def test_a_short_rest_does_not_end_a_long_one() -> None:
    """Else who sends a small dear request behind each large one is not held back at all."""

    async def story() -> None:
        line = Line()
        line.rest_after(0.1, least_s=1.0)
        line.rest_after(0.01)
        await asyncio.sleep(0.9)
        assert line.is_resting
        await asyncio.sleep(0.2)
        assert not line.is_resting

    run_virtual(story, loop=VirtualLoop())
