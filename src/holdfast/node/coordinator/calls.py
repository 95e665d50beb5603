"""Requests that a coordinator has to answer: their numbers, and the way back to each.

A state machine knows a request by the number of its call alone (`core.log_machine`). Here stands
what the number means: whom to answer, and what to say when there will be no decision. Many answers
that are due together, as at the end of a large group's rebalance, leave in slices.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from holdfast.core.log_machine import Answer
from holdfast.wire.errors import ErrorCode

SLICE_S: Final = 0.005
FEW: Final = 8  # answers that leave at once


class Call(NamedTuple):
    """One request that waits: how it is answered, and refused."""

    answer: Callable[[Any], None]
    refuse: Callable[[ErrorCode], None]
    may_describe: Callable[[str], bool]  # whether its client may know of a topic


class Calls:
    """All requests that wait for a coordinator of this broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        provoke: Callable[[str], bool] = lambda _point: False,
    ) -> None:
        self._loop = loop
        self._provoke = provoke
        self._calls: dict[int, Call] = {}
        self._next = 0
        self._leaving: deque[Answer] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        """How many wait (a metric)."""
        return len(self._calls)

    def begin(self, call: Call) -> int:
        """Give a request its number. It is answered, refused or forgotten once."""
        number = self.take_number()
        self.wait(number, call)
        return number

    def take_number(self) -> int:
        """Return the number of a request that may be answered before it has to `wait`."""
        self._next += 1
        return self._next

    def wait(self, number: int, call: Call) -> None:
        """Have a request wait. It is answered, refused or forgotten once."""
        self._calls[number] = call

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is on its way out, which an answer would overtake."""
        return not self._leaving and not self._provoke("answers.none-at-once")

    def find(self, number: int) -> Call | None:
        """Return a request that still waits; None: it does no longer."""
        return self._calls.get(number)

    def forget(self, number: int) -> None:
        """Its connection is gone: nobody is answered."""
        self._calls.pop(number, None)

    def refuse(self, number: int, code: ErrorCode) -> None:
        """Answer with an error, unless nobody waits for it any more."""
        call = self._calls.pop(number, None)
        if call is not None:
            call.refuse(code)

    def send(self, answers: Iterable[Answer]) -> None:
        """Answer these, in their order: a few at once, many by turns with other work."""
        self._leaving.extend(answers)
        if self._is_scheduled:
            return
        if len(self._leaving) > FEW or self._provoke("answers.by-turns"):
            self._schedule()
        else:
            self._send_some()

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        self._send_some()

    def _send_some(self) -> None:
        until = self._loop.time() + SLICE_S
        try:
            while self._leaving:
                number, response = self._leaving.popleft()
                call = self._calls.pop(number, None)
                if call is not None:
                    call.answer(response)
                if self._loop.time() >= until:
                    break
        finally:
            # A mistake in one of them must not cost the others their answer.
            if self._leaving and not self._is_scheduled:
                self._schedule()
