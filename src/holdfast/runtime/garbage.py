"""When a process looks for what only refers to itself, and at how much.

Owns the interpreter's collector in a node. Left alone it looks at everything that lives whenever a
quarter has come to it: with ten thousand replicas a third of a second in which the loop stands
still, and a quarter of what making them costs. Here what has outlived one collection is set aside
and not looked at again, so that a collection costs what is new. What is set aside and dies in a
circle stays, so everything is looked at once as much has come as there was then, and a little more.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

ROUNDS: Final = 5  # collections of what is young before one of all that is not set aside
_MIDDLE, _OLD = 1, 2  # generations: what is young is collected with the first of them
GROWTH_MIN: Final = 2_000_000  # objects, some 200 MB; before that nothing is looked at again
_YOUNG, _ROUNDS_BETWEEN = 700, 10  # the interpreter's own, of version 3.11
_NEVER: Final = 1 << 30


class Garbage:
    """Of the process; one in it."""

    def __init__(self) -> None:
        self._came = 0  # objects that were set aside since everything was looked at
        self._stayed = 0  # then
        self._asked = False  # for a look in the loop's next turn
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Look at nothing old by itself from now on."""
        gc.set_threshold(_YOUNG, _ROUNDS_BETWEEN, _NEVER)
        self.set_everything_aside()
        gc.callbacks.append(self._collected)

    def set_everything_aside(self) -> None:
        """Look at all there is, once."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._came, self._stayed = 0, gc.get_freeze_count()

    def look(self) -> None:
        """Collect what has come, if that is enough to be worth it."""
        self._asked = False
        if gc.get_count()[_OLD] < ROUNDS:
            return
        gc.collect()
        self._came += len(gc.get_objects(generation=_OLD))
        gc.freeze()
        if self._came > self._stayed + GROWTH_MIN:
            # Most of it may have died by itself: a crowd that came, waited and left.
            self._came = gc.get_freeze_count() - self._stayed
        if self._came > self._stayed + GROWTH_MIN:
            self.set_everything_aside()

    def _collected(self, phase: str, info: Mapping[str, int]) -> None:
        """Hear of a collection, in whichever thread it was: none may begin within it."""
        if phase != "stop" or info["generation"] != _MIDDLE or self._asked:
            return
        if gc.get_count()[_OLD] >= ROUNDS:
            self._asked = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.look)
