"""An asynchronous client of the protocol, as a node uses it to talk to other nodes.

Owns one connection each: its negotiation, its requests in flight, its deadlines. Must never
open a connection again or try a request twice: who dialled knows whether that is safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from holdfast import __version__
from holdfast.runtime.ports import Buffer, Runtime
from holdfast.wire.codec import decode
from holdfast.wire.errors import WireError
from holdfast.wire.frame import (
    API_VERSIONS,
    encode_request_buffers,
    is_flexible,
)
from holdfast.wire.frame_buffer import GIVEN_BYTES_MIN, FrameBuffer
from holdfast.wire.messages import api_name, response_class
from holdfast.wire.primitives import skip_tagged_fields
from holdfast.wire.schema import Request
from holdfast.wire.session import InFlight, Negotiation, UnsupportedVersionError

T = TypeVar("T")

TIMEOUT_MS = 30_000
IN_FLIGHT_MAX = 1_000
UNSENT_BYTES_MAX = 16 * 1024 * 1024
FRAME_BYTES_MAX = 100 * 1024 * 1024
ANY_FRAME_BYTES = 0x7FFFFFFF  # the longest frame that can be
SOFTWARE_NAME = "holdfast-node"

_ID_SIZE = 4  # of the correlation id that an answer begins with


class ConnectionLostError(ConnectionError):
    """The connection ended; whether the peer did what was asked is unknown."""


class RequestTimeoutError(ConnectionLostError):
    """No answer in time. The connection was closed, for an answer holds up all behind it."""


class UnreadableAnswerError(ConnectionLostError):
    """An answer is larger than is taken here, or makes no sense. The connection was closed."""


class ConnectionBusyError(ConnectionLostError):
    """Too much is in flight or unsent already: this request was not sent."""


class UnsupportedApiError(ConnectionLostError):
    """The peer doesn't know this API, or no version of ours: nothing was sent."""


@dataclass(slots=True, eq=False)
class _Pending:
    """One request in flight: who reads its frame, and who waits for what is read."""

    key: int
    version: int
    correlation_id: int
    read: Callable[[memoryview | bytes, int], Any]
    future: asyncio.Future[Any]
    deadline: float = 0.0

    def fail(self, error: ConnectionLostError) -> None:
        """Tell the reason; who has lost interest must not be reported as careless."""
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()


class Connection(asyncio.BufferedProtocol):
    """One connection. Answers come in the order of requests; every failure ends them all."""

    def __init__(self, client_id: str, name: str, *, timeout_ms: int, frame_bytes_max: int) -> None:
        self.name = name  # "host:port", for what people read
        self.closed: asyncio.Future[None]
        self._loop = asyncio.get_running_loop()
        self.closed = self._loop.create_future()  # done, never with an error, once it has ended
        self._client_id = client_id
        self._timeout_s = timeout_ms / 1000
        self._transport: asyncio.Transport | None = None
        self._negotiation = Negotiation(SOFTWARE_NAME, __version__)
        self._pending: InFlight[_Pending] = InFlight()
        self._frames = FrameBuffer(frame_bytes_max)
        self._timer: asyncio.TimerHandle | None = None

    # What callers use.

    @property
    def is_open(self) -> bool:
        """True until the connection ends, whichever side ended it."""
        return self._transport is not None

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return len(self._pending)

    @property
    def frame_bytes_max(self) -> int:
        """The longest answer that is taken; it may be set before a request."""
        return self._frames.frame_bytes_max

    @frame_bytes_max.setter
    def frame_bytes_max(self, value: int) -> None:
        self._frames.frame_bytes_max = value

    def version_of(self, message: Request | type[Request]) -> int:
        """Version in which requests of this class go out: the highest that both sides know.

        UnsupportedApiError: the peer doesn't know this API, or no version of ours.
        """
        try:
            return self._negotiation.version_of(message)
        except UnsupportedVersionError as error:
            raise UnsupportedApiError(f"{self.name}: {error}") from error

    def send(
        self, message: Request, *, version: int | None = None, timeout_ms: int | None = None
    ) -> asyncio.Future[Any]:
        """Send a request (a struct of `wire.messages`); the future gets its response struct.

        ConnectionLostError or one of its kinds, in the future. What the response holds is its
        own for good. EncodeError is raised at once: the version can't carry the message.
        """
        if version is None:
            try:
                version = self.version_of(message)
            except UnsupportedApiError as error:
                return self._failed(error)
        response = response_class(message.KEY)
        spoken = version
        return self._ask(
            message,
            version,
            lambda frame, offset: decode(response, spoken, frame, offset),
            timeout_ms,
        )

    def close(self) -> None:
        """End the connection. What is in flight fails at once with ConnectionLostError."""
        self._end(ConnectionLostError(f"the connection to {self.name} was closed here"))

    async def negotiate(self) -> None:
        """Ask for the peer's versions; `dial` does this before it returns the connection."""
        negotiation = self._negotiation
        while not await self._ask(
            negotiation.hello,
            negotiation.version,
            lambda frame, _: negotiation.read(frame),
        ):
            pass  # the second time it is the oldest version

    # The transport's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is of no such class

    def connection_lost(self, exc: Exception | None) -> None:
        reason = str(exc) if exc else "the peer closed it"
        self._end(ConnectionLostError(f"the connection to {self.name} ended: {reason}"))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        frames = self._frames
        frames.received(nbytes)
        try:
            while (frame := frames.cut()) is not None:
                self._take_frame(frame)
                if self._transport is None:
                    return
        except WireError as error:
            why = f"{self.name} doesn't speak the protocol: {error}"
            self._end(UnreadableAnswerError(why))

    # Inside.

    def _take_frame(self, view: memoryview) -> None:
        """Hand one frame to who waits for it, a large one with its memory."""
        pending = self._pending.match(view)
        self._pending.popleft()
        given = len(view) >= GIVEN_BYTES_MIN
        frame = view if given else bytes(view)
        offset = _ID_SIZE
        try:
            if pending.key != API_VERSIONS and is_flexible(pending.key, pending.version):
                offset = skip_tagged_fields(frame, offset)
            response = pending.read(frame, offset)
        except WireError:
            self._pending.appendleft(pending)  # it has to hear of the end too
            raise
        if not pending.future.done():
            pending.future.set_result(response)
        if given:
            self._frames.give()
        else:
            view.release()

    def _ask(
        self,
        message: Request,
        version: int,
        read: Callable[[memoryview | bytes, int], T],
        timeout_ms: int | None = None,
    ) -> asyncio.Future[T]:
        """Send a request; the future gets what `read` makes of its frame, or why there is none."""
        refusal = self._refusal()
        if refusal is not None:
            return self._failed(refusal)
        future: asyncio.Future[T] = self._loop.create_future()
        correlation_id = self._pending.take_id()
        self._write(encode_request_buffers(message, version, correlation_id, self._client_id))
        self._expect(_Pending(message.KEY, version, correlation_id, read, future), timeout_ms)
        return future

    def _failed(self, error: ConnectionLostError) -> asyncio.Future[Any]:
        """Return a future that holds the reason; nobody has to look."""
        future: asyncio.Future[Any] = self._loop.create_future()
        future.set_exception(error)
        future.exception()
        return future

    def _refusal(self) -> ConnectionLostError | None:
        if self._transport is None:
            return ConnectionLostError(f"the connection to {self.name} has ended")
        if len(self._pending) >= IN_FLIGHT_MAX:
            return ConnectionBusyError(f"{len(self._pending)} requests to {self.name} in flight")
        if self._transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            return ConnectionBusyError(f"{self.name} takes nothing: too much is unsent")
        return None

    def _write(self, buffers: Sequence[Buffer]) -> None:
        assert self._transport is not None, "a connection that has ended sends nothing"
        if len(buffers) == 1:
            self._transport.write(buffers[0])
        else:
            self._transport.writelines(buffers)

    def _expect(self, pending: _Pending, timeout_ms: int | None) -> None:
        timeout_s = self._timeout_s if timeout_ms is None else timeout_ms / 1000
        deadline = pending.deadline = self._loop.time() + timeout_s
        self._pending.append(pending)
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._check_deadlines)
        elif deadline < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._check_deadlines)

    def _check_deadlines(self) -> None:
        # One timer for all: it comes for a request answered long ago, and looks for the next.
        self._timer = None
        if not self._pending:
            return
        first = min(self._pending, key=lambda pending: pending.deadline)
        if first.deadline <= self._loop.time():
            self._end(
                RequestTimeoutError(f"{api_name(first.key)}: no answer from {self.name} in time")
            )
        else:
            self._timer = self._loop.call_at(first.deadline, self._check_deadlines)

    def _end(self, error: ConnectionLostError) -> None:
        """End once: whoever waits hears why."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending:
            self._pending.popleft().fail(error)
        if not self.closed.done():
            self.closed.set_result(None)


async def dial(
    runtime: Runtime,
    host: str,
    port: int,
    client_id: str,
    *,
    timeout_ms: int = TIMEOUT_MS,
    frame_bytes_max: int = FRAME_BYTES_MAX,
) -> Connection:
    """Connect and negotiate versions. OSError: it can't be had within `timeout_ms`.

    ConnectionLostError is an OSError too, so that one `except OSError` covers both.
    """

    def make() -> Connection:
        return Connection(
            client_id, f"{host}:{port}", timeout_ms=timeout_ms, frame_bytes_max=frame_bytes_max
        )

    connection: Connection | None = None
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, connection = await runtime.network.connect(make, host, port)
            await connection.negotiate()
    except TimeoutError as error:
        if connection is not None:
            connection.close()
        raise RequestTimeoutError(f"{host}:{port} does not answer") from error
    except BaseException:
        if connection is not None:
            connection.close()
        raise
    return connection
