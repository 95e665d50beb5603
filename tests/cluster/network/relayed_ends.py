"""Both ends of a connection that goes through a relay, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Address = tuple[str, int]
LetIn = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

LONG_S = 30.0


@asynccontextmanager
async def relayed_ends(
    relay_to: Callable[[Address], LetIn],
) -> AsyncIterator[tuple[Streams, Streams]]:
    """Yield the end that dialled, and the one that was reached. They are closed at the end.

    `relay_to` gets the address that is to be reached, and returns what carries a connection there.
    """
    inside: asyncio.Queue[Streams] = asyncio.Queue()

    async def take_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await inside.put((reader, writer))

    async with asyncio.timeout(LONG_S):
        target = await asyncio.start_server(take_in, "127.0.0.1", 0)
        let_in = relay_to(target.sockets[0].getsockname())
        listening = await asyncio.start_server(let_in, "127.0.0.1", 0)
        outside = await asyncio.open_connection(*listening.sockets[0].getsockname())
        within = await inside.get()
        yield outside, within
        for _, writer in (outside, within):
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        for server in (listening, target):
            server.close()
