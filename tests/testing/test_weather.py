"""Links in bad weather: what TCP hides costs time, what it can't hide ends connections.

Goal: the faults that a campaign asks for happen, each as a program over TCP would see it. Method:
two hosts on the virtual-time loop; one sends, and what arrives is looked at with its times.
"""

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
CALM = Weather(delay_us=(1_000, 1_000))


class Ear(asyncio.Protocol):
    """Notes what arrives, and when."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.data = b""
        self.times: list[float] = []
        self.lost: list[BaseException | None] = []
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.times.append(self.loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Two:
    """Host `a` (the test itself) is connected to host `b`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.fabric: Fabric = world.fabric
        self.fabric.weather = CALM
        self.fabric.split = 0.0
        self.b = world.machine("b")
        self.here = world.fabric.host("a")
        self.ears: list[Ear] = []
        self.mouth: Ear

    async def begin(self) -> None:
        async def serve(runtime: Runtime) -> None:
            def accept() -> Ear:
                self.ears.append(Ear())
                return self.ears[-1]

            await runtime.network.listen(accept, "b", PORT)
            await asyncio.get_running_loop().create_future()

        self.b.start(serve)
        await asyncio.sleep(0.1)
        self.mouth = await self.connect()
        await asyncio.sleep(0.1)

    async def connect(self) -> Ear:
        _, mouth = await self.here.connect(Ear, "b", PORT)
        return mouth

    async def say(self, count: int, size: int = 10) -> None:
        """Send so many pieces, a millisecond apart."""
        for number in range(count):
            self.mouth.transport.write(bytes([number % 256]) * size)
            await asyncio.sleep(0.001)


def play(scenario: Callable[[Two], Coroutine[Any, Any, None]], seed: int = 1) -> World:
    world = World(seed)

    async def main() -> None:
        two = Two(world)
        await two.begin()
        await scenario(two)

    world.run(main)
    return world


@pytest.mark.parametrize(
    ("weather", "later_s"),
    [
        (Weather(delay_us=(1_000, 1_000), loss=0.1), 0.1),
        (Weather(delay_us=(1_000, 1_000), reorder=0.1, reorder_us=50_000), 0.02),
        (Weather(delay_us=(1_000, 1_000), duplicate=0.5, bytes_per_s=76_000), 0.02),
    ],
    ids=["loss", "reordering", "duplicates on a full link"],
)
def test_tcp_hides_it_and_time_shows_it(weather: Weather, later_s: float) -> None:
    """Every byte arrives, once and in order; something in front holds up what comes behind."""

    async def scenario(two: Two) -> None:
        loop = asyncio.get_running_loop()
        two.fabric.change_weather("a", "b", weather)
        began = loop.time()
        await two.say(100)
        await asyncio.sleep(30)
        ear = two.ears[0]
        assert ear.data == b"".join(bytes([n]) * 10 for n in range(100))
        assert ear.times[-1] - began > 0.1 + later_s
        two.fabric.change_weather("a", "b", None)
        two.mouth.transport.write(b"calm")
        await asyncio.sleep(0.01)
        assert ear.data.endswith(b"calm")

    play(scenario)


def test_a_throttled_link_is_shared() -> None:
    async def scenario(two: Two) -> None:
        loop = asyncio.get_running_loop()
        other = await two.connect()
        two.fabric.change_weather("a", "b", Weather(delay_us=(1_000, 1_000), bytes_per_s=10_000))
        began = loop.time()
        for mouth in (two.mouth, other):
            mouth.transport.write(b"x" * 10_000)
        await asyncio.sleep(10)
        assert [len(ear.data) for ear in two.ears] == [10_000, 10_000]
        assert 1 < two.ears[0].times[-1] - began < 1.1
        assert 2 < two.ears[1].times[-1] - began < 2.2

    play(scenario)


def test_a_clogged_link_lets_all_through_afterwards() -> None:
    async def scenario(two: Two) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        two.fabric.clog("a", "b", 3.0)
        await two.say(5)
        await asyncio.sleep(4)
        assert [when - began for when in two.ears[0].times] == pytest.approx([3.0])

    play(scenario)


def test_a_forgotten_connection_is_half_open_until_its_sender_gives_up() -> None:
    async def scenario(two: Two) -> None:
        two.fabric.give_up_s = 20
        two.fabric.forget("a", "b")
        two.mouth.transport.write(b"into the void")
        await asyncio.sleep(19)
        assert (two.ears[0].data, two.mouth.lost, two.ears[0].lost) == (b"", [], [])
        await asyncio.sleep(2)
        assert [type(error) for error in two.mouth.lost] == [TimeoutError]
        assert two.ears[0].lost == [], "who sends nothing never learns"
        fresh = await two.connect()
        fresh.transport.write(b"hello")
        await asyncio.sleep(1)
        assert two.ears[1].data == b"hello"

    play(scenario)


@pytest.mark.parametrize("seconds", [10, 30])
def test_a_cut_longer_than_tcp_tries_ends_the_connection(seconds: int) -> None:
    async def scenario(two: Two) -> None:
        two.fabric.give_up_s = 20
        two.fabric.cut("a", "b")
        two.mouth.transport.write(b"hello")
        await asyncio.sleep(seconds)
        two.fabric.heal("a", "b")
        await asyncio.sleep(1)
        if seconds < 20:
            assert (two.ears[0].data, two.mouth.lost) == (b"hello", [])
        else:
            assert two.ears[0].data == b""
            assert [type(error) for error in two.mouth.lost] == [TimeoutError]

    play(scenario)


def test_acknowledgements_do_not_pass_a_cut_either() -> None:
    """Data gets through one way; the window does not open until the other way is mended."""

    async def scenario(two: Two) -> None:
        two.fabric.cut("b", "a")
        two.mouth.transport.write(b"x" * 1_000_000)
        await asyncio.sleep(60)
        assert len(two.ears[0].data) == 256 * 1024
        two.fabric.heal("b", "a")
        await asyncio.sleep(1)
        assert len(two.ears[0].data) == 1_000_000

    play(scenario)


def test_same_weather_same_seed_same_run() -> None:
    async def scenario(two: Two) -> None:
        two.fabric.weather = Weather(loss=0.05, reorder=0.05, duplicate=0.05, bytes_per_s=50_000)
        two.fabric.split = 0.5
        await two.say(50)
        await asyncio.sleep(30)

    digests = [play(scenario, seed).trace.digest for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]
