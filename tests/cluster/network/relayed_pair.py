"""A pair of places whose connections go through relays, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

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


async def hears_nothing(reader: asyncio.StreamReader) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(IN_VAIN_S):
            await reader.read(1)
