"""Relays between pairs of places, which obey the same table of links as far as TCP allows.

A direction that is cut carries nothing; with resets the connection is reset. One that is slowed
holds bytes back. Answers can be swallowed. Single packets are not to be seen here, so none is lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.cluster.network.delays import Room, Sharer, SlowLink
from holdfast.cluster.network.link_table import WHOLE, Answers, Cut, Link, Pair, Slow, Table
from holdfast.cluster.network.relays import relay
from holdfast.cluster.network.relays.answers import Connection, NotFramesError, Swallowing
from holdfast.cluster.network.relays.relay import End

ENDS_MAX: Final = 2000  # of all connections, which have two each
BEGUN_CHUNKS: Final = 4  # of a connection that can't go on yet
DIAL_TIMEOUT_S: Final = 60.0
ROOM_S: Final = 0.02  # between two looks whether a link has room


@dataclass(slots=True)
class _Slowing:
    """The time from when a link is slowed until it is slow no more, in one way or another.

    `turn`: of those who wait for its rate, in the order in which they have come.
    """

    is_over: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Waiting(Sharer):
    """What one direction of a connection has waiting on slowed links."""

    def __init__(self) -> None:
        super().__init__()
        self.is_less = asyncio.Event()


@dataclass(frozen=True, slots=True)
class Leaving:
    """What a slowed link has taken in: when it leaves by the loop's clock, its bytes, of whom."""

    at_s: float
    size: int
    link: SlowLink
    slowing: _Slowing
    waiting: Waiting

    def left(self) -> None:
        self.link.left(self.size, self.waiting)
        self.waiting.is_less.set()


class Relays:
    """All connections that are relayed, the table they obey, and what is swallowed of which."""

    def __init__(self, seed: str, ends_max: int = ENDS_MAX) -> None:
        self._seed, self._ends_max = seed, min(ends_max, ENDS_MAX)
        self._table: Table = {}
        self._changed = asyncio.Event()
        self._open: dict[Pair, set[End]] = {}  # by who dialled whom
        self._room = Room()  # also of what waits of links that are slow otherwise by now
        self._slow: dict[Pair, tuple[SlowLink, _Slowing]] = {}
        self._swallowing: dict[Pair, Swallowing] = {}
        self._kept_back: Counter[Pair] = Counter()

    def change(self, table: Table) -> None:
        """Obey this table from now on."""
        self._table = table
        before = self._slow
        self._slow = {
            pair: self._slowed(pair, link.slow)
            for pair, link in table.items()
            if link.slow is not None
        }
        for pair in before.keys() - self._slow.keys():
            before[pair][1].is_over = True
        self._swallowing = {
            pair: self._swallowing_of(pair, link.answers)
            for pair, link in table.items()
            if link.answers is not None
        }
        self._wake()
        for pair in self._open:
            if Cut.RESET in {self.link(pair).cut, self.link(pair[::-1]).cut}:
                self.end(pair)

    def _wake(self) -> None:
        """Have whoever waits look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _slowed(self, pair: Pair, how: Slow) -> tuple[SlowLink, _Slowing]:
        known = self._slow.get(pair)
        if known is not None and known[0].how == how:
            return known
        link = SlowLink(how, f"{self._seed} {pair}", self._room)
        return link, _Slowing() if known is None else known[1]

    def _swallowing_of(self, pair: Pair, what: Answers) -> Swallowing:
        known = self._swallowing.get(pair)
        return known if known is not None and known.what == what else Swallowing(what)

    def swallowing(self, pair: Pair) -> Swallowing | None:
        """Return what is swallowed on the way from a node (first) to a client."""
        return self._swallowing.get(pair)

    def swallowed(self) -> dict[Pair, int]:
        """Return how many answers were swallowed on each link where some are."""
        return {pair: each.swallowed for pair, each in self._swallowing.items()}

    def kept_back(self) -> Mapping[Pair, int]:
        """Return how often something came to a link that was cut, and waited until it is whole."""
        return self._kept_back

    def link(self, pair: Pair) -> Link:
        return self._table.get(pair, WHOLE)

    async def carry(self, pair: Pair, near: End, address: str, port: int) -> None:
        """Carry a connection that `pair` has begun to where it wanted to go."""
        ends = self._open.setdefault(pair, set())
        # No pair has more than is left for all others: what one of them does not let go of, of a
        # node that stands still, would keep nodes from each other.
        if len(ends) >= self._ends_max - sum(map(len, self._open.values())):
            near.reset()
            return
        ends.add(near)
        try:
            # Whoever dials over a cut link is accepted by the kernel, and then hears nothing.
            begun = await self._await_opening(pair, near)
            if begun is None:
                return
            far = await relay.dial(address, port, DIAL_TIMEOUT_S)
            ends.add(far)
            # Whoever begins to swallow resets what there is, so no connection needs it later.
            frames = None if self.swallowing(pair[::-1]) is None else Connection()
            there, back = (way(self, pair, frames, (near, far)) for way in (_There, _Back))
            try:
                await relay.join(near, far, there, back, begun)
            finally:
                ends.discard(far)
        except OSError:  # nobody there, or what was said is not to go on
            near.reset()
        finally:
            ends.discard(near)

    async def _await_opening(self, pair: Pair, near: End) -> list[bytes] | None:
        """Wait until both directions are open; return what was said meanwhile; None: it has gone.

        Who gives up must not take the place of others until the link is healed.
        """
        begun: list[bytes] = []
        opening = asyncio.create_task(self._both_opened(pair, near))
        try:
            while not opening.done():
                waited: set[asyncio.Task[Any]] = {opening}
                if len(begun) < BEGUN_CHUNKS:
                    reading = asyncio.create_task(near.reader.read(relay.CHUNK_BYTES))
                    waited.add(reading)
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if len(waited) == 1:
                    continue
                if not reading.done():
                    reading.cancel()
                elif data := reading.result():
                    begun.append(data)
                else:
                    near.writer.close()
                    return None
            opening.result()
            return begun
        finally:
            opening.cancel()

    async def _both_opened(self, pair: Pair, near: End) -> None:
        await self.opened(pair, (near,))
        await self.opened(pair[::-1], (near,))

    async def admit(self, pair: Pair, size: int, waiting: Waiting) -> Leaving | None:
        """Return when so many bytes may go on over a link; None: at once.

        Nothing may be lost here: who reads is held up until the link has room. `waiting`: what came
        before by the same way.
        """
        while (slowed := self._slow.get(pair)) is not None:
            link, slowing = slowed
            if not link.is_full_for(size, waiting):
                # Were all of them to look now and then, one who sends much would always be first:
                # what it has sent leaves at the very moment when the rate lets in some more.
                async with slowing.turn:
                    leaving = await self._let_in(pair, slowed, size, waiting)
                if leaving is not None:
                    return leaving
                continue
            waiting.is_less.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(ROOM_S):
                    await waiting.is_less.wait()
        return None

    async def _let_in(
        self, pair: Pair, slowed: tuple[SlowLink, _Slowing], size: int, waiting: Waiting
    ) -> Leaving | None:
        """Wait for a link's rate, whose turn it is. None: it has changed, or has no room now."""
        clock = asyncio.get_running_loop().time
        link, slowing = slowed
        while self._slow.get(pair) is slowed and not link.is_full_for(size, waiting):
            leaves_us = link.admit(int(clock() * 1e6), size, waiting)
            if leaves_us is not None:
                return Leaving(leaves_us / 1e6, size, link, slowing, waiting)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(link.lets_in_us() / 1e6):
                    await self._changed.wait()
        return None

    async def due(self, leaving: Leaving, ends: Sequence[End]) -> None:
        """Return when something may leave: once its time has come, or its link is slow no more.

        ConnectionResetError: we have ended the connection, which holds room for nothing now.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout_at(leaving.at_s):
                while not leaving.slowing.is_over:
                    _refuse_reset(ends)
                    await self._changed.wait()

    async def opened(self, pair: Pair, ends: Sequence[End]) -> None:
        """Return when something may pass a link. ConnectionResetError: nothing will.

        As of a connection that we have ended, however long its link stays cut.
        """
        if self.link(pair).cut is Cut.DROP:
            self._kept_back[pair] += 1
        while self.link(pair).cut is Cut.DROP:
            _refuse_reset(ends)
            await self._changed.wait()
        if self.link(pair).cut is Cut.RESET:
            raise ConnectionResetError

    def end(self, pair: Pair) -> bool:
        """Reset what this pair has begun; say whether there was anything that was not yet."""
        ends = [end for end in self._open.get(pair, ()) if not end.was_reset]
        for end in ends:
            end.reset()
        self._wake()
        return bool(ends)


def _refuse_reset(ends: Sequence[End]) -> None:
    if any(end.was_reset for end in ends):
        raise ConnectionResetError


class _Way:
    """One direction of a connection between a pair: what is on its way."""

    def __init__(
        self, relays: Relays, pair: Pair, frames: Connection | None, ends: Sequence[End]
    ) -> None:
        self._relays, self._pair, self._frames, self._ends = relays, pair, frames, ends
        self._admitted: deque[Leaving | None] = deque()
        self._waiting = Waiting()

    async def _admit(self, link: Pair, size: int) -> float:
        leaving = await self._relays.admit(link, size, self._waiting)
        self._admitted.append(leaving)
        return 0.0 if leaving is None else leaving.at_s

    async def due(self) -> None:
        if (leaving := self._admitted[0]) is not None:
            await self._relays.due(leaving, self._ends)

    def left(self) -> None:
        if (leaving := self._admitted.popleft()) is not None:
            leaving.left()

    def end(self) -> None:
        while self._admitted:
            self.left()


class _There(_Way):
    """From who dialled to whom."""

    async def admit(self, size: int) -> float:
        return await self._admit(self._pair, size)

    async def opened(self) -> None:
        await self._relays.opened(self._pair, self._ends)

    async def pass_on(self, data: bytes) -> bytes:
        await self.opened()
        try:
            if self._frames is not None:
                self._frames.asked(data)
        except NotFramesError:
            raise ConnectionResetError from None
        return data


class _Back(_Way):
    """From whom was dialled to who did."""

    async def admit(self, size: int) -> float:
        return await self._admit(self._pair[::-1], size)

    async def opened(self) -> None:
        await self._relays.opened(self._pair[::-1], self._ends)

    async def pass_on(self, data: bytes) -> bytes:
        await self.opened()
        if self._frames is None:
            return data
        try:
            kept, ends = self._frames.answered(data, self._relays.swallowing(self._pair[::-1]))
        except NotFramesError:
            raise ConnectionResetError from None
        if ends:
            raise relay.EndedError(kept)
        return kept
