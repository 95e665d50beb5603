"""Drives one light member over a connection of its own: what is asked, when, and where.

Owns the connection and the waits; what is asked is the member's to decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any, Final

from holdfast.clients.group_member.light_connection import LightConnection, connect
from holdfast.clients.group_member.light_member import LightMember, Partition, Place
from holdfast.clients.group_member.light_offsets import (
    COMMIT_VERSION_MAX,
    FETCH_VERSION_MAX,
    commit_of,
    fetch_of,
    offsets_of,
    refusals_of,
)
from holdfast.wire.schema import Request


class LightClient:
    """One member and its connection. For one event loop."""

    def __init__(self, member: LightMember, bootstrap: Place, client_id: str) -> None:
        self.member: Final = member
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._connection: LightConnection | None = None
        self._connected_to: Place | None = None
        self._nap: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Take part until the member has left or failed; cancelled, it ends as if killed."""
        member = self.member
        try:
            while not member.over:
                request = member.poll(now_ms())
                if request is None:
                    await self._sleep_until(member.due_ms)
                    continue
                try:
                    async with asyncio.timeout((member.due_ms - now_ms()) / 1000):
                        answer = await self._ask(request)
                except OSError:  # TimeoutError and ConnectionError are of that kind
                    self._close()
                    member.lost(now_ms())
                else:
                    member.answered(answer, now_ms())
        finally:
            self._close()

    def leave(self) -> None:
        """Leave in good order; `run` returns when that is done."""
        self.member.leave(now_ms())
        if self._nap is not None and not self._nap.done():
            self._nap.set_result(None)

    async def commit(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """Commit as the member; return the error code of each partition that was refused.

        ConnectionError: there is no coordinator now, or the answer was lost.
        """
        asked = self._live().ask(commit_of(self.member, offsets), COMMIT_VERSION_MAX)
        return refusals_of(await asked)

    async def committed(self, partitions: Iterable[Partition]) -> tuple[dict[Partition, int], int]:
        """Return what the group has committed, and an error code (see `offsets_of`)."""
        asked = self._live().ask(fetch_of(self.member, partitions), FETCH_VERSION_MAX)
        return offsets_of(await asked)

    def _live(self) -> LightConnection:
        connection = self._connection
        if connection is None or self.member.place != self._connected_to:
            raise ConnectionError("the member has no coordinator now")
        return connection

    async def _ask(self, request: Request) -> Any:
        place = self.member.place or self._bootstrap
        connection = self._connection
        if connection is None or not connection.is_open or self._connected_to != place:
            self._close()
            connection = self._connection = await connect(*place, self._client_id)
            self._connected_to = place
        return await connection.ask(request)

    async def _sleep_until(self, due_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._nap = nap = loop.create_future()
        timer = loop.call_at(due_ms / 1000, _wake, nap)
        try:
            await nap
        finally:
            timer.cancel()
            self._nap = None

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = self._connected_to = None


def now_ms() -> int:
    """Return the loop's time. Rounded up, so that what is due at a time is due when it comes."""
    return ceil(asyncio.get_running_loop().time() * 1000)


def _wake(nap: asyncio.Future[None]) -> None:
    if not nap.done():
        nap.set_result(None)
