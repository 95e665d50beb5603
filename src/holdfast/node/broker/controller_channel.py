"""A broker's connection to the active controller; it has one for each kind of request.

Owns finding the controller among the voters, staying connected to it, moving on when another one
leads, and the time-outs of what was asked. It holds no cluster state and decides nothing; a broker
in the controller's own process comes through the network door too, so that both roles behave alike
wherever they run.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from holdfast.config.node import NodeSettings
from holdfast.node.door.seldom import Seldom
from holdfast.runtime.dial import (
    ANY_FRAME_BYTES,
    Connection,
    ConnectionLostError,
    UnsupportedApiError,
    dial,
)
from holdfast.runtime.ports import Runtime
from holdfast.runtime.tasks import Ended, cancelled, report_bug
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.uuids import METADATA_TOPIC_ID
from holdfast.wire.well_known import METADATA_TOPIC

logger = logging.getLogger("holdfast.channel")

WAITING_MAX: Final = 1000  # requests that wait for a connection; one more is refused at once
BACKOFF_MS: Final = 20  # doubled with each attempt
BACKOFF_MS_MAX: Final = 1000
BACKOFF_MS_ANSWERED_MAX: Final = 80  # while controllers are there, and elect
ADDRESSES_MAX: Final = 100
LINGER_S: Final = 1.0  # so long answers may come from a controller that is no longer active
CONNECT_TIMEOUT_MS: Final = 5000


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
    return voters or [
        ControllerAddress(-1, server.host, server.port)
        for server in settings.controller_quorum_bootstrap_servers
    ]


class KnownLeader:
    """Who leads the quorum, as far as a broker knows: its channels tell each other."""

    def __init__(self) -> None:
        self.epoch = -1
        self.node = -1
        self.addresses: dict[int, ControllerAddress] = {}  # heard of, beside those configured
        self.channels: list[ControllerChannel] = []

    def learn(self, epoch: int, node: int, endpoints: Sequence[Any] = ()) -> None:
        """An answer named the leader of an epoch: all channels of this broker go there.

        `endpoints` have node_id, host and port.
        """
        for each in endpoints:
            if len(self.addresses) < ADDRESSES_MAX or each.node_id in self.addresses:
                self.addresses[each.node_id] = ControllerAddress(each.node_id, each.host, each.port)
        if node < 0 or (epoch, node) == (self.epoch, self.node) or epoch < self.epoch:
            return
        self.epoch, self.node = epoch, node
        for channel in self.channels:
            channel.leader_is(epoch)


class _Found(NamedTuple):
    """What one address turned out to be."""

    connection: Connection
    leads: bool
    epoch: int


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
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        known: KnownLeader | None = None,
    ) -> None:
        """`known` is shared by the channels of one broker: each is told what another learns."""
        assert addresses, "nowhere to find a controller"
        self._runtime = runtime
        self._addresses = list(addresses)
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._connect_timeout_ms = max(1, connect_timeout_ms)
        self.known = known or KnownLeader()
        self.known.channels.append(self)
        self._connection: Connection | None = None
        # To those that answered and don't lead: they are asked again over the same connection.
        self._followers: dict[ControllerAddress, Connection] = {}
        self._epoch = -1  # in which the other end of the connection leads
        self._moved: asyncio.Future[None] | None = None  # done: look for the controller again
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        # Strangers at a controller's port may have it close on us, over and over.
        self._lost = Seldom(logger)

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
        await cancelled(self._task)
        self._leave_followers()
        while self._waiting:
            _fail(self._waiting.popleft().answer, "this node is shutting down")

    @property
    def connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    def drop(self) -> None:
        """Break the connection: what answered was not the active controller."""
        if self._connection is not None:
            self._connection.close()

    def leader_is(self, epoch: int) -> None:
        """Somebody leads in this epoch: whoever led in an earlier one no longer counts."""
        if self._connection is not None and 0 <= self._epoch < epoch:
            self._move(self._connection)

    def send(
        self, message: Any, version: int | None = None, *, timeout_ms: int | None = None
    ) -> asyncio.Future[Any]:
        """Ask the active controller; the future gives the response struct.

        While there is no connection the request waits for one, within its time-out, and it goes to
        the next one when a controller says that it is not the active one. It fails with
        `ControllerUnavailableError` when the time-out passes or when the connection breaks after
        the request was written: then its outcome is unknown, and it is not sent again.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        timeout_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        due_ms = self._runtime.clock.monotonic_ms() + timeout_ms
        self._post(_Waiting(message, version, due_ms, answer))
        return answer

    def _post(self, request: _Waiting) -> None:
        """Write a request, or let it wait for a connection."""
        answer, connection = request.answer, self._connection
        left_ms = request.due_ms - self._runtime.clock.monotonic_ms()
        if self._closed or len(self._waiting) >= WAITING_MAX:
            _fail(
                answer, "this node is shutting down" if self._closed else "too many requests wait"
            )
        elif connection is not None and connection.is_open:
            sent = connection.send(
                request.message, version=request.version, timeout_ms=max(1, left_ms)
            )
            sent.add_done_callback(lambda done: self._answered(connection, request, done))
        else:
            self._waiting.append(request)
            timer = asyncio.get_running_loop().call_later(
                max(0, left_ms) / 1000, self._expire, answer
            )
            answer.add_done_callback(lambda _: timer.cancel())

    def _answered(
        self, connection: Connection, request: _Waiting, done: asyncio.Future[Any]
    ) -> None:
        refused = (
            not done.cancelled()
            and done.exception() is None
            and getattr(done.result(), "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER
        )
        if not refused or request.answer.done() or self._closed:
            _hand_over(done, request.answer)
            return
        # It follows, so it carried nothing out: whoever is active now gets it.
        self._move(connection)
        self._post(request)

    def _move(self, connection: Connection) -> None:
        """Look for the controller anew; what is under way here may still be answered."""
        if self._connection is connection:
            self._connection = None
            if self._moved is not None and not self._moved.done():
                self._moved.set_result(None)
            asyncio.get_running_loop().call_later(LINGER_S, connection.close)

    def _expire(self, answer: asyncio.Future[Any]) -> None:
        """A request that found no connection within its time-out."""
        before = len(self._waiting)
        self._waiting = deque(each for each in self._waiting if each.answer is not answer)
        if len(self._waiting) < before:
            where = ", ".join(f"{address.host}:{address.port}" for address in self._addresses)
            _fail(answer, f"no controller is active at {where}: a majority of them must run")

    # -- finding the controller ----------------------------------------------------------------

    async def _stay_connected(self) -> None:
        """Find the active controller, hand over what waits, and again when that is over."""
        attempt = 0
        while not self._closed:
            found, answered = await self._find(attempt == 1)
            if found is None:
                attempt += 1
                await asyncio.sleep(self._pause_ms(attempt, answered) / 1000)
                continue
            attempt = 0
            self._connection, self._epoch = found.connection, found.epoch
            self._moved = asyncio.get_running_loop().create_future()
            self._flush()
            ends: list[asyncio.Future[None]] = [found.connection.closed, self._moved]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            self._connection = None
            if not self._closed:
                self._lost.info("the connection to the controller is lost")
                await asyncio.sleep(self._pause_ms(1, answered=True) / 1000)

    async def _find(self, tell: bool) -> tuple[_Found | None, bool]:
        """Ask every address at once who leads; the connection to the leader, if there is one.

        Also says whether anybody answered at all. Who doesn't answer holds nobody up: the others
        are asked again meanwhile, for one of them may have been elected.
        """
        loop = asyncio.get_running_loop()
        pending: dict[ControllerAddress, asyncio.Task[_Found | None]] = {}
        answered, leader, rounds = False, None, 0
        try:
            while leader is None:
                rounds += 1
                for address in [*self._addresses, *self.known.addresses.values()]:
                    if address not in pending:
                        known = self._followers.get(address)
                        pending[address] = loop.create_task(self._look_at(address, tell, known))
                tell = False
                again = loop.time() + self._pause_ms(rounds, answered=True) / 1000
                while pending and leader is None and not (answered and loop.time() >= again):
                    patience = max(0.0, again - loop.time()) if answered else None
                    await asyncio.wait(
                        pending.values(), timeout=patience, return_when=asyncio.FIRST_COMPLETED
                    )
                    for address, found in _taken(pending):
                        answered = True
                        if leader is None and found.leads and found.epoch >= self.known.epoch:
                            leader = found
                            self._followers.pop(address, None)
                        else:
                            self._followers[address] = found.connection
                if not pending:
                    break
        finally:
            for task in pending.values():
                _abandon(task)
            if leader is not None:
                self._leave_followers()
        return leader, answered

    async def _look_at(
        self, address: ControllerAddress, tell: bool, known: Connection | None = None
    ) -> _Found | None:
        """Ask one address who leads, over a new connection if none is `known` that is open.

        None: it can't be had.
        """
        try:
            connection = known if known is not None and known.is_open else await self._dial(address)
        except OSError as error:
            # Once is enough to know of; a controller that starts later is no news.
            level = logging.INFO if tell else logging.DEBUG
            logger.log(level, "no controller at %s:%d: %s", address.host, address.port, error)
            return None
        try:
            response = await connection.send(_PROBE, timeout_ms=self._connect_timeout_ms)
        except UnsupportedApiError:
            return _Found(connection, leads=True, epoch=-1)  # it speaks to brokers only: try it
        except OSError as error:
            logger.debug("%s:%d does not answer: %s", address.host, address.port, error)
            connection.close()
            return None
        except asyncio.CancelledError:
            connection.close()
            raise
        partitions = [each for topic in response.responses for each in topic.partitions]
        if not partitions:
            return _Found(connection, leads=response.error_code != ErrorCode.NONE, epoch=-1)
        leader = partitions[0].current_leader
        self.known.learn(leader.leader_epoch, leader.leader_id, response.node_endpoints)
        return _Found(
            connection,
            leads=partitions[0].error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER,
            epoch=leader.leader_epoch,
        )

    def _leave_followers(self) -> None:
        """Nobody but the leader has to be asked any more."""
        for connection in self._followers.values():
            connection.close()
        self._followers.clear()

    async def _dial(self, address: ControllerAddress) -> Connection:
        connection = await dial(
            self._runtime,
            address.host,
            address.port,
            self._client_id,
            timeout_ms=self._connect_timeout_ms,
        )
        connection.frame_bytes_max = ANY_FRAME_BYTES  # no batch of its log can be left out
        return connection

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.answer.done():
                self._post(each)

    def _pause_ms(self, attempt: int, answered: bool) -> int:
        longest = BACKOFF_MS_ANSWERED_MAX if answered else BACKOFF_MS_MAX
        pause = min(longest, BACKOFF_MS << min(attempt - 1, 10))
        return pause // 2 + self._runtime.random.below(pause // 2 + 1)


# Asks who leads and for nothing else: epoch 0 is always over, so that no records come.
_PROBE: Final = FetchRequest(
    max_wait_ms=0,
    topics=[
        FetchTopic(
            topic=METADATA_TOPIC,
            topic_id=METADATA_TOPIC_ID,
            partitions=[FetchPartition(partition=0, current_leader_epoch=0)],
        )
    ],
)


def _taken(
    pending: dict[ControllerAddress, asyncio.Task[_Found | None]],
) -> list[tuple[ControllerAddress, _Found]]:
    """Take what has come out of those that have been asked."""
    done = [address for address, task in pending.items() if task.done()]
    return [(each, found) for each in done if (found := pending.pop(each).result()) is not None]


def _abandon(task: asyncio.Task[_Found | None]) -> None:
    """Nobody needs this answer any more: close its connection, whenever it comes."""

    def close(done: asyncio.Task[_Found | None]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        found = done.result()
        if found is not None:
            found.connection.close()

    task.cancel()
    task.add_done_callback(close)


def _hand_over(done: asyncio.Future[Any], answer: asyncio.Future[Any]) -> None:
    """Pass an answer on, or say why there is none."""
    error = None if done.cancelled() else done.exception()  # looked at in any case
    if answer.done():
        return
    if done.cancelled():
        _fail(answer, "the connection was closed")
    elif error is None:
        answer.set_result(done.result())
    elif isinstance(error, ConnectionLostError):
        _fail(answer, str(error))
    else:
        answer.set_exception(error)


def _fail(answer: asyncio.Future[Any], why: str) -> None:
    if not answer.done():
        answer.set_exception(ControllerUnavailableError(f"no answer from the controller: {why}"))
