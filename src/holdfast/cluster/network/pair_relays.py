"""Relays between pairs of places, which obey the same table of links as far as TCP allows.

A direction that is cut carries nothing; with resets the connection is reset. One that is slowed
holds bytes back. Answers can be swallowed. Single packets are not to be seen here, so none is lost.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from holdfast.cluster.network import relay
from holdfast.cluster.network.answers import Connection, NotFramesError, Swallowing
from holdfast.cluster.network.delays import SlowLink
from holdfast.cluster.network.link_table import WHOLE, Answers, Cut, Link, Pair, Table
from holdfast.cluster.network.relay import End

CONNECTIONS_MAX: Final = 2000
DIAL_TIMEOUT_S: Final = 60.0


class Relays:
    """All connections that are relayed, the table they obey, and what is swallowed of which."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._table: Table = {}
        self._changed = asyncio.Event()
        self._open: dict[Pair, set[End]] = {}  # by who dialled whom
        self._slow: dict[Pair, SlowLink] = {}
        self._swallowing: dict[Pair, Swallowing] = {}

    def change(self, table: Table) -> None:
        """Obey this table from now on."""
        self._table = table
        for pair, link in table.items():
            known = self._slow.get(pair)
            if link.slow is not None and (known is None or known.how != link.slow):
                self._slow[pair] = SlowLink(link.slow, f"{self._seed} {pair}")
        self._swallowing = {
            pair: self._swallowing_of(pair, link.answers)
            for pair, link in table.items()
            if link.answers is not None
        }
        self._changed.set()
        self._changed = asyncio.Event()
        for pair, ends in self._open.items():
            if Cut.RESET in {self.link(pair).cut, self.link(pair[::-1]).cut}:
                for end in ends:
                    end.reset()

    def _swallowing_of(self, pair: Pair, what: Answers) -> Swallowing:
        known = self._swallowing.get(pair)
        return known if known is not None and known.what == what else Swallowing(what)

    def swallowing(self, pair: Pair) -> Swallowing | None:
        """Return what is swallowed on the way from a node (first) to a client."""
        return self._swallowing.get(pair)

    def swallowed(self) -> dict[Pair, int]:
        """Return how many answers were swallowed on each link where some are."""
        return {pair: each.swallowed for pair, each in self._swallowing.items()}

    def link(self, pair: Pair) -> Link:
        return self._table.get(pair, WHOLE)

    async def carry(self, pair: Pair, near: End, address: str, port: int) -> None:
        """Carry a connection that `pair` has begun to where it wanted to go."""
        ends = self._open.setdefault(pair, set())
        if sum(map(len, self._open.values())) >= CONNECTIONS_MAX:
            near.reset()
            return
        ends.add(near)
        try:
            while not self.may_pass(pair) or not self.may_pass(pair[::-1]):
                if near.writer.transport.is_closing():
                    return
                await self._changed.wait()
            far = await relay.dial(address, port, DIAL_TIMEOUT_S)
            ends.add(far)
            frames = Connection()
            there, back = _There(self, pair, frames), _Back(self, pair, frames)
            try:
                await relay.join(near, far, there, back)
            finally:
                ends.discard(far)
        except OSError:  # nobody there
            near.reset()
        finally:
            ends.discard(near)

    def may_pass(self, pair: Pair) -> bool:
        return self.link(pair).cut is None

    async def hold_up(self, pair: Pair, size: int) -> None:
        """Return when so many bytes may go on over a link. ConnectionResetError: never."""
        slow = self._slow.get(pair)
        if self.link(pair).slow is not None and slow is not None:
            now_us = time.monotonic_ns() // 1000
            leaves_us = slow.admit(now_us, size)
            if leaves_us is not None:
                slow.left(size)
                await asyncio.sleep((leaves_us - now_us) / 1e6)
        while self.link(pair).cut is Cut.DROP:
            await self._changed.wait()
        if self.link(pair).cut is Cut.RESET:
            raise ConnectionResetError


class _There:
    """From who dialled to whom."""

    def __init__(self, relays: Relays, pair: Pair, frames: Connection) -> None:
        self._relays, self._pair, self._frames = relays, pair, frames

    async def pass_on(self, data: bytes) -> bytes:
        await self._relays.hold_up(self._pair, len(data))
        try:
            self._frames.asked(data)
        except NotFramesError:
            raise ConnectionResetError from None
        return data


class _Back:
    """From whom was dialled to who did."""

    def __init__(self, relays: Relays, pair: Pair, frames: Connection) -> None:
        self._relays, self._pair, self._frames = relays, pair, frames

    async def pass_on(self, data: bytes) -> bytes:
        await self._relays.hold_up(self._pair[::-1], len(data))
        try:
            kept, ends = self._frames.answered(data, self._relays.swallowing(self._pair[::-1]))
        except NotFramesError:
            raise ConnectionResetError from None
        if ends:
            raise ConnectionResetError
        return kept
