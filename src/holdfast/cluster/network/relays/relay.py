"""Carries one TCP connection on to another: bytes, half-closes and resets, as they come.

What passes may be held up or changed by a `Passage` for each direction. A reset is passed on as
one, so that whoever is relayed sees what it would see without.
"""

from __future__ import annotations

import asyncio
import fcntl
import resource
import socket
import struct
import termios
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

CHUNK_BYTES: Final = 64 << 10
WAITING_CHUNKS: Final = 64  # of one direction that is slowed
BUFFER_BYTES: Final = 1 << 20
LAST_S: Final = 5.0  # for the last bytes before a connection is ended
FILES_MAX: Final = 65_536  # that one process has open
SPARE_FILES: Final = 256  # for what is taken in to be refused, and for all but connections
_LINGER_NOT: Final = struct.pack("ii", 1, 0)


class EndedError(ConnectionResetError):
    """The connection is ended, behind these bytes."""

    def __init__(self, last: bytes) -> None:
        super().__init__()
        self.last = last


class Passage(Protocol):
    """What one direction of a connection goes through, the first that comes first."""

    async def admit(self, size: int) -> float:
        """Return when so many bytes that come now may go on, by the loop's clock; 0: at once.

        It takes them in as soon as there is room: who sends is held up until then.
        """

    async def due(self) -> None:
        """Return when the first of what was admitted may go on, which may be sooner by now.

        ConnectionResetError: the connection has ended meanwhile.
        """

    def left(self) -> None:
        """Note that the first of what was admitted has gone on, or has nowhere to go."""

    def end(self) -> None:
        """Note that nothing more goes on, whatever was admitted."""

    async def opened(self) -> None:
        """Return when something may go on: an end as well. ConnectionResetError: nothing will."""

    async def pass_on(self, data: bytes) -> bytes:
        """Return what of this goes on, when it may. ConnectionResetError: the connection ends."""


class Straight:
    """A passage that lets all through."""

    async def admit(self, _size: int) -> float:
        return 0.0

    async def due(self) -> None:
        pass

    def left(self) -> None:
        pass

    def end(self) -> None:
        pass

    async def opened(self) -> None:
        pass

    async def pass_on(self, data: bytes) -> bytes:
        return data


class End:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.was_reset = False  # by us
        writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def reset(self) -> None:
        """Close it so that the other side is told by an RST."""
        self.was_reset = True
        held = self.writer.get_extra_info("socket")
        with suppress(OSError):
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self.writer.transport.abort()


def take_room() -> int:
    """Let this process have as many open files as it may; return for how many connections.

    What is usual is 1024, and a connection has two ends.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    limit = FILES_MAX if soft == resource.RLIM_INFINITY else min(soft, FILES_MAX)
    return (limit - min(SPARE_FILES, limit // 4)) // 2


async def dial(address: str, port: int, timeout_s: float) -> End:
    """Connect. OSError, TimeoutError: it can't be had."""
    async with asyncio.timeout(timeout_s):
        return End(*await asyncio.open_connection(address, port, limit=CHUNK_BYTES))


async def join(
    near: End, far: End, there: Passage, back: Passage, begun: Sequence[bytes] = ()
) -> None:
    """Carry both directions until both have ended, or one end breaks: then the other is reset.

    `begun`: what was read of the near end already.
    """
    ways = [
        asyncio.create_task(_carry(near, far, there, back, begun)),
        asyncio.create_task(_carry(far, near, back, there)),
    ]
    try:
        await asyncio.gather(*ways)
    except OSError:
        for end in (near, far):
            end.reset()
    except asyncio.CancelledError:  # the process ends: what somebody does not read keeps it no more
        for end in (near, far):
            end.reset()
        raise
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (near, far):
            end.writer.close()
            with suppress(OSError):
                await end.writer.wait_closed()


_Waiting = asyncio.Queue[bytes | OSError]  # nothing: the end


async def _carry(
    source: End, sink: End, passage: Passage, back: Passage, begun: Sequence[bytes] = ()
) -> None:
    """Carry one direction: read what comes while what came before it still waits.

    How an end ends is told over the link, too: nobody hears of it while that is cut.
    """
    waiting: _Waiting = asyncio.Queue(WAITING_CHUNKS)
    reading = asyncio.create_task(_read(source, passage, waiting, begun))
    try:
        while True:
            said = await waiting.get()
            waiting.task_done()
            await passage.due()
            if isinstance(said, OSError):
                await passage.opened()
                raise said
            if not said:
                await passage.opened()
                break
            if data := await passage.pass_on(said):
                await _write(sink, data, back)
            passage.left()
        with suppress(OSError):
            sink.writer.write_eof()
    except EndedError as ended:
        await _write_last(sink, ended.last)
        raise
    finally:
        reading.cancel()  # at what it waits for now: it admits nothing more
        passage.end()


async def _write(sink: End, data: bytes, back: Passage) -> None:
    try:
        sink.writer.write(data)
        await sink.writer.drain()
    except OSError:
        await back.opened()  # that the sink has gone is said by the sink
        raise


async def _write_last(sink: End, data: bytes) -> None:
    """Write what comes before a reset, which would overtake it, and wait until it has arrived."""
    if not data:
        return
    with suppress(OSError, ValueError):  # a TimeoutError, too; ValueError: of a closed socket
        async with asyncio.timeout(LAST_S):
            sink.writer.transport.set_write_buffer_limits(high=0)
            sink.writer.write(data)
            await sink.writer.drain()
            held = sink.writer.get_extra_info("socket")
            while _unacknowledged(held):  # noqa: ASYNC110 - the kernel has no event for it
                await asyncio.sleep(0.001)


def _unacknowledged(held: socket.socket) -> int:
    """Return how many bytes the kernel has that the other side has not."""
    (size,) = struct.unpack("i", fcntl.ioctl(held.fileno(), termios.TIOCOUTQ, bytes(4)))
    return int(size)


async def _read(source: End, passage: Passage, waiting: _Waiting, begun: Sequence[bytes]) -> None:
    pieces = iter(begun)
    said: bytes | OSError = b"."
    while said and not isinstance(said, OSError):
        try:
            said = next(pieces, b"") or await source.reader.read(CHUNK_BYTES)
        except OSError as error:
            said = error
        when = await passage.admit(0 if isinstance(said, OSError) else len(said))
        await waiting.put(said)
        if not when:  # nothing is in flight: what nobody takes stays with who sent it
            await waiting.join()
