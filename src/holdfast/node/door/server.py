"""The listeners of one role: sockets bound, connections accepted, the idle ones closed.

Owns binding and closing. What a frame means, `dispatch` says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from holdfast.config.listeners import Listener
from holdfast.config.node import NodeSettings
from holdfast.node.door.admission import Admissions
from holdfast.node.door.budget import Budgets
from holdfast.node.door.connection import BUFFER_SILENT_S, Connections
from holdfast.node.door.dispatch import Dispatcher
from holdfast.node.door.line import DEAR_S
from holdfast.runtime import ports

logger = logging.getLogger("holdfast.server")

IDLE_CHECKS_PER_LIMIT = 4


class StartError(Exception):
    """The node can't start. The message says why, and what to do."""


class Shared(NamedTuple):
    """What the connections of all listeners of a node share."""

    admissions: Admissions
    budgets: Budgets


class Server:
    """Every listener of one role of a node."""

    def __init__(
        self,
        runtime: ports.Runtime,
        settings: NodeSettings,
        dispatcher: Dispatcher,
        shared: Shared,
    ) -> None:
        self.ports: dict[str, int] = {}  # listener name -> the port really bound
        self._runtime = runtime
        self._settings = settings
        self._dispatcher = dispatcher
        self._listeners: list[ports.Listener] = []
        self._groups: list[Connections] = []
        self._shared = shared
        self._timers: dict[str, asyncio.TimerHandle] = {}

    async def listen(self, listeners: Iterable[Listener]) -> None:
        """Bind. Connections are accepted, but read only after `release`."""
        own = self._settings.controller_listener_names
        for listener in listeners:
            group = Connections(
                listener=listener.name,
                handle=self._dispatcher,
                frame_bytes_max=self._settings.socket_request_max_bytes,
                admission=self._shared.admissions.of(listener.name),
                budget=self._shared.budgets.of(listener.name),
                # What brokers ask of a controller about thousands of partitions is its very work.
                dear_s=inf if listener.name in own else DEAR_S,
                is_protected=self._settings.is_protected(listener),
            )
            host = listener.host  # "": any address
            try:
                bound = await self._runtime.network.listen(group.accept, host, listener.port)
            except OSError as error:
                raise StartError(
                    f"listener {listener.name} can't use {host or '*'}:{listener.port}: "
                    f"{error.strerror or error}. Choose another port in `listeners`, or stop "
                    "what listens there."
                ) from error
            self._listeners.append(bound)
            self._groups.append(group)
            self.ports[listener.name] = bound.port
            logger.info("listening on %s://%s:%d", listener.name, host or "*", bound.port)
        self._schedule_idle_check()
        self._schedule_buffer_check()

    def release(self) -> None:
        """The node is ready: read what has been sent."""
        for group in self._groups:
            group.release()

    @property
    def connections(self) -> int:
        """How many are open (a metric)."""
        return sum(len(group.open) for group in self._groups)

    def _schedule_idle_check(self) -> None:
        limit = self._settings.connections_max_idle_ms
        if limit < 0:
            return
        delay = max(limit / IDLE_CHECKS_PER_LIMIT / 1000, 1.0)
        self._timers["idle"] = asyncio.get_running_loop().call_later(delay, self._close_idle)

    def _close_idle(self) -> None:
        before = asyncio.get_running_loop().time() - self._settings.connections_max_idle_ms / 1000
        for group in self._groups:
            group.close_idle(before)
        self._schedule_idle_check()

    def _schedule_buffer_check(self) -> None:
        self._timers["buffers"] = asyncio.get_running_loop().call_later(
            BUFFER_SILENT_S, self._give_buffers_back
        )

    def _give_buffers_back(self) -> None:
        for group in self._groups:
            group.give_buffers_back()
        self._schedule_buffer_check()

    def close(self) -> None:
        """Accept nobody any more, and close every connection."""
        for timer in self._timers.values():
            timer.cancel()
        for listener in self._listeners:
            listener.close()
        for group in self._groups:
            group.close()
