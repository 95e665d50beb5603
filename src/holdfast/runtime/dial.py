"""An asynchronous client of the protocol, as a node uses it to talk to other nodes.

Owns one connection each: its negotiation, its requests in flight, its deadlines. Must never
open a connection again or try a request twice: who dialled knows whether that is safe.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, cast

from holdfast.runtime.ports import Buffer, Runtime
from holdfast.wire.codec import decode
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.frame import (
    API_VERSIONS,
    encode_request_buffers,
    is_flexible,
)
from holdfast.wire.messages import api_name, response_class
from holdfast.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from holdfast.wire.primitives import skip_tagged_fields
from holdfast.wire.schema import Request

TIMEOUT_MS = 30_000
IN_FLIGHT_MAX = 1_000
UNSENT_BYTES_MAX = 16 * 1024 * 1024
FRAME_BYTES_MAX = 100 * 1024 * 1024
SOFTWARE_NAME = "holdfast-node"
SOFTWARE_VERSION = "0.1.0"

_BUFFER_BYTES = 64 * 1024
_BUFFER_KEPT_BYTES = 16 * 1024 * 1024  # a larger one is given back after its frame
_GIVEN_BYTES_MIN = 32 * 1024  # an answer from here on gets the buffer instead of a copy
_CORRELATION_MASK = 0x7FFFFFFF
_LENGTH = Struct(">i")
_REQUEST_HEAD = Struct(">ihhih")


class ConnectionLostError(ConnectionError):
    """The connection ended; whether the peer did what was asked is unknown."""


class RequestTimeoutError(ConnectionLostError):
    """No answer in time. The connection was closed, for an answer holds up all behind it."""


class ConnectionBusyError(ConnectionLostError):
    """Too much is in flight or unsent already: this request was not sent."""


class UnsupportedApiError(ConnectionLostError):
    """The peer doesn't know this API, or no version of ours: nothing was sent."""


class _Pending:
    """One request in flight. `answered` gets correlation-checked frames, `failed` the reason."""

    __slots__ = ("answered", "correlation_id", "deadline", "failed", "gives", "key", "version")

    def __init__(
        self,
        key: int,
        version: int,
        correlation_id: int,
        deadline: float,
        answered: Callable[[memoryview | bytes, int], None],
        failed: Callable[[ConnectionLostError], None],
        gives: bool,
    ) -> None:
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.deadline = deadline
        self.answered = answered
        self.failed = failed
        self.gives = gives  # the frame's memory becomes the answer's own


class Connection(asyncio.BufferedProtocol):
    """One connection. Answers come in the order of requests; every failure ends them all."""

    def __init__(self, client_id: str, name: str, *, timeout_ms: int, frame_bytes_max: int) -> None:
        self.name = name  # "host:port", for what people read
        self.closed: asyncio.Future[None]
        self._loop = asyncio.get_running_loop()
        self.closed = self._loop.create_future()  # done, never with an error, once it has ended
        self._client_id = client_id
        self._client_name = client_id.encode()
        self._timeout_s = timeout_ms / 1000
        self._frame_bytes_max = frame_bytes_max
        self._transport: asyncio.Transport | None = None
        self._ranges: dict[int, tuple[int, int]] = {}
        self._pending: deque[_Pending] = deque()
        self._next_correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0

    # What callers use.

    @property
    def is_open(self) -> bool:
        """True until the connection ends, whichever side ended it."""
        return self._transport is not None

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return len(self._pending)

    def version_of(self, message: Request | type[Request]) -> int:
        """Version in which requests of this class go out: the highest that both sides know.

        UnsupportedApiError: the peer doesn't know this API, or no version of ours.
        """
        low, high = self._ranges.get(message.KEY, (0, -1))
        version = min(high, message.MAX_VERSION)
        if version < max(low, message.MIN_VERSION):
            raise UnsupportedApiError(f"{self.name}: {api_name(message.KEY)}: no common version")
        return version

    def send(
        self, message: Request, *, version: int | None = None, timeout_ms: int | None = None
    ) -> asyncio.Future[Any]:
        """Send a request (a struct of `wire.messages`); the future gets its response struct.

        ConnectionLostError or one of its kinds, in the future. What the response holds is its
        own for good. EncodeError is raised at once: the version can't carry the message.
        """
        future: asyncio.Future[Any] = self._loop.create_future()

        def failed(error: ConnectionLostError) -> None:
            if not future.done():
                future.set_exception(error)
                future.exception()  # who has lost interest must not be reported as careless

        refusal = self._refusal()
        if refusal is None and version is None:
            try:
                version = self.version_of(message)
            except UnsupportedApiError as error:
                refusal = error
        if refusal is not None:
            failed(refusal)
            return future
        assert version is not None
        asked = version

        def answered(frame: memoryview | bytes, offset: int) -> None:
            response = decode(response_class(message.KEY), asked, frame, offset)
            if not future.done():
                future.set_result(response)

        correlation_id = self._take_correlation_id()
        frame = encode_request_buffers(message, asked, correlation_id, self._client_id)
        self._write(frame)
        self._expect(message.KEY, asked, correlation_id, timeout_ms, answered, failed, gives=True)
        return future

    def send_raw(
        self,
        key: int,
        version: int,
        body: Sequence[Buffer],
        answered: Callable[[memoryview], None],
        failed: Callable[[ConnectionLostError], None],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Send an encoded body; exactly one of the two callbacks is called, later.

        `answered` gets the body of the response, behind its header. The view is into the
        receive buffer and is released when the callback returns: copy what has to live longer.
        """
        refusal = self._refusal()
        if refusal is not None:
            self._loop.call_soon(failed, refusal)
            return

        def received(frame: memoryview | bytes, offset: int) -> None:
            with memoryview(frame)[offset:] as view:
                answered(view)

        correlation_id = self._take_correlation_id()
        tags = b"\0" if is_flexible(key, version) else b""
        name = self._client_name
        size = _REQUEST_HEAD.size - 4 + len(name) + len(tags) + sum(map(len, body))
        head = _REQUEST_HEAD.pack(size, key, version, correlation_id, len(name))
        self._write([head + name + tags, *body])
        self._expect(key, version, correlation_id, timeout_ms, received, failed, gives=False)

    def close(self) -> None:
        """End the connection. What is in flight fails at once with ConnectionLostError."""
        self._end(ConnectionLostError(f"the connection to {self.name} was closed here"))

    async def negotiate(self) -> None:
        """Ask for the peer's versions; `dial` does this before it returns the connection."""
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        response = await self._ask_versions(request, request.MAX_VERSION)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = await self._ask_versions(request, 0)
        if response.error_code != ErrorCode.NONE:
            self.close()
            raise ConnectionLostError(f"{self.name} refuses ApiVersions: {response.error_code}")
        self._ranges = {
            api.api_key: (api.min_version, api.max_version) for api in response.api_keys
        }

    # The transport's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is of no such class

    def connection_lost(self, exc: Exception | None) -> None:
        reason = str(exc) if exc else "the peer closed it"
        self._end(ConnectionLostError(f"the connection to {self.name} ended: {reason}"))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        position = 0
        given = False
        while self._filled - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, position)
            if not _LENGTH.size <= length <= self._frame_bytes_max:
                self._break(f"a frame of {length} bytes")
                return
            begin, end = position + _LENGTH.size, position + _LENGTH.size + length
            if end > self._filled:
                if length + _LENGTH.size > len(self._buffer):
                    self._replace_buffer(position, length + _LENGTH.size)
                    return
                break
            try:
                given |= self._take_frame(begin, end)
            except WireError as error:
                self._break(str(error))
            if self._transport is None:
                return
            position = end
        if given or (position == self._filled and len(self._buffer) > _BUFFER_KEPT_BYTES):
            self._replace_buffer(position, max(_BUFFER_BYTES, self._needed(position)))
        elif position:
            rest = self._filled - position
            self._buffer[:rest] = self._buffer[position : self._filled]
            self._filled = rest

    # Inside.

    def _take_frame(self, begin: int, end: int) -> bool:
        """Hand one frame to who waits for it. True if the buffer now belongs to the answer."""
        if not self._pending:
            raise WireError("an answer to no request")
        pending = self._pending.popleft()
        (correlation_id,) = _LENGTH.unpack_from(self._buffer, begin)
        if correlation_id != pending.correlation_id:
            self._pending.appendleft(pending)  # it has to hear of the end too
            raise WireError(f"an answer to {correlation_id} instead of {pending.correlation_id}")
        gives = pending.gives and end - begin >= _GIVEN_BYTES_MIN
        view = self._view[begin:end]
        frame = bytes(view) if pending.gives and not gives else view
        offset = _LENGTH.size
        try:
            if pending.key != API_VERSIONS and is_flexible(pending.key, pending.version):
                offset = skip_tagged_fields(frame, offset)
            pending.answered(frame, offset)
        except WireError:
            self._pending.appendleft(pending)
            raise
        if not gives:
            view.release()
        return gives

    def _needed(self, position: int) -> int:
        """Bytes of the frame that begins at `position`, as far as that is known."""
        if self._filled - position < _LENGTH.size:
            return 0
        (length,) = _LENGTH.unpack_from(self._buffer, position)
        return _LENGTH.size + int(length)

    def _replace_buffer(self, position: int, size: int) -> None:
        """Go on in a new buffer; the old one is an answer's now, or too small, or too large."""
        rest = self._filled - position
        buffer = bytearray(max(size, rest))
        buffer[:rest] = self._view[position : self._filled]
        self._buffer, self._view, self._filled = buffer, memoryview(buffer), rest

    def _refusal(self) -> ConnectionLostError | None:
        if self._transport is None:
            return ConnectionLostError(f"the connection to {self.name} has ended")
        if len(self._pending) >= IN_FLIGHT_MAX:
            return ConnectionBusyError(f"{len(self._pending)} requests to {self.name} in flight")
        if self._transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            return ConnectionBusyError(f"{self.name} takes nothing: too much is unsent")
        return None

    def _take_correlation_id(self) -> int:
        taken = self._next_correlation_id
        self._next_correlation_id = (taken + 1) & _CORRELATION_MASK
        return taken

    def _write(self, buffers: Sequence[Buffer]) -> None:
        assert self._transport is not None, "a connection that has ended sends nothing"
        if len(buffers) == 1:
            self._transport.write(buffers[0])
        else:
            self._transport.writelines(buffers)

    def _expect(
        self,
        key: int,
        version: int,
        correlation_id: int,
        timeout_ms: int | None,
        answered: Callable[[memoryview | bytes, int], None],
        failed: Callable[[ConnectionLostError], None],
        *,
        gives: bool,
    ) -> None:
        timeout_s = self._timeout_s if timeout_ms is None else timeout_ms / 1000
        deadline = self._loop.time() + timeout_s
        self._pending.append(
            _Pending(key, version, correlation_id, deadline, answered, failed, gives)
        )
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

    def _ask_versions(
        self, request: ApiVersionsRequest, version: int
    ) -> asyncio.Future[ApiVersionsResponse]:
        future: asyncio.Future[ApiVersionsResponse] = self._loop.create_future()

        def answered(frame: memoryview | bytes, offset: int) -> None:
            # A refusal of our version comes in version 0, whatever was asked (KIP-511).
            code = int.from_bytes(frame[offset : offset + 2], "big", signed=True)
            spoken = 0 if code == ErrorCode.UNSUPPORTED_VERSION else version
            response = decode(ApiVersionsResponse, spoken, frame, offset)
            if not future.done():
                future.set_result(response)

        def failed(error: ConnectionLostError) -> None:
            if not future.done():
                future.set_exception(error)

        refusal = self._refusal()
        if refusal is not None:
            future.set_exception(refusal)
            return future
        correlation_id = self._take_correlation_id()
        self._write(encode_request_buffers(request, version, correlation_id, self._client_id))
        self._expect(API_VERSIONS, version, correlation_id, None, answered, failed, gives=True)
        return future

    def _break(self, why: str) -> None:
        self._end(ConnectionLostError(f"{self.name} doesn't speak the protocol: {why}"))

    def _end(self, error: ConnectionLostError) -> None:
        """End once: whoever waits hears why."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending:
            self._pending.popleft().failed(error)
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
