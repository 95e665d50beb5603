"""Goal: a relayed connection lives as long as either end wants it, and ends as they end it.

Method: a door between two sockets of this process, and the garbage collector at a bad moment.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from holdfast.cluster.network.relays.door import Door

LONG_S = 30.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def relayed(check: Callable[[Streams, Streams], Awaitable[None]]) -> None:
    """Run a check with both ends of a connection that goes through a door: outside, inside."""

    async def run() -> None:
        inside: asyncio.Queue[Streams] = asyncio.Queue()

        async def take_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await inside.put((reader, writer))

        async with asyncio.timeout(LONG_S):
            target = await asyncio.start_server(take_in, "127.0.0.1", 0)
            address = target.sockets[0].getsockname()
            door = Door(address)
            listening = await asyncio.start_server(door.let_in, "127.0.0.1", 0)
            port = listening.sockets[0].getsockname()[1]
            outside = await asyncio.open_connection("127.0.0.1", port)
            within = await inside.get()
            await check(outside, within)
            for _, writer in (outside, within):
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
            while door.connections:
                await asyncio.sleep(0)
            for server in (listening, target):
                server.close()

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
