"""Goal: a relayed connection lives as long as either end wants it, and ends as they end it.

Method: a door between two sockets of this process, and the garbage collector at a bad moment.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest
from tests.cluster.network.relayed_ends import LONG_S, Address, LetIn, Streams, relayed_ends

from holdfast.cluster.network.relays import relay
from holdfast.cluster.network.relays.door import Door

IN_VAIN_S = 0.3


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


def test_what_nobody_takes_stays_with_who_sent_it() -> None:
    """Seen to fail: 4 MiB of each connection were held, of a thousand all the memory there is."""

    class Held(relay.Straight):
        """Lets nothing through."""

        admitted = 0

        async def admit(self, size: int) -> float:
            self.admitted += size
            return 0.0

        async def pass_on(self, _data: bytes) -> bytes:
            await asyncio.Event().wait()
            raise AssertionError

    async def run() -> None:
        held = Held()

        def relay_to(address: Address) -> LetIn:
            async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                near, far = relay.End(reader, writer), await relay.dial(*address, LONG_S)
                await relay.join(near, far, held, relay.Straight())

            return lead

        async with relayed_ends(relay_to) as (outside, _):
            outside[1].write(bytes(64 << 20))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(IN_VAIN_S):
                    await outside[1].drain()
            assert 0 < held.admitted <= 2 * relay.CHUNK_BYTES
            outside[1].transport.abort()

    asyncio.run(run())
