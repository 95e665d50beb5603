"""One answer made of several: of a request that names several groups, or asks all shards.

The parts are asked for in their order, some at once and the rest by turns with other work: a client
names as many groups as it likes. While a connection waits for such an answer nothing else of it is
looked at, as in Apache Kafka: what a hundred of them gather would be held for one client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, Protocol

from holdfast.node.coordinator.pieces import ANSWER_BYTES_MAX, Piece
from holdfast.node.door.request_context import Deferred
from holdfast.wire.errors import ErrorCode

AT_ONCE: Final = 20  # parts that are asked for in one turn of the loop, at most,
SLICE_S: Final = 0.002  # and for so long: one may be a group of thousands


class Part(Protocol):
    """One part of an answer."""

    def ask(self, answer: Callable[[Any], None]) -> int | None:
        """Ask for it: exactly one answer comes, now or later. None: it is over already."""

    def refused(self, code: ErrorCode) -> Any:
        """Return what stands for it when it is not asked for."""


_NO_PART: Final = (-1, None)


class Gathering:
    """Parts of one answer, until all are there."""

    def __init__(
        self,
        deferred: Deferred,
        parts: Iterable[Part],
        answer: Callable[[list[Any]], Any],
        forget: Callable[[int], None],
    ) -> None:
        """`answer` makes the whole of the parts, which have their places.

        Which parts there are is found out as they are asked for: it may be much work, too.
        """
        self._deferred = deferred
        self._answer = answer
        self._forget = forget
        self._found: dict[int, Any] = {}  # by the part's place
        self._bytes = 0
        self._asked = 0
        self._all_asked = False
        self._calls: dict[int, int] = {}
        self._parts: Iterator[tuple[int, Part | None]] = iter(enumerate(parts))
        self._turn: asyncio.Handle | None = None

    def begin(self) -> None:
        self._deferred.lost = self._lost
        self._ask_some()

    def _ask_some(self) -> None:
        self._turn = None
        loop = asyncio.get_running_loop()
        until = loop.time() + SLICE_S
        for _ in range(AT_ONCE):
            place, part = next(self._parts, _NO_PART)
            if part is None:
                self._all_asked = True
                self._finish_if_whole()
                return
            self._asked = place + 1
            self._ask(place, part)
            if loop.time() >= until:
                break
        self._turn = loop.call_soon(self._ask_some)

    def _ask(self, place: int, part: Part) -> None:
        if self._bytes > ANSWER_BYTES_MAX:
            self._came(place, part.refused(ErrorCode.POLICY_VIOLATION))
            return
        call = part.ask(partial(self._came, place))
        if call is not None and place not in self._found:
            self._calls[place] = call

    def _came(self, place: int, found: Any) -> None:
        self._calls.pop(place, None)
        self._found[place] = found
        if isinstance(found, Piece):
            self._bytes += len(found.data)
        self._finish_if_whole()

    def _finish_if_whole(self) -> None:
        if not self._all_asked or len(self._found) < self._asked:
            return
        found, self._found = self._found, {}
        self._deferred.answer(self._answer([found[place] for place in range(self._asked)]))
        # Later, not now: what was received meanwhile may end what others wait for, and so on.
        asyncio.get_running_loop().call_soon(self._deferred.proceed)

    def _lost(self) -> None:
        """The client has gone: nothing more is asked for."""
        self._parts = iter(())
        if self._turn is not None:
            self._turn.cancel()
        for call in self._calls.values():
            self._forget(call)
