"""Goal: a relay obeys the table of links, in what it carries and in how connections end.

Method: relays between sockets of this process. Of time only what can't be shorter is asserted.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from contextlib import suppress

import pytest
from tests.cluster.network.relayed_ends import LONG_S, Address, LetIn, Streams
from tests.cluster.network.relayed_pair import BACK, THERE, hears_nothing, relayed

from holdfast.cluster.network.link_table import Answers, Cut, Link, Slow
from holdfast.cluster.network.relays import relay
from holdfast.cluster.network.relays.pair_relays import Relays, Waiting

CUT = Link(cut=Cut.DROP)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_nobody_hears_over_a_cut_that_the_other_has_gone(how: str) -> None:
    """Seen to fail: an end or a reset came through at once, where packets would have vanished."""
    relays = Relays("1")

    async def check(client: Streams, node: Streams) -> None:
        relays.change({BACK: CUT})
        if how == "close":
            node[1].close()
        else:
            relay.End(*node).reset()
        await hears_nothing(client[0])
        relays.change({})
        if how == "close":
            assert await client[0].read() == b""
        else:
            with pytest.raises(ConnectionResetError):
                await client[0].read()

    relayed(relays, check)


def test_what_comes_to_a_link_that_is_cut_is_counted() -> None:
    """Seen to fail: a cut whose only connection was relayed had dropped nothing, by its count."""
    relays = Relays("1")

    async def check(client: Streams, node: Streams) -> None:
        client[1].write(b"before")
        assert await node[0].readexactly(6) == b"before"
        assert not relays.kept_back()
        relays.change({THERE: CUT})
        client[1].write(b"meanwhile")
        await hears_nothing(node[0])
        assert relays.kept_back() == {THERE: 1}
        relays.change({})
        assert await node[0].readexactly(9) == b"meanwhile"
        assert relays.kept_back() == {THERE: 1}

    relayed(relays, check)


def test_nobody_hears_over_a_cut_that_nobody_reads() -> None:
    """The node has gone, which it can't say, and its client goes on sending."""
    relays = Relays("1")

    async def check(client: Streams, node: Streams) -> None:
        relays.change({BACK: CUT})
        node[1].write_eof()
        relay.End(*node).reset()
        for _ in range(3):
            client[1].write(b"anybody?")
            await hears_nothing(client[0])
        relays.change({})
        with suppress(ConnectionResetError):
            assert await client[0].read() == b""

    relayed(relays, check)


def test_an_answer_before_the_one_that_closes_arrives() -> None:
    """Seen to fail: what came in the same piece was lost as well."""
    relays = Relays("1")
    relays.change({BACK: Link(answers=Answers(api=0, count=1, close=True))})

    async def check(client: Streams, node: Streams) -> None:
        asked = struct.pack(">ihhi", 8, 1, 1, 1) + struct.pack(">ihhi", 8, 0, 1, 2)
        client[1].write(asked)
        assert await node[0].readexactly(len(asked)) == asked
        kept = struct.pack(">ii", 4 + 1000, 1) + bytes(1000)
        node[1].write(kept + struct.pack(">ii", 4, 2))
        assert await client[0].readexactly(len(kept)) == kept
        with pytest.raises(ConnectionResetError):
            await client[0].read()

    relayed(relays, check)


def test_a_rate_holds_for_more_than_its_backlog() -> None:
    """Seen to fail: what found no room in a second's backlog passed for nothing."""
    rate, size = 10_000_000, 64 << 10

    async def run() -> None:
        relays = Relays("1")
        relays.change({THERE: Link(slow=Slow(rate=rate))})
        begun = asyncio.get_running_loop().time()
        count = int(1.3 * rate / size)
        for _ in range(count):
            leaving = await relays.admit(THERE, size, Waiting())
            assert leaving is not None
            leaving.left()
        assert leaving is not None
        assert leaving.at_s >= begun + count * size / rate - 0.001
        assert await relays.admit(BACK, size, Waiting()) is None

    asyncio.run(run())


def test_what_was_said_before_and_is_no_frame_leaves_no_connection_behind() -> None:
    """Seen to fail: the node's end of it stayed open for good."""
    relays = Relays("1")
    swallowed = Link(answers=Answers(api=0, count=1))
    ends: list[bytes] = []

    async def run() -> None:
        ended = asyncio.Event()

        async def take_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                ends.append(await reader.read())
            writer.close()
            ended.set()

        async with asyncio.timeout(LONG_S):
            target = await asyncio.start_server(take_in, "127.0.0.1", 0)
            relays.change({BACK: swallowed, THERE: CUT})
            address, port = target.sockets[0].getsockname()
            taken = asyncio.Event()

            async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                carrying = asyncio.ensure_future(
                    relays.carry(THERE, relay.End(reader, writer), address, port)
                )
                taken.set()
                await carrying

            listening = await asyncio.start_server(lead, "127.0.0.1", 0)
            client = await asyncio.open_connection(*listening.sockets[0].getsockname())
            client[1].write(b"\xff" * 12)
            await taken.wait()
            await hears_nothing(client[0])
            relays.change({BACK: swallowed})
            await ended.wait()
            with suppress(OSError):
                assert await client[0].read() == b""
            client[1].close()
            for server in (listening, target):
                server.close()

    asyncio.run(run())


def test_no_pair_takes_the_place_of_all_others() -> None:
    """Seen to fail: a node that took nothing in kept other nodes from each other.

    Method: the first pair dials until it is refused; then another one is let through.
    """
    relays = Relays("1", ends_max=12)

    async def run() -> None:
        heard: asyncio.Queue[bytes] = asyncio.Queue()

        async def node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(100):
                await heard.put(data)
            writer.close()

        def relay_of(pair: tuple[str, str], address: Address) -> LetIn:
            async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await relays.carry(pair, relay.End(reader, writer), *address)

            return lead

        async def dial(server: asyncio.Server) -> Streams:
            return await asyncio.open_connection(*server.sockets[0].getsockname())

        async with asyncio.timeout(LONG_S):
            target = await asyncio.start_server(node, "127.0.0.1", 0)
            address = target.sockets[0].getsockname()
            servers = [
                await asyncio.start_server(relay_of(pair, address), "127.0.0.1", 0)
                for pair in (THERE, ("2", "1"))
            ]
            held = []
            with suppress(ConnectionResetError):
                while True:
                    reader, writer = await dial(servers[0])
                    held.append(writer)
                    writer.write(b"here")
                    await first_of(heard.get(), reader.read(1))
            assert len(held) == 4, "three have half of the places, and the last one is refused"
            held.append((await dial(servers[1]))[1])
            held[-1].write(b"others")
            assert await heard.get() == b"others"
            for writer in held:
                writer.transport.abort()
            for server in (*servers, target):
                server.close()

    asyncio.run(run())


async def first_of(*waited: Coroutine[None, None, bytes]) -> None:
    """Wait for one of these; the others are given up. Raises what it does."""
    tasks = [asyncio.create_task(each) for each in waited]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        done.pop().result()
    finally:
        for task in tasks:
            task.cancel()
