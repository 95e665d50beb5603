"""One connection of a light member. Owns framing, negotiation, and who waits for which answer.

Each request says by its class what its answer is read as, so the table of all APIs is not asked.
It keeps no buffer between answers: thousands of these are open in one process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from holdfast import __version__
from holdfast.wire.codec import decode
from holdfast.wire.errors import WireError
from holdfast.wire.frame import encode_request
from holdfast.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from holdfast.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from holdfast.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from holdfast.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from holdfast.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from holdfast.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from holdfast.wire.primitives import skip_tagged_fields
from holdfast.wire.schema import Request, Response
from holdfast.wire.session import InFlight, Negotiation, UnsupportedVersionError

ANSWERS: Final[Mapping[type[Request], type[Response]]] = {
    ConsumerGroupHeartbeatRequest: ConsumerGroupHeartbeatResponse,
    FindCoordinatorRequest: FindCoordinatorResponse,
    HeartbeatRequest: HeartbeatResponse,
    JoinGroupRequest: JoinGroupResponse,
    LeaveGroupRequest: LeaveGroupResponse,
    OffsetCommitRequest: OffsetCommitResponse,
    OffsetFetchRequest: OffsetFetchResponse,
    SyncGroupRequest: SyncGroupResponse,
}
"""What can be asked over such a connection, and the class of each answer."""

FRAME_BYTES_MAX: Final = 16 << 20
_LENGTH_BYTES: Final = 4
_ID_BYTES: Final = 4


class Pending(NamedTuple):
    """A request on its way; None for the class of its answer: the negotiation's."""

    correlation_id: int
    version: int
    answer: type[Response] | None
    future: asyncio.Future[Any]


class LightConnection(asyncio.Protocol):
    """Any number of requests may be on the way. ConnectionError: the answer will not come."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._negotiation = Negotiation("holdfast-light", __version__)
        self._pending: InFlight[Pending] = InFlight()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()

    @property
    def is_open(self) -> bool:
        """Whether it can be asked."""
        return self._transport is not None

    async def negotiate(self) -> None:
        """Learn what the peer speaks. ConnectionError: it is lost, or not of this protocol."""
        negotiation = self._negotiation
        while not await self._send(negotiation.hello, negotiation.version, None):
            pass  # the second time it is the oldest version

    def ask(self, request: Request, version_max: int | None = None) -> asyncio.Future[Any]:
        """Send a request. ConnectionError, at once too: the peer is gone, or does not serve it."""
        cls = type(request)
        try:
            version = self._negotiation.version_of(cls, version_max)
        except UnsupportedVersionError as error:
            raise ConnectionError(str(error)) from error
        return self._send(request, version, ANSWERS[cls])

    def close(self) -> None:
        """End it. Whoever waits for an answer is told."""
        self._end(ConnectionResetError("the connection was closed here"))

    # -- the transport's calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            while (frame := self._cut()) is not None:
                self._take(frame)
        except WireError as error:
            self._end(ConnectionResetError(f"the peer doesn't speak the protocol: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionResetError(str(exc) if exc else "the peer closed the connection"))

    # -- inside --------------------------------------------------------------------------------

    def _cut(self) -> bytes | None:
        """Return the next whole frame without its length; None: it has not come yet."""
        received = self._received
        if len(received) < _LENGTH_BYTES:
            return None
        size = int.from_bytes(received[:_LENGTH_BYTES], "big")
        if not _ID_BYTES <= size <= FRAME_BYTES_MAX:
            raise WireError(f"a frame of {size} bytes")
        end = _LENGTH_BYTES + size
        if len(received) < end:
            return None
        frame = bytes(received[_LENGTH_BYTES:end])
        del received[:end]
        return frame

    def _send(
        self, request: Request, version: int, answer: type[Response] | None
    ) -> asyncio.Future[Any]:
        if self._transport is None:
            raise ConnectionResetError("the connection has ended")
        future: asyncio.Future[Any] = self._loop.create_future()
        correlation_id = self._pending.take_id()
        self._pending.append(Pending(correlation_id, version, answer, future))
        self._transport.write(encode_request(request, version, correlation_id, self._client_id))
        return future

    def _take(self, frame: bytes) -> None:
        pending = self._pending.match(frame)
        read: object
        if pending.answer is None:
            read = self._negotiation.read(frame)
        else:
            offset = _ID_BYTES
            if pending.version >= pending.answer.FLEXIBLE:
                offset = skip_tagged_fields(frame, offset)
            read = decode(pending.answer, pending.version, frame, offset)
        self._pending.popleft()
        if not pending.future.done():  # nobody waits for an answer that was given up
            pending.future.set_result(read)

    def _end(self, error: ConnectionError) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        while self._pending:
            future = self._pending.popleft().future
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever gave it up doesn't look


async def connect(host: str, port: int, client_id: str) -> LightConnection:
    """Connect and negotiate. OSError: it can't be had."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: LightConnection(client_id), host, port)
    try:
        await connection.negotiate()
    except BaseException:
        connection.close()
        raise
    return connection
