"""Who this broker is to the controller, and how its parts ask the controller for something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.node.broker.controller_channel import ControllerChannel
from holdfast.wire.errors import ErrorCode, error_code

NOT_REGISTERED: Final = -1


@dataclass(slots=True)
class Registration:
    """A broker's id, and the broker epoch of its newest registration: `Lifecycle` alone sets it."""

    node: int
    epoch: int = NOT_REGISTERED


class Asking:
    """One that asks the controller in the broker's name, until it is closed."""

    def __init__(self, channel: ControllerChannel, registration: Registration) -> None:
        self._channel = channel
        self._registration = registration
        self._busy = False  # one request may be in flight, or about to be
        self._closed = False

    def close(self) -> None:
        """Ask for nothing more: the broker stops."""
        self._closed = True

    def _ask(self, request: Any, answered: Callable[[Any, object], None]) -> None:
        """Send a request; `answered` gets the response and None, or why it says nothing.

        The response is None where there is none. It may come after `close`.
        """

        def came(done: asyncio.Future[Any]) -> None:
            if done.cancelled():
                return
            failure = done.exception()  # looked at in any case, or the loop complains of it
            if failure is not None:
                answered(None, failure)
            elif done.result().error_code == ErrorCode.NONE:
                answered(done.result(), None)
            else:
                answered(done.result(), error_code(done.result().error_code).name)

        self._channel.send(request).add_done_callback(came)
