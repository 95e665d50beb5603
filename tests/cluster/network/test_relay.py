"""Goal: a relayed connection lives as long as either end wants it, and ends as they end it.

Method: a door between two sockets of this process, and the garbage collector at a bad moment.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest
from tests.cluster.network.relayed_ends import LONG_S, Address, LetIn, Streams, relayed_ends

from holdfast.cluster.network.relays.door import Door


def relayed(check: Callable[[Streams, Streams], Awaitable[None]]) -> None:
    """Run a check with both ends of a connection that goes through a door: outside, inside."""

    async def run() -> None:
        doors: list[Door] = []

        def door_to(address: Address) -> LetIn:
            doors.append(Door(address))
            return doors[0].let_in

        async with relayed_ends(door_to) as ends:
            await check(*ends)
        async with asyncio.timeout(LONG_S):
            while doors[0].connections:
                await asyncio.sleep(0)

    asyncio.run(run())


def test_who_has_said_all_still_hears() -> None:
    async def check(outside: Streams, inside: Streams) -> None:
        outside[1].write(b"all")
        outside[1].write_eof()
        assert await inside[0].read() == b"all"
        gc.collect()
        await asyncio.sleep(0)
        inside[1].write(b"heard")
        inside[1].close()
        assert await outside[0].read() == b"heard"

    relayed(check)


def test_a_reset_is_passed_on() -> None:
    async def check(outside: Streams, inside: Streams) -> None:
        outside[1].write(b"x")
        assert await inside[0].read(1) == b"x"
        held = inside[1].get_extra_info("socket")
        held.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER: none
        inside[1].transport.abort()
        with pytest.raises(ConnectionResetError):
            await outside[0].read()

    relayed(check)


def test_more_than_a_buffer_passes_whole() -> None:
    size = 8 << 20

    async def check(outside: Streams, inside: Streams) -> None:
        async def send() -> None:
            outside[1].write(bytes(size))
            await outside[1].drain()
            outside[1].write_eof()

        sending = asyncio.create_task(send())
        assert await inside[0].read() == bytes(size)
        await sending
        inside[1].close()

    relayed(check)
