"""The broker's one connection to the active controller.

Owns finding the controller, staying connected to it, and the time-outs of what was asked. It holds
no cluster state and decides nothing; a broker in the controller's own process comes through the
network door too, so that both roles behave alike wherever they run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.node.context import Deferred, RequestContext
from holdfast.runtime.ports import Runtime


class ControllerUnavailableError(ConnectionError):
    """No controller answered in time. Whether it carried out the request is not known."""


class ControllerAddress(NamedTuple):
    """Where a controller listens; `node` is -1 when only a bootstrap address is known."""

    node: int
    host: str
    port: int


class ControllerChannel:
    """What a broker asks of the controller, in order, over one connection that heals itself."""

    def __init__(
        self,
        runtime: Runtime,
        addresses: Sequence[ControllerAddress],
        *,
        client_id: str,
        request_timeout_ms: int = 30_000,
    ) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Begin to connect; needs a running loop."""
        raise NotImplementedError

    async def close(self) -> None:
        """Drop the connection; whatever waits for an answer fails."""
        raise NotImplementedError

    @property
    def connected(self) -> bool:
        raise NotImplementedError

    def send(
        self, message: Any, version: int | None = None, *, timeout_ms: int | None = None
    ) -> asyncio.Future[Any]:
        """Ask the active controller; the future gives the response struct.

        While there is no connection the request waits for one, within its time-out. It fails with
        `ControllerUnavailableError` when the time-out passes or when the connection breaks after
        the request was written: then its outcome is unknown, and it is not sent again.
        """
        raise NotImplementedError

    def forward(self, context: RequestContext) -> Deferred:
        """Send the client's request on in an Envelope (58), with its principal and address.

        The answer is the controller's own; when none comes in time, the refusal that the API's
        module makes with `refuse(request, code, message)`.
        """
        raise NotImplementedError
