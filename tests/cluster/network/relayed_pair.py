"""A pair of places whose connections go through relays, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from tests.cluster.network.relayed_ends import Address, LetIn, Streams, relayed_ends

from holdfast.cluster.network.relays import relay
from holdfast.cluster.network.relays.pair_relays import Relays

IN_VAIN_S = 0.1
THERE, BACK = ("client", "1"), ("1", "client")


def relayed(relays: Relays, check: Callable[[Streams, Streams], Awaitable[None]]) -> None:
    """Run a check with both ends of a connection that is relayed: the client's, the node's."""

    def relays_to(address: Address) -> LetIn:
        async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await relays.carry(THERE, relay.End(reader, writer), *address)

        return lead

    async def run() -> None:
        async with relayed_ends(relays_to) as ends:
            await check(*ends)
            relays.change({})

    asyncio.run(run())


@dataclass
class Carried:
    """Connections that are relayed, as many as are made to `address`."""

    address: Address
    reached: asyncio.Queue[Streams]  # the node's ends, in the order in which they came
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def connect(self) -> tuple[Streams, Streams]:
        """Return both ends of a new connection: the client's, the node's."""
        client = await asyncio.open_connection(*self.address)
        return client, await self.reached.get()


@asynccontextmanager
async def carrying(relays: Relays) -> AsyncIterator[Carried]:
    """Yield where the client reaches the node by relays, with any number of connections."""
    reached: asyncio.Queue[Streams] = asyncio.Queue()

    async def take_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reached.put((reader, writer))

    target = await asyncio.start_server(take_in, "127.0.0.1", 0)

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = target.sockets[0].getsockname()
        task = relays.carry(THERE, relay.End(reader, writer), *address)
        carried.tasks.append(asyncio.create_task(task))

    listening = await asyncio.start_server(lead, "127.0.0.1", 0)
    carried = Carried(listening.sockets[0].getsockname(), reached)
    yield carried
    for server in (listening, target):
        server.close()


async def hears_nothing(reader: asyncio.StreamReader) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(IN_VAIN_S):
            await reader.read(1)
