"""What the network port promises, asked of TCP and of the network in memory.

Goal: a protocol that works in memory works over TCP. Method: the same tests run over both; what
differs by timing is waited for, never slept for.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.runtime.ports import Listener, Runtime

BIG = bytes(range(256)) * 8192  # 2 MiB: beyond what any buffer between two ends takes


class Recorder:
    """What a protocol was told, in order, and a way to wait for it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.data = bytearray()
        self.lost: BaseException | None = None
        self.stays_open = False
        self._changed = asyncio.Event()
        self.transport: asyncio.Transport

    def note(self, event: str) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_event(self, event: str) -> None:
        await self.until(lambda: event in self.events)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.note("made")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc
        self.note("lost")

    def pause_writing(self) -> None:
        self.note("pause")

    def resume_writing(self) -> None:
        self.note("resume")

    def eof_received(self) -> bool:
        self.note("eof")
        return self.stays_open


class Plain(Recorder, asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        self.data += data
        self.note("data")


class Buffered(Recorder, asyncio.BufferedProtocol):
    def __init__(self) -> None:
        super().__init__()
        self._buffer = bytearray(5000)

    def get_buffer(self, sizehint: int) -> bytearray:
        assert sizehint == -1 or sizehint > 0
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self._buffer[:nbytes]
        self.note("data")


class Pair:
    """Two ends of one connection."""

    def __init__(self, listener: Listener, server: Any, client: Any) -> None:
        self.listener = listener
        self.server = server
        self.client = client


async def connect(runtime: Runtime, server: type = Plain, client: type = Plain) -> Pair:
    accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def accept() -> Any:
        protocol = server()
        accepted.get_loop().call_soon(accepted.set_result, protocol)
        return protocol

    listener = await runtime.network.listen(accept, "127.0.0.1", 0)
    _, protocol = await runtime.network.connect(client, "127.0.0.1", listener.port)
    assert protocol.events == ["made"]
    other = await accepted
    await other.until_event("made")
    return Pair(listener, other, protocol)


async def end(pair: Pair) -> None:
    pair.listener.close()
    for side in (pair.client, pair.server):
        side.transport.abort()
        await side.until_event("lost")


@pytest.mark.parametrize("server", [Plain, Buffered])
@pytest.mark.parametrize("client", [Plain, Buffered])
def test_bytes_arrive_whole_and_in_order(world: Any, server: type, client: type) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime, server, client)
        pair.client.transport.write(BIG)
        pair.client.transport.writelines([b"a" * 70_000, bytearray(b"b"), memoryview(b"-c-")[1:2]])
        pair.server.transport.write(b"back")
        expected = BIG + b"a" * 70_000 + b"bc"
        await pair.server.until(lambda: len(pair.server.data) >= len(expected))
        await pair.client.until(lambda: len(pair.client.data) >= 4)
        assert (pair.server.data, pair.client.data) == (expected, b"back")
        await end(pair)

    world.run(main)


def test_writer_is_paused_while_nobody_reads(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        pair.server.transport.pause_reading()
        written = 0
        while "pause" not in pair.client.events:
            pair.client.transport.write(BIG)
            written += len(BIG)
            assert written < 100 * len(BIG)
        assert pair.client.transport.get_write_buffer_size() > 0
        assert not pair.server.data
        pair.server.transport.resume_reading()
        await pair.client.until_event("resume")
        await pair.server.until(lambda: len(pair.server.data) == written)
        assert pair.client.transport.get_write_buffer_size() == 0
        assert pair.client.events.count("pause") == pair.client.events.count("resume")
        await end(pair)

    world.run(main)


def test_write_buffer_limits_are_obeyed(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        pair.client.transport.set_write_buffer_limits(high=64 * len(BIG))
        pair.server.transport.pause_reading()
        for _ in range(20):
            pair.client.transport.write(BIG)
        assert "pause" not in pair.client.events
        pair.server.transport.resume_reading()
        await pair.server.until(lambda: len(pair.server.data) == 20 * len(BIG))
        await end(pair)

    world.run(main)


def test_close_sends_what_was_written_first(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        pair.client.transport.write(BIG)
        pair.client.transport.close()
        assert pair.client.transport.is_closing()
        pair.client.transport.write(b"too late")
        await pair.server.until_event("lost")
        await pair.client.until_event("lost")
        assert pair.server.data == BIG
        assert pair.server.events[-2:] == ["eof", "lost"]
        assert (pair.server.lost, pair.client.lost) == (None, None)
        await end(pair)

    world.run(main)


def test_abort_is_told_to_both_ends(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        pair.server.transport.pause_reading()
        for _ in range(10):
            pair.client.transport.write(BIG)
        pair.client.transport.abort()
        await pair.client.until_event("lost")
        assert pair.client.lost is None
        pair.server.transport.resume_reading()
        await pair.server.until_event("lost")
        assert pair.server.lost is None or isinstance(pair.server.lost, ConnectionResetError)
        assert len(pair.server.data) < 10 * len(BIG)
        await end(pair)

    world.run(main)


def test_half_closed_connection_still_answers(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        pair.server.stays_open = True
        pair.client.transport.write(b"question")
        pair.client.transport.write_eof()
        await pair.server.until_event("eof")
        pair.server.transport.write(b"answer")
        pair.server.transport.close()
        await pair.client.until_event("lost")
        assert (pair.server.data, pair.client.data) == (b"question", b"answer")
        await end(pair)

    world.run(main)


def test_writes_to_a_closed_peer_end_the_connection(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        pair.client.stays_open = True
        pair.server.transport.close()
        await pair.client.until_event("eof")
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(20):
            while "lost" not in pair.client.events:
                pair.client.transport.write(b"x")
                turn = loop.create_future()
                loop.call_later(0.001, turn.set_result, None)
                await turn
        assert isinstance(pair.client.lost, ConnectionError)
        await end(pair)

    world.run(main)


def test_nobody_listens(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.listen(Plain, "127.0.0.1", 0)
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await runtime.network.connect(Plain, "127.0.0.1", listener.port)

    world.run(main)


def test_port_is_taken_once(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.listen(Plain, "127.0.0.1", 0)
        with pytest.raises(OSError, match="in use") as caught:
            await runtime.network.listen(Plain, "127.0.0.1", listener.port)
        assert caught.value.errno == errno.EADDRINUSE
        listener.close()

    world.run(main)


def test_closed_listener_keeps_who_has_come(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        pair.listener.close()
        pair.client.transport.write(b"still")
        await pair.server.until(lambda: bytes(pair.server.data) == b"still")
        await end(pair)

    world.run(main)


def test_names_of_both_ends_agree(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        ours, theirs = pair.client.transport, pair.server.transport
        assert ours.get_extra_info("peername") == theirs.get_extra_info("sockname")
        assert ours.get_extra_info("sockname") == theirs.get_extra_info("peername")
        assert ours.get_extra_info("peername")[1] == pair.listener.port
        assert ours.get_extra_info("no such thing", 7) == 7
        await end(pair)

    world.run(main)


def test_protocol_that_fails_loses_its_own_connection(world: Any) -> None:
    class Failing(Plain):
        def data_received(self, data: bytes) -> None:
            raise ZeroDivisionError(len(data))

    async def main(runtime: Runtime) -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, about: reported.append(about))
        pair = await connect(runtime, Failing)
        pair.client.transport.write(b"x")
        await pair.server.until_event("lost")
        await pair.client.until_event("lost")
        assert isinstance(pair.server.lost, ZeroDivisionError)
        assert [type(about["exception"]) for about in reported] == [ZeroDivisionError]
        pair.listener.close()

    world.run(main)


def test_localhost_by_name_gets_one_port(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.listen(Plain, "localhost", 0)
        transport, _ = await runtime.network.connect(Plain, "127.0.0.1", listener.port)
        transport.abort()
        listener.close()

    if world.name == "real":
        world.run(main)
