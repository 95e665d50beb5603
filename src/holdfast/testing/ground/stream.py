"""One end of a connection in memory: a transport that behaves as asyncio's own over TCP.

Owns flow control (a bounded window to the other end, pause and resume of the protocol), the
pieces in which bytes arrive, and the order of a connection's end. It must never decide when
something arrives: the wire does (`testing.ground.network`).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from holdfast.runtime.ports import Buffer
from holdfast.testing.ground.loop import VirtualLoop
from holdfast.testing.ground.trace import brief

WINDOW_BYTES = 256 * 1024  # in flight or unread at the other end, as kernels buffer
_HIGH_WATER_BYTES = 64 * 1024
_RECEIVE_BYTES_MAX = 256 * 1024
_WRITES_AFTER_LOSS_MAX = 1_000


class Wire(Protocol):
    """One direction from an end to the other. Keeps order; may delay, hold, or swallow."""

    def carry(self, data: bytes) -> None: ...

    def acknowledge(self, count: int) -> None:
        """Tell the other end that so many of its bytes were read."""

    def finish(self) -> None:
        """Carry the end of the stream, behind all data."""

    def reset(self) -> None:
        """Carry a reset, which overtakes what the other end has not read."""


class Registry(Protocol):
    """Who knows all ends: it is told of what happens at one, and of its end."""

    @property
    def fold(self) -> Callable[..., None]: ...

    @property
    def over(self) -> list[MemoryTransport]: ...


class MemoryTransport(asyncio.Transport):
    """One end. The wire calls `arrive`, `arrive_end`, `arrive_reset`; the protocol the rest."""

    def __init__(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        wire: Wire,
        context: contextvars.Context,
        extra: dict[str, Any],
        registry: Registry,
    ) -> None:
        super().__init__(extra)
        self._loop = VirtualLoop.running()
        self._factory = factory
        self._protocol = asyncio.BaseProtocol()  # until its process makes the real one
        self._wire = wire
        self._context = context
        self._fold = registry.fold
        self._over = registry.over
        here, there = extra["sockname"], extra["peername"]
        self._names = f"{here[0]}:{here[1]}", f"{there[0]}:{there[1]}"
        self._window = WINDOW_BYTES
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._high, self._low = _HIGH_WATER_BYTES, _HIGH_WATER_BYTES // 4
        self._protocol_paused = False
        self._unread: deque[bytes] = deque()
        self._end_arrived = False
        self._end_told = False
        self._reading_paused = False
        self._receive_scheduled = False
        self._closing = False
        self._eof_written = False
        self._lost = False  # connection_lost is scheduled or was called
        self._writes_after_loss = 0
        self.vanished = False  # its process is gone: nothing is told to it

    # The protocol's side.

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused and not self._closing:
            self._reading_paused = False
            self._schedule_receive()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def write(self, data: Buffer) -> None:
        if type(data) is bytes and self._is_clear and 0 < len(data) <= self._window:
            self._window -= len(data)
            self._wire.carry(data)
            return
        self._enqueue(data)
        self._pump()
        self._maybe_pause()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        parts = list(list_of_data)
        size = sum(map(len, parts))
        if self._is_clear and 0 < size <= self._window:
            self._window -= size
            self._wire.carry(b"".join(parts))
            return
        for data in parts:
            self._enqueue(data)
        self._pump()
        self._maybe_pause()

    def write_eof(self) -> None:
        if self._closing or self._eof_written:
            return
        self._eof_written = True
        self._pump()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._unread.clear()
        self._pump()

    def abort(self) -> None:
        self._lose(None)

    # The wire's side. It calls nothing of these on an end that has vanished.

    def arrive(self, data: bytes) -> None:
        if self._lost:
            self._wire.reset()  # the socket is closed: nobody will read this
        elif not self._closing:
            self._unread.append(data)
            if not self._receive_scheduled:
                self._schedule_receive()

    def arrive_end(self) -> None:
        if not self._lost:
            self._end_arrived = True
            self._schedule_receive()

    def arrive_reset(self) -> None:
        self.arrive_failure(ConnectionResetError("Connection reset by peer"))

    def arrive_failure(self, error: OSError) -> None:
        """The kernel has given this connection up."""
        self._lose(error, tell=False)

    def open(self, connected: Callable[[], None] | None = None) -> None:
        """Make the protocol and tell it, then begin to read; `connected` runs right after.

        The process does that when it has a turn: who is paused accepts all the same, as kernels do.
        """

        def begin() -> None:
            self._protocol = self._factory()
            self._protocol.connection_made(self)
            if connected is not None:
                connected()

        self._soon(begin)

    def vanish(self) -> bool:
        """Its process is dead. True if unread bytes lay here, which makes a kernel reset."""
        self.vanished = True
        self._over.append(self)
        self._unsent.clear()
        self._unsent_bytes = 0
        unread = bool(self._unread)
        self._unread.clear()
        return unread

    # Sending.

    @property
    def _is_clear(self) -> bool:
        """Whether what is written now goes out at once, as far as the window takes it."""
        return not self._unsent and not self._closing and not self._lost and not self._eof_written

    def _enqueue(self, data: Buffer) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data: expecting a bytes-like instance, got {type(data).__name__}")
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._lost or self._closing:
            self._writes_after_loss += 1
            assert self._writes_after_loss < _WRITES_AFTER_LOSS_MAX, "writes to a lost connection"
            return
        if len(data):
            # A view, not a copy: as asyncio from 3.12 on, what the window doesn't take stays the
            # caller's memory, and who changes it after the call is caught in a simulation.
            self._unsent.append(memoryview(data))
            self._unsent_bytes += len(data)

    def _pump(self) -> None:
        """Send as much as the window takes; then whatever end was waiting for that."""
        while self._unsent and self._window and not self._lost:
            piece = self._unsent[0]
            if len(piece) <= self._window:
                self._unsent.popleft()
            else:
                piece, self._unsent[0] = piece[: self._window], piece[self._window :]
            self._window -= len(piece)
            self._unsent_bytes -= len(piece)
            self._wire.carry(bytes(piece))
        if self._protocol_paused and self._unsent_bytes <= self._low:
            self._protocol_paused = False
            self._soon(self._protocol.resume_writing)
        if self._unsent or self._lost:
            return
        if self._closing:
            self._wire.finish()
            self._lost = True
            self._over.append(self)
            self._soon(self._tell_lost, None)
        elif self._eof_written:
            self._wire.finish()

    def _maybe_pause(self) -> None:
        if self._unsent_bytes > self._high and not self._protocol_paused:
            self._protocol_paused = True
            self._protocol.pause_writing()

    def was_read(self, count: int) -> None:
        """The other end has read: the window opens."""
        self._window += count
        assert self._window <= WINDOW_BYTES, "more was read than was sent"
        if self._unsent or self._protocol_paused:
            self._soon(self._pump)

    # Receiving.

    def _schedule_receive(self) -> None:
        if not self._receive_scheduled:
            self._receive_scheduled = True
            self._soon(self._receive)

    def _receive(self) -> None:
        """Hand over once, as one turn of a selector loop does; the rest comes next turn."""
        self._receive_scheduled = False
        if self._reading_paused or self._closing or self._lost:
            return
        if self._unread:
            try:
                count = self._hand_over()
            except Exception as error:  # noqa: BLE001 - asyncio's transports do just this
                self._fail(error)
                return
            self._wire.acknowledge(count)
            self._loop.touched(count)
            if self._unread or self._end_arrived:
                self._schedule_receive()
        elif self._end_arrived and not self._end_told:
            self._end_told = True
            self._tell_end()

    def _hand_over(self) -> int:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            data = self._take(_RECEIVE_BYTES_MAX)
            self._fold("receive", *self._names, brief(data))
            assert isinstance(protocol, asyncio.Protocol), "neither kind of protocol"
            protocol.data_received(data)
            return len(data)
        buffer = memoryview(protocol.get_buffer(-1))
        if len(buffer) == 0:
            raise RuntimeError("get_buffer() returned an empty buffer")
        data = self._take(len(buffer))
        self._fold("receive", *self._names, brief(data))
        buffer[: len(data)] = data
        buffer.release()
        protocol.buffer_updated(len(data))
        return len(data)

    def _take(self, count: int) -> bytes:
        if len(self._unread) == 1 and len(self._unread[0]) <= count:
            return self._unread.popleft()
        parts = []
        while self._unread and count:
            part = self._unread[0][:count]
            parts.append(part)
            count -= len(part)
            if len(part) == len(self._unread[0]):
                self._unread.popleft()
            else:
                self._unread[0] = self._unread[0][len(part) :]
        return b"".join(parts)

    def _tell_end(self) -> None:
        protocol = self._protocol
        assert isinstance(protocol, (asyncio.Protocol, asyncio.BufferedProtocol))
        try:
            stays_open = protocol.eof_received()
        except Exception as error:  # noqa: BLE001 - asyncio's transports do just this
            self._fail(error)
            return
        if not stays_open:
            self.close()

    # Ending.

    def _fail(self, error: Exception) -> None:
        self._loop.call_exception_handler(
            {
                "message": "Fatal error: protocol callback failed.",
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )
        self._lose(error)

    def _lose(self, error: Exception | None, *, tell: bool = True) -> None:
        if self._lost:
            return
        self._closing = True
        self._lost = True
        self._over.append(self)
        self._unsent.clear()
        self._unsent_bytes = 0
        self._unread.clear()
        if tell:
            self._wire.reset()
        self._soon(self._tell_lost, error)

    def _soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        if not self.vanished:
            self._loop.call_soon(callback, *arguments, context=self._context)

    def _tell_lost(self, error: Exception | None) -> None:
        self._protocol.connection_lost(error)
