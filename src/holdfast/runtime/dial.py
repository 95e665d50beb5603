"""An asynchronous client of the protocol, as a node uses it to talk to other nodes.

Owns one connection each: its negotiation, its requests in flight, its deadlines. Must never
open a connection again or try a request twice: who dialled knows whether that is safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.runtime.ports import Buffer, Runtime

TIMEOUT_MS = 30_000
IN_FLIGHT_MAX = 1_000
FRAME_BYTES_MAX = 100 * 1024 * 1024


class ConnectionLostError(ConnectionError):
    """The connection ended; whether the peer did what was asked is unknown."""


class RequestTimeoutError(ConnectionLostError):
    """No answer in time. The connection was closed, for an answer holds up all behind it."""


class Connection(asyncio.BufferedProtocol):
    """One connection. Answers come in the order of requests; every failure ends them all."""

    @property
    def is_open(self) -> bool:
        """True until the connection ends, whichever side ended it."""
        raise NotImplementedError

    @property
    def closed(self) -> asyncio.Future[None]:
        """Done once the connection has ended (never with an exception)."""
        raise NotImplementedError

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        raise NotImplementedError

    def version_of(self, message: type | object) -> int:
        """Version in which requests of this class go out: the highest that both sides know.

        ConnectionLostError: the peer doesn't know this API, or no version of ours.
        """
        raise NotImplementedError

    def send(
        self, message: Any, *, version: int | None = None, timeout_ms: int | None = None
    ) -> asyncio.Future[Any]:
        """Send a request (a struct of `wire.messages`); the future gets its response struct.

        ConnectionLostError, in the future: the connection ended before the answer came, or
        `IN_FLIGHT_MAX` requests wait already.
        """
        raise NotImplementedError

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
        raise NotImplementedError

    def close(self) -> None:
        """End the connection. What is in flight fails at once with ConnectionLostError."""
        raise NotImplementedError


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
    raise NotImplementedError
