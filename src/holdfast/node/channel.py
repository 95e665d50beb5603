"""The broker's one connection to the active controller.

Owns finding the controller, staying connected to it, and the time-outs of what was asked. It holds
no cluster state and decides nothing; a broker in the controller's own process comes through the
network door too, so that both roles behave alike wherever they run.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from holdfast.config.node import NodeSettings
from holdfast.runtime.dial import Connection, ConnectionLostError, dial
from holdfast.runtime.ports import Runtime

logger = logging.getLogger("holdfast.channel")

WAITING_MAX: Final = 1000  # requests that wait for a connection; one more is refused at once
BACKOFF_MS_MAX: Final = 1000
CONNECT_TIMEOUT_MS: Final = 5000


Ended: TypeAlias = Callable[[asyncio.Task[None]], None]


class ControllerUnavailableError(ConnectionError):
    """No controller answered in time. Whether it carried out the request is not known."""


class ControllerAddress(NamedTuple):
    """Where a controller listens; `node` is -1 when only a bootstrap address is known."""

    node: int
    host: str
    port: int


def controller_addresses(settings: NodeSettings) -> list[ControllerAddress]:
    """Where controllers may be found: the voters, or else the bootstrap servers."""
    voters = [ControllerAddress(*voter) for voter in settings.controller_quorum_voters]
    servers = settings.controller_quorum_bootstrap_servers
    return voters or [ControllerAddress(-1, server.host, server.port) for server in servers]


class _Waiting(NamedTuple):
    """A request that has not been written yet."""

    message: Any
    version: int | None
    due_ms: int
    answer: asyncio.Future[Any]


class ControllerChannel:
    """What a broker asks of the controller, in order, over one connection that heals itself."""

    def __init__(
        self,
        runtime: Runtime,
        addresses: Sequence[ControllerAddress],
        *,
        client_id: str,
        request_timeout_ms: int = 30_000,
        backoff_ms: int = 20,
    ) -> None:
        assert addresses, "nowhere to find a controller"
        self.topics_under_way: dict[str, None] = {}  # asked to be created, see `auto_creation`
        self._runtime = runtime
        self._addresses = list(addresses)
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._backoff_ms = backoff_ms
        self._connection: Connection | None = None
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def start(self, ended: Ended | None = None) -> None:
        """Begin to connect; needs a running loop.

        `ended` is called when the loop ends, which without `close` is a mistake of ours.
        """
        assert self._task is None, "started twice"
        self._task = asyncio.get_running_loop().create_task(self._stay_connected())
        self._task.add_done_callback(ended or report_bug)

    async def close(self) -> None:
        """Drop the connection; whatever waits for an answer fails."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while self._waiting:
            _fail(self._waiting.popleft().answer, "this node is shutting down")

    @property
    def connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    def drop(self) -> None:
        """Break the connection: what answered was not the active controller."""
        if self._connection is not None:
            self._connection.close()

    def send(
        self, message: Any, version: int | None = None, *, timeout_ms: int | None = None
    ) -> asyncio.Future[Any]:
        """Ask the active controller; the future gives the response struct.

        While there is no connection the request waits for one, within its time-out. It fails with
        `ControllerUnavailableError` when the time-out passes or when the connection breaks after
        the request was written: then its outcome is unknown, and it is not sent again.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        timeout_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        if self._closed or len(self._waiting) >= WAITING_MAX:
            _fail(
                answer, "this node is shutting down" if self._closed else "too many requests wait"
            )
        elif self.connected:
            self._write(message, version, timeout_ms, answer)
        else:
            due_ms = self._runtime.clock.monotonic_ms() + timeout_ms
            self._waiting.append(_Waiting(message, version, due_ms, answer))
            timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self._expire, answer)
            answer.add_done_callback(lambda _: timer.cancel())
        return answer

    def _write(
        self, message: Any, version: int | None, timeout_ms: int, answer: asyncio.Future[Any]
    ) -> None:
        assert self._connection is not None
        sent = self._connection.send(message, version=version, timeout_ms=timeout_ms)
        sent.add_done_callback(lambda done: _hand_over(done, answer))

    def _expire(self, answer: asyncio.Future[Any]) -> None:
        """A request that found no connection within its time-out."""
        before = len(self._waiting)
        self._waiting = deque(each for each in self._waiting if each.answer is not answer)
        if len(self._waiting) < before:
            _fail(answer, f"no controller could be reached at {self._where()}")

    def _where(self) -> str:
        return ", ".join(f"{address.host}:{address.port}" for address in self._addresses)

    async def _stay_connected(self) -> None:
        """Connect, hand over what waits, and begin again when the connection ends."""
        attempt = 0
        while not self._closed:
            address = self._addresses[attempt % len(self._addresses)]
            try:
                connection = await dial(
                    self._runtime,
                    address.host,
                    address.port,
                    self._client_id,
                    timeout_ms=CONNECT_TIMEOUT_MS,
                )
            except OSError as error:
                # Once a round is enough to know of; a controller that starts later is no news.
                level = logging.INFO if attempt == len(self._addresses) else logging.DEBUG
                logger.log(level, "no controller at %s:%d: %s", address.host, address.port, error)
                attempt += 1
                await asyncio.sleep(self._pause_ms(attempt) / 1000)
                continue
            attempt = 0
            self._connection = connection
            self._flush()
            await connection.closed
            self._connection = None
            if not self._closed:
                logger.info("the connection to the controller is lost")
                await asyncio.sleep(self._pause_ms(1) / 1000)

    def _pause_ms(self, attempt: int) -> int:
        rounds = attempt // len(self._addresses)
        pause = min(BACKOFF_MS_MAX, self._backoff_ms << min(rounds, 10))
        return pause // 2 + self._runtime.random.below(pause // 2 + 1)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        now_ms = self._runtime.clock.monotonic_ms()
        for each in waiting:
            if not each.answer.done():
                self._write(each.message, each.version, max(1, each.due_ms - now_ms), each.answer)


def report_bug(task: asyncio.Task[None]) -> None:
    """A loop that must not end has ended by itself: that is our own mistake, and must be seen."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("a loop of this node has died: a bug", exc_info=task.exception())


def _hand_over(done: asyncio.Future[Any], answer: asyncio.Future[Any]) -> None:
    """Pass an answer on, or say why there is none."""
    if answer.done():
        done.cancelled() or done.exception()
        return
    if done.cancelled():
        _fail(answer, "the connection was closed")
        return
    error = done.exception()
    if error is None:
        answer.set_result(done.result())
    elif isinstance(error, ConnectionLostError):
        _fail(answer, str(error))
    else:
        answer.set_exception(error)


def _fail(answer: asyncio.Future[Any], why: str) -> None:
    if not answer.done():
        answer.set_exception(ControllerUnavailableError(f"no answer from the controller: {why}"))
