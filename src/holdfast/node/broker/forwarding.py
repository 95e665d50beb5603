"""What clients ask of the controller, passed on over a connection of its own, and bounded.

Owns the bounds on what is under way, of all clients and of those of one address. A broker's own
requests to the controller (ISR changes, blocks of producer ids) never stand behind these, however
many clients there are. Of a connection one request is under way at most: `api.forward` mutes it.

Rules: connections.md#what-goes-to-the-controller.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from holdfast.node.broker.controller_channel import ControllerChannel, ControllerUnavailableError
from holdfast.node.door.seldom import Seldom
from holdfast.wire.messages.envelope import EnvelopeRequest

logger = logging.getLogger("holdfast.forward")

REQUESTS_MAX: Final = 1000
BYTES_MAX: Final = 128 * 1024 * 1024  # more than the largest request may have
ADDRESS_PART: Final = 4  # those of one address may have a quarter of both
_NOBODY: Final = 0, 0


class Forwarding:
    """The way of clients' requests to the active controller."""

    def __init__(self, channel: ControllerChannel) -> None:
        self.channel: Final = channel
        self.topics_under_way: dict[str, None] = {}  # asked to be created, see `auto_creation`
        self.not_created = Seldom(logging.getLogger("holdfast.auto_creation"))
        self.refused = 0  # requests that were not sent (a metric)
        self._requests = 0
        self._bytes = 0
        self._by_address: dict[str, tuple[int, int]] = {}  # requests, and their bytes
        self._full = Seldom(logger)

    def is_half_full(self, host: str) -> bool:
        """Whether half of what this address may have is under way, or half of what all may."""
        of_address, _ = self._by_address.get(host, _NOBODY)
        return 2 * max(self._requests, ADDRESS_PART * of_address) >= REQUESTS_MAX

    def send(self, request: EnvelopeRequest, host: str, *, timeout_ms: int) -> asyncio.Future[Any]:
        """Pass a request on, as `ControllerChannel.send` does, for a client of that address.

        One that is too many fails with `ControllerUnavailableError` at once, and was not sent.
        """
        size = len(request.request_data)
        why = self._too_many(host, size)
        if why:
            self.refused += 1
            self._full.warning("a request for the controller is refused: %s", why)
            refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            refused.set_exception(ControllerUnavailableError(why))
            return refused
        self._count(host, 1, size)
        answer = self.channel.send(request, timeout_ms=timeout_ms)
        answer.add_done_callback(lambda _: self._count(host, -1, -size))
        return answer

    def _too_many(self, host: str, size: int) -> str:
        """Return why a request of so many bytes is not sent, or nothing."""
        requests, held = self._by_address.get(host, _NOBODY)
        part = ADDRESS_PART
        if part * (requests + 1) > REQUESTS_MAX or part * (held + size) > BYTES_MAX:
            whose = f"of {host} "
        elif self._requests >= REQUESTS_MAX or self._bytes + size > BYTES_MAX:
            whose, requests, held = "", self._requests, self._bytes
        else:
            return ""
        return (
            f"{requests} requests {whose}of {held} bytes are on their way to the controller "
            "already, and this one was not sent: try again"
        )

    def _count(self, host: str, requests: int, size: int) -> None:
        self._requests += requests
        self._bytes += size
        before, held = self._by_address.pop(host, _NOBODY)
        if before + requests:
            self._by_address[host] = before + requests, held + size
