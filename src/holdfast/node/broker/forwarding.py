"""What clients ask of the controller, passed on over a connection of its own, and bounded.

Owns the bound on what is under way. A broker's own requests to the controller (ISR changes, blocks
of producer ids) never stand behind these, however many clients there are.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from holdfast.node.broker.controller_channel import ControllerChannel, ControllerUnavailableError
from holdfast.wire.messages.envelope import EnvelopeRequest

REQUESTS_MAX: Final = 1000
BYTES_MAX: Final = 128 * 1024 * 1024  # more than the largest request may have


class Forwarding:
    """The way of clients' requests to the active controller."""

    def __init__(self, channel: ControllerChannel) -> None:
        self.channel: Final = channel
        self.topics_under_way: dict[str, None] = {}  # asked to be created, see `auto_creation`
        self._requests = 0
        self._bytes = 0

    def send(self, request: EnvelopeRequest, *, timeout_ms: int) -> asyncio.Future[Any]:
        """Pass a request on, as `ControllerChannel.send` does.

        One that is too many fails with `ControllerUnavailableError` at once, and was not sent.
        """
        size = len(request.request_data)
        if self._requests >= REQUESTS_MAX or self._bytes + size > BYTES_MAX:
            refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            refused.set_exception(
                ControllerUnavailableError(
                    f"{self._requests} requests of {self._bytes} bytes are on their way to the "
                    "controller already, and this one was not sent: try again"
                )
            )
            return refused
        self._requests += 1
        self._bytes += size
        answer = self.channel.send(request, timeout_ms=timeout_ms)
        answer.add_done_callback(lambda _: self._answered(size))
        return answer

    def _answered(self, size: int) -> None:
        self._requests -= 1
        self._bytes -= size
