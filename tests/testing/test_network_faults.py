"""What the memory network does when told to: cuts, resets, hosts that die, hosts that go dark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.runtime.ports import Runtime
from holdfast.testing.ground.links import Weather
from holdfast.testing.ground.network import Fabric
from holdfast.testing.ground.runtime import World

PORT = 9092


class End(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.lost: list[BaseException | None] = []
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Two:
    """Machines a and b; b serves on PORT, and a (the test itself) is connected to it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.a, self.b = world.machine("a"), world.machine("b")
        self.accepted: list[End] = []
        self.client: End
        self.network = world.fabric.host("a")

    async def serve(self, runtime: Runtime) -> None:
        def accept() -> End:
            self.accepted.append(End())
            return self.accepted[-1]

        await runtime.network.listen(accept, "b", PORT)
        await asyncio.get_running_loop().create_future()

    async def connect(self) -> End:
        _, protocol = await self.network.connect(End, "b", PORT)
        return protocol

    async def begin(self) -> None:
        self.b.start(self.serve)
        await asyncio.sleep(0.1)
        self.client = await self.connect()


def play(scenario: Callable[[Two, Fabric], Coroutine[Any, Any, None]], seed: int = 1) -> World:
    world = World(seed)

    async def main() -> None:
        two = Two(world)
        await two.begin()
        await scenario(two, world.fabric)

    world.run(main)
    return world


@pytest.mark.parametrize("seed", range(5))
def test_cut_holds_bytes_back_and_loses_none(seed: int) -> None:
    async def scenario(two: Two, fabric: Fabric) -> None:
        server = two.accepted[0]
        fabric.cut("a", "b")
        two.client.transport.write(b"one")
        server.transport.write(b"back")
        await asyncio.sleep(60)
        assert (server.data, two.client.data) == (b"", b"back"), "a cut is one-way"
        two.client.transport.write(b"two")
        fabric.heal("a", "b")
        two.client.transport.write(b"three")
        await asyncio.sleep(1)
        assert server.data == b"onetwothree"
        assert not two.client.lost

    play(scenario, seed)


def test_connecting_through_a_cut_waits_and_gives_up() -> None:
    async def scenario(two: Two, fabric: Fabric) -> None:
        loop = asyncio.get_running_loop()
        fabric.isolate("b")
        began = loop.time()
        with pytest.raises(TimeoutError):
            await two.connect()
        assert loop.time() - began > 100
        waiting = loop.create_task(two.connect())
        await asyncio.sleep(10)
        assert not waiting.done()
        fabric.heal_all()
        await waiting

    play(scenario)


def test_reset_ends_both_sides() -> None:
    async def scenario(two: Two, fabric: Fabric) -> None:
        fabric.reset("a", "b")
        await asyncio.sleep(1)
        for end in (two.client, two.accepted[0]):
            assert [type(error) for error in end.lost] == [ConnectionResetError]

    play(scenario)


def test_crash_ends_connections_after_what_was_sent() -> None:
    async def scenario(two: Two, _: Fabric) -> None:
        two.accepted[0].transport.write(b"last words")
        two.b.crash()
        await asyncio.sleep(1)
        assert two.client.data == b"last words", "what the kernel had was still sent"
        assert two.client.lost == [None]
        assert not two.accepted[0].lost, "the dead hear nothing"
        with pytest.raises(ConnectionRefusedError):
            await two.connect()
        two.b.start(two.serve)
        await asyncio.sleep(1)
        await two.connect()

    play(scenario)


def test_crash_with_unread_bytes_resets() -> None:
    async def scenario(two: Two, _: Fabric) -> None:
        two.accepted[0].transport.pause_reading()
        two.client.transport.write(b"unread")
        await asyncio.sleep(1)
        two.b.crash()
        await asyncio.sleep(1)
        assert [type(error) for error in two.client.lost] == [ConnectionResetError]

    play(scenario)


def test_power_cut_is_silence_until_the_host_is_back() -> None:
    async def scenario(two: Two, _: Fabric) -> None:
        idle = await two.connect()
        two.accepted[0].transport.write(b"lost with the power")
        two.b.power_cut()
        two.client.transport.write(b"anybody?")
        await asyncio.sleep(600)
        assert not two.client.lost
        assert two.client.data == b""
        two.b.start(two.serve)
        await asyncio.sleep(1)
        assert [type(error) for error in two.client.lost] == [ConnectionResetError]
        assert not idle.lost, "who never sends never learns"
        fresh = await two.connect()
        fresh.transport.write(b"hello")
        await asyncio.sleep(1)
        assert two.accepted[-1].data == b"hello"

    play(scenario)


def test_pieces_have_no_borders() -> None:
    """Writes arrive cut and joined anew, or a parser that needs whole frames would pass."""
    sizes: set[int] = set()

    class Counting(End):
        def data_received(self, data: bytes) -> None:
            sizes.add(len(data))

    async def scenario(two: Two, fabric: Fabric) -> None:
        loop = asyncio.get_running_loop()
        server = two.accepted[0]
        server.transport.set_protocol(Counting())
        fabric.weather = Weather(delay_us=(0, 50_000))
        for n in range(200):
            loop.call_later(n / 100, two.client.transport.write, b"0123456789")
        await asyncio.sleep(10)
        assert min(sizes) < 10 < max(sizes)

    play(scenario)


def test_memory_changed_after_write_shows() -> None:
    """What the window doesn't take stays the caller's, as with asyncio from 3.12 on."""

    async def scenario(two: Two, _: Fabric) -> None:
        block = bytearray(b"a" * 1_000_000)
        two.accepted[0].transport.pause_reading()
        two.client.transport.write(block)
        block[:] = b"b" * len(block)
        two.accepted[0].transport.resume_reading()
        await asyncio.sleep(1)
        assert set(two.accepted[0].data) == {ord("a"), ord("b")}

    play(scenario)


def test_addresses_and_names_mean_the_same_host() -> None:
    async def scenario(two: Two, fabric: Fabric) -> None:
        address = two.client.transport.get_extra_info("peername")[0]
        assert address == fabric.address("b")
        _, protocol = await two.network.connect(End, address, PORT)
        assert protocol.transport.get_extra_info("peername") == (address, PORT)
        with pytest.raises(OSError, match="no host"):
            await two.network.connect(End, "nowhere", PORT)
        with pytest.raises(OSError, match="assign"):
            await two.network.listen(End, "b", 1)

    play(scenario)
