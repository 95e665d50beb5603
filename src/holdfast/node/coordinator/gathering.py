"""One answer made of several: of a request that names several groups, or asks all shards.

The parts are asked for in their order, some at once and the rest by turns with other work: a client
names as many groups as it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol

from holdfast.node.door.request_context import Deferred

AT_ONCE: Final = 20  # parts that are asked for in one turn of the loop


class Part(Protocol):
    """Ask for one part: exactly one answer comes, now or later. None: it is over already."""

    def __call__(self, answer: Callable[[Any], None]) -> int | None: ...


class Gathering:
    """Parts of one answer, until all are there."""

    def __init__(
        self,
        deferred: Deferred,
        parts: Sequence[Part],
        answer: Callable[[list[Any]], Any],
        forget: Callable[[int], None],
    ) -> None:
        """`answer` makes the whole of the parts, which have their places."""
        self._deferred = deferred
        self._answer = answer
        self._forget = forget
        self._found: dict[int, Any] = {}  # by the part's place
        self._count = len(parts)
        self._calls: dict[int, int] = {}
        self._parts: Iterator[tuple[int, Part]] = iter(list(enumerate(parts)))
        self._turn: asyncio.Handle | None = None

    def begin(self) -> None:
        self._deferred.lost = self._lost
        if self._left:
            self._ask_some()
        else:
            self._finish()

    def _ask_some(self) -> None:
        self._turn = None
        asked = list(islice(self._parts, AT_ONCE))
        for place, part in asked:
            call = part(partial(self._came, place))
            if call is not None and place not in self._found:
                self._calls[place] = call
        if len(asked) == AT_ONCE and self._left:
            self._turn = asyncio.get_running_loop().call_soon(self._ask_some)

    @property
    def _left(self) -> int:
        return self._count - len(self._found)

    def _came(self, place: int, found: Any) -> None:
        self._calls.pop(place, None)
        self._found[place] = found
        if not self._left:
            self._finish()

    def _finish(self) -> None:
        self._deferred.answer(self._answer([self._found[place] for place in range(self._count)]))

    def _lost(self) -> None:
        """The client has gone: nothing more is asked for."""
        self._parts = iter(())
        if self._turn is not None:
            self._turn.cancel()
        for call in self._calls.values():
            self._forget(call)
