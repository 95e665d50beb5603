"""Goal: a relayed link that is slowed holds back all that it carries, and only while it is slow.

Method: relays between sockets of this process, over links that are a minute late: what arrives at
all was not held back. Memory is bounded by what one link takes in while nothing leaves it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.cluster.network.relayed_ends import LONG_S, Streams
from tests.cluster.network.relayed_pair import (
    BACK,
    IN_VAIN_S,
    THERE,
    carrying,
    hears_nothing,
    relayed,
)

from holdfast.cluster.network import delays
from holdfast.cluster.network.link_table import Cut, Link, Slow
from holdfast.cluster.network.relays import pair_relays, relay
from holdfast.cluster.network.relays.pair_relays import Leaving, Relays, Waiting

LATE = Link(slow=Slow(latency_us=60_000_000))
NARROW = Link(slow=Slow(rate=1_000))
CHUNK = bytes(relay.CHUNK_BYTES)


@contextmanager
def in_vain() -> Iterator[None]:
    """Expect that the block waits for good."""
    with pytest.raises(TimeoutError):
        yield


@pytest.mark.parametrize("first", [b"q", CHUNK, 4 * CHUNK])
def test_what_a_connection_begins_with_is_as_late_as_all_else(first: bytes) -> None:
    """Method: it is said while the link is cut, so that it has come before anything is carried.

    Seen to fail: it arrived at once.
    """

    async def run() -> None:
        relays, heard = Relays("1"), asyncio.Queue[bytes]()
        carried: list[asyncio.Task[None]] = []

        async def take_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                await heard.put(await reader.readexactly(len(first)))
            writer.close()

        target = await asyncio.start_server(take_in, "127.0.0.1", 0)

        async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            address = target.sockets[0].getsockname()
            carrying = relays.carry(THERE, relay.End(reader, writer), *address)
            carried.append(asyncio.create_task(carrying))

        listening = await asyncio.start_server(lead, "127.0.0.1", 0)
        relays.change({THERE: Link(cut=Cut.DROP)})
        client = await asyncio.open_connection(*listening.sockets[0].getsockname())
        client[1].write(first)
        with in_vain():
            await asyncio.wait_for(heard.get(), IN_VAIN_S)
        relays.change({THERE: LATE})
        with in_vain():
            await asyncio.wait_for(heard.get(), IN_VAIN_S)
        relays.change({})
        assert await asyncio.wait_for(heard.get(), LONG_S) == first
        client[1].close()
        await asyncio.gather(*carried)
        for server in (listening, target):
            server.close()

    asyncio.run(run())


def test_what_waits_goes_on_when_its_link_is_whole() -> None:
    """Seen to fail: a link that was healed stayed as slow as it had been for what was on its way.

    Method: pieces of before and behind, whose order is told by what they say; a link that is slowed
    otherwise in between.
    """
    relays = Relays("1")

    async def check(client: Streams, node: Streams) -> None:
        relays.change({THERE: LATE})
        for number in range(3):
            client[1].write(b"%d" % number)
            await hears_nothing(node[0])
        relays.change({THERE: Link(slow=Slow(latency_us=50_000_000))})
        await hears_nothing(node[0])
        relays.change({})
        client[1].write(b"3")
        assert await node[0].readexactly(4) == b"0123"
        client[1].write_eof()
        assert await node[0].read() == b""

    relayed(relays, check)


def test_a_link_that_was_slowed_and_healed_at_one_go_holds_nothing_of_before() -> None:
    """The second `slow` comes before what waits has been let go."""
    relays = Relays("1")

    async def check(client: Streams, node: Streams) -> None:
        relays.change({THERE: LATE})
        client[1].write(b"before")
        await hears_nothing(node[0])
        relays.change({})
        relays.change({THERE: LATE})
        assert await node[0].readexactly(6) == b"before"
        client[1].write(b"behind")
        await hears_nothing(node[0])

    relayed(relays, check)


def test_a_link_slowed_anew_inherits_nothing() -> None:
    """Seen to fail: one byte waited for 256 KiB of a connection that had been reset before.

    Method: a rate at which those take four minutes, and what nobody has to wait for.
    """

    async def run() -> None:
        relays = Relays("1")
        relays.change({THERE: NARROW})
        waiting = Waiting()
        now = asyncio.get_running_loop().time
        with in_vain():
            while True:
                await asyncio.wait_for(relays.admit(THERE, len(CHUNK), waiting), IN_VAIN_S)
        relays.change({BACK: NARROW})
        relays.change({THERE: NARROW})
        begun = now()
        leaving = await asyncio.wait_for(relays.admit(THERE, 1, Waiting()), LONG_S)
        assert leaving is not None
        assert leaving.at_s - begun < relay.LAST_S

    asyncio.run(run())


def test_all_links_share_one_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what relays hold is bounded in all, and nobody takes all of it from the others.

    Method: links one after another, each of which takes in what it gets.
    """
    monkeypatch.setattr(delays, "ALL_WAITING_BYTES_MAX", 1 << 20)

    async def run() -> None:
        relays = Relays("1")
        pairs = [("client", str(number)) for number in range(4)]
        relays.change(dict.fromkeys(pairs, LATE))
        held: dict[tuple[str, str], list[object]] = {pair: [] for pair in pairs}
        for pair in pairs:
            waiting = Waiting()
            with suppress(TimeoutError):
                while True:
                    taking = relays.admit(pair, 60_000, waiting)
                    held[pair].append(await asyncio.wait_for(taking, 0.05))
        counts = [len(each) for each in held.values()]
        assert 12 <= sum(counts) <= (1 << 20) // 60_000
        assert min(counts) >= 1, "each has some room"
        relays.change({})
        assert await relays.admit(pairs[0], 60_000, waiting) is None, (
            "what goes on at once needs none"
        )

    asyncio.run(run())


@pytest.mark.parametrize("how", ["healed", "reset"])
def test_what_has_gone_on_or_never_will_makes_room(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Method: one connection takes all the room that its link gets, and then another way does."""
    monkeypatch.setattr(delays, "ALL_WAITING_BYTES_MAX", 1 << 20)
    relays = Relays("1")

    async def full() -> int:
        """Return how many pieces there is room for, and leave them there."""
        taken, waiting = [], Waiting()
        with suppress(TimeoutError):
            while True:
                taking = relays.admit(("a", "b"), 60_000, waiting)
                taken.append(await asyncio.wait_for(taking, 0.05))
        for each in taken:
            assert each is not None
            each.left()
        return len(taken)

    async def check(client: Streams, node: Streams) -> None:
        both = {THERE: LATE, ("a", "b"): LATE}
        relays.change(both)
        whole = await full()
        client[1].write(16 * CHUNK)
        await hears_nothing(node[0])
        assert await full() < whole
        if how == "healed":
            relays.change({("a", "b"): LATE})
            await node[0].readexactly(16 * len(CHUNK))
        else:
            relay.End(*client).reset()
            relays.end(THERE)
            with suppress(ConnectionResetError):
                assert await node[0].read() == b""
        assert await full() == whole

    relayed(relays, check)


@pytest.mark.parametrize("is_slow", [False, True])
def test_what_was_reset_on_a_cut_link_ends_before_it_heals(*, is_slow: bool) -> None:
    """Goal: what we have reset takes nobody's place, and holds no room, until its link is whole.

    Method: two connections have bytes that wait on a cut link, one begun before and one behind.

    Seen to fail: it waited for the heal with all that it held.
    """
    relays, slow = Relays("1"), Slow(latency_us=1) if is_slow else None

    async def run() -> None:
        async with carrying(relays) as carried:
            relays.change({THERE: Link(slow=slow)} if slow else {})
            begun, reached = await carried.connect()
            relays.change({THERE: Link(slow=slow, cut=Cut.DROP), BACK: Link(cut=Cut.DROP)})
            waiting = await asyncio.open_connection(*carried.address)
            for _, writer in (begun, waiting):
                writer.write(8 * CHUNK)
            await hears_nothing(reached[0])
            assert relays.end(THERE)
            await asyncio.wait_for(asyncio.gather(*carried.tasks), LONG_S)
            assert not relays.end(THERE), "nothing is left of them"
            for _, writer in (reached, begun, waiting):
                writer.close()

    asyncio.run(run())


@pytest.mark.slow
def test_who_does_not_read_keeps_no_other_connection_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: consumers that stand still on a slowed link silence nobody else on it.

    Method: nodes that read nothing, of connections that send until no more is taken in; then
    another one says more than fits into what they have left of a small room. Nobody looks again by
    time whether there is some: it goes on as soon as what it had waiting leaves.

    Seen to fail: they took all of the link's room, and nothing that came behind arrived.
    """
    monkeypatch.setattr(delays, "WAITING_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(pair_relays, "ROOM_S", LONG_S)

    async def run() -> None:
        relays = Relays("1")
        relays.change({THERE: Link(slow=Slow(latency_us=1_000))})
        async with carrying(relays) as carried:
            ends: list[Streams] = []
            for _ in range(8):
                client, node = await carried.connect()
                ends += (client, node)
                with in_vain():
                    while True:
                        client[1].write(CHUNK)
                        await asyncio.wait_for(client[1].drain(), IN_VAIN_S)
            client, node = await carried.connect()
            client[1].write(32 * CHUNK)
            await asyncio.wait_for(node[0].readexactly(32 * len(CHUNK)), LONG_S / 3)
            for _, writer in (*ends, client, node):
                writer.transport.abort()
            await asyncio.gather(*carried.tasks)

    asyncio.run(run())


def test_who_waits_for_room_goes_on_when_others_let_go_of_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Method: of two connections each has taken in what it gets, and only the other's leaves."""
    monkeypatch.setattr(delays, "ALL_WAITING_BYTES_MAX", 1 << 20)

    async def run() -> None:
        relays, taken = Relays("1"), list[Leaving]()
        relays.change({THERE: LATE})
        for waiting in (Waiting(), Waiting()):
            before = len(taken)
            while True:
                taking = asyncio.create_task(relays.admit(THERE, 60_000, waiting))
                if taking not in (await asyncio.wait([taking], timeout=IN_VAIN_S))[0]:
                    break
                leaving = taking.result()
                assert leaving is not None
                taken.append(leaving)
            if not before:
                taking.cancel()
        for leaving in taken[:before]:
            leaving.left()
        assert await asyncio.wait_for(taking, LONG_S) is not None

    asyncio.run(run())


@pytest.mark.parametrize("is_busy", [True, False])
def test_who_waits_for_a_rate_has_a_turn(monkeypatch: pytest.MonkeyPatch, is_busy: bool) -> None:
    """Goal: one connection that sends much on a link with a low rate keeps no other one waiting.

    Method: one sends piece after piece; another does so as well, or now and then, and counts what
    comes before it. Seen to fail: what the busy one had sent left just when the rate let in some
    more, so it was first each time, and others had no turn for a minute.
    """
    monkeypatch.setattr(delays, "BACKLOG_US_MAX", 0)  # so that only the four pieces may wait

    async def run() -> None:
        relays, entered = Relays("1"), list[str]()
        relays.change({THERE: Link(slow=Slow(rate=10_000_000))})

        async def send(name: str, count: int, pause_s: float) -> None:
            waiting = Waiting()
            passing = set[asyncio.Task[None]]()
            for _ in range(count):
                await asyncio.sleep(pause_s)
                asked = len(entered)
                leaving = await relays.admit(THERE, len(CHUNK), waiting)
                assert leaving is not None
                assert len(entered) - asked <= 2
                entered.append(name)
                passing.add(asyncio.create_task(leave(leaving)))
            await asyncio.gather(*passing)

        async def leave(leaving: Leaving) -> None:
            await relays.due(leaving, ())
            leaving.left()

        busy = asyncio.create_task(send("busy", 10_000, 0.0))
        while len(entered) < 8:
            await asyncio.sleep(0)
        await send("other", 20, 0.0 if is_busy else 0.01)
        busy.cancel()
        relays.change({})

    asyncio.run(run())


def test_whether_there_was_anything_to_end_is_said() -> None:
    """Seen to fail: what had been reset and had not ended yet was said to be reset once more."""
    relays = Relays("1")
    assert not relays.end(THERE)

    async def check(_client: Streams, node: Streams) -> None:
        assert not relays.end(BACK)
        assert relays.end(THERE)
        assert not relays.end(THERE), "it has been reset already"
        with pytest.raises(ConnectionResetError):
            await node[0].read()

    relayed(relays, check)
    assert not relays.end(THERE)
