"""Carries one TCP connection on to another: bytes, half-closes and resets, as they come.

What passes may be held up or changed by a `Passage` for each direction. A reset is passed on as
one, so that whoever is relayed sees what it would see without.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Final, Protocol

CHUNK_BYTES: Final = 64 << 10
WAITING_CHUNKS: Final = 64  # of one direction that is slowed
BUFFER_BYTES: Final = 1 << 20
_LINGER_NOT: Final = struct.pack("ii", 1, 0)


class Passage(Protocol):
    """What one direction of a connection goes through."""

    def when(self, size: int) -> float:
        """Return when so many bytes that come now may go on, by the loop's clock; 0: at once."""

    async def pass_on(self, data: bytes) -> bytes:
        """Return what of this goes on, when it may. ConnectionResetError: the connection ends."""


class Straight:
    """A passage that lets all through."""

    def when(self, _size: int) -> float:
        return 0.0

    async def pass_on(self, data: bytes) -> bytes:
        return data


class End:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def reset(self) -> None:
        """Close it so that the other side is told by an RST."""
        held = self.writer.get_extra_info("socket")
        with suppress(OSError):
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self.writer.transport.abort()


async def dial(address: str, port: int, timeout_s: float) -> End:
    """Connect. OSError, TimeoutError: it can't be had."""
    async with asyncio.timeout(timeout_s):
        return End(*await asyncio.open_connection(address, port, limit=CHUNK_BYTES))


async def join(near: End, far: End, there: Passage, back: Passage) -> None:
    """Carry both directions until both have ended, or one end breaks: then the other is reset."""
    ways = [
        asyncio.create_task(_carry(near, far, there)),
        asyncio.create_task(_carry(far, near, back)),
    ]
    try:
        await asyncio.gather(*ways)
    except OSError:
        for end in (near, far):
            end.reset()
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (near, far):
            end.writer.close()
            with suppress(OSError):
                await end.writer.wait_closed()


async def _carry(source: End, sink: End, passage: Passage) -> None:
    """Carry one direction: read what comes while what came before it still waits."""
    waiting: asyncio.Queue[tuple[float, bytes] | OSError | None] = asyncio.Queue(WAITING_CHUNKS)
    reading = asyncio.create_task(_read(source, passage, waiting))
    clock = asyncio.get_running_loop().time
    try:
        while (item := await waiting.get()) is not None:
            if isinstance(item, OSError):
                raise item
            when, data = item
            if when > clock():
                await asyncio.sleep(when - clock())
            if data := await passage.pass_on(data):
                sink.writer.write(data)
                await sink.writer.drain()
        with suppress(OSError):
            sink.writer.write_eof()
    finally:
        reading.cancel()


async def _read(
    source: End, passage: Passage, waiting: asyncio.Queue[tuple[float, bytes] | OSError | None]
) -> None:
    try:
        while data := await source.reader.read(CHUNK_BYTES):
            await waiting.put((passage.when(len(data)), data))
        await waiting.put(None)
    except OSError as error:
        await waiting.put(error)
