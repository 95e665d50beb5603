"""A blocking client of the protocol: one request, one answer, nothing behind the scenes.

Owns sockets to the nodes of one cluster and knows who leads what. Must never try a request
twice, wait and try again, or reorder: who drives decides that, and sees every error as it is.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from holdfast.wire.errors import ErrorCode, WireError, error_name
from holdfast.wire.messages import api_name
from holdfast.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from holdfast.wire.schema import Request
from holdfast.wire.session import ClientSession, UnsupportedVersionError

if TYPE_CHECKING:
    from holdfast.wire.administration import AdminRequest  # most who drive never ask for it

T = TypeVar("T")

NodeChoice = int | Literal["controller"] | None

_TIMEOUT_S = 10.0


class DriverError(Exception):
    """Something is wrong between us and the cluster; the text says what and with whom."""


class UnreachableError(DriverError):
    """No connection could be had: nothing was sent."""


class AnswerLostError(DriverError):
    """Sent, and no answer came: the node may or may not have done what was asked."""


class AnswerTimeoutError(AnswerLostError):
    """Sent, and no answer came in time. The connection was closed."""


class UnsupportedError(DriverError):
    """The node doesn't speak this API, or no version of it that we speak. Nothing was sent."""


class NoBrokerError(UnsupportedError):
    """Who answered tells nothing of the cluster: a controller, most likely. Nothing was sent."""


class NoLeaderError(DriverError):
    """The cluster names no leader for the partition, or doesn't know it (`code` says which)."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Peer:
    """One connection to one node. Requests may be pipelined; answers come in their order."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str = "holdfast",
        *,
        timeout_s: float = _TIMEOUT_S,
        connect_s: float | None = None,
    ) -> None:
        """Connect and negotiate versions. UnreachableError: nobody listens, or no Kafka does.

        `connect_s` bounds that much alone (None: `timeout_s`): an answer may take longer.
        """
        self.name = f"{host}:{port}"
        self._timeout_s = timeout_s
        self._session = ClientSession(client_id)
        self._posted: deque[str] = deque()  # names of the APIs asked, for error texts
        self._answers: deque[Any] = deque()
        bound_s = timeout_s if connect_s is None else connect_s
        deadline = time.monotonic() + bound_s
        try:
            self._socket = socket.create_connection((host, port), bound_s)
        except OSError as error:
            raise UnreachableError(f"can't connect to {self.name}: {error}") from error
        self.is_open = True
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while not self._session.ready:
                self._write()
                self._read(deadline)
        except AnswerLostError as error:
            self.close()
            raise UnreachableError(f"{self.name} accepts, but is it Kafka? {error}") from error

    @property
    def in_flight(self) -> int:
        """Requests posted whose answers were not taken."""
        return len(self._posted)

    def version_of(self, message: Request | type[Request]) -> int:
        """Highest version of a request (its class or an instance) that both sides know."""
        cls = message if isinstance(message, type) else type(message)
        try:
            return self._session.version_of(cls)
        except UnsupportedVersionError as error:
            if not self._serves_clients():
                raise NoBrokerError(
                    f"{self.name} serves no clients: is it a controller? Name a broker"
                ) from error
            raise UnsupportedError(f"{self.name}: {error}") from error

    def _serves_clients(self) -> bool:
        """Say whether it is a broker: every one of them serves Metadata."""
        try:
            self._session.version_of(MetadataRequest)
        except UnsupportedVersionError:
            return False
        return True

    def post(self, message: Request, *, version: int | None = None, answered: bool = True) -> None:
        """Send a request without waiting. `answered=False`: none will come (acks=0)."""
        if version is None:
            version = self.version_of(message)
        if not self.is_open:
            raise UnreachableError(f"the connection to {self.name} is closed")
        self._session.send(message, version, answered=answered)
        if answered:
            self._posted.append(api_name(message.KEY))
        self._socket.settimeout(self._timeout_s)
        self._write()

    def take(self, *, timeout_s: float | None = None) -> Any:
        """Wait for the answer to the oldest posted request."""
        assert self._posted, "nothing is posted"
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while not self._answers:
            self._read(deadline)
        self._posted.popleft()
        return self._answers.popleft()

    def send(
        self, message: Request, *, version: int | None = None, timeout_s: float | None = None
    ) -> Any:
        """Post, then take. Only when nothing else is in flight."""
        assert not self._posted, "something else is in flight"
        self.post(message, version=version)
        return self.take(timeout_s=timeout_s)

    def perform(self, asked: AdminRequest[T], *, timeout_s: float | None = None) -> T:
        """Send an administrative request and read its answer. AdminError: it is a refusal."""
        return asked.read(self.send(asked.message, timeout_s=timeout_s))

    def is_stale(self) -> bool:
        """True if the node has closed the connection while nothing was in flight."""
        if not self.is_open:
            return True
        self._socket.setblocking(False)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._socket.close()

    def _abort(self) -> None:
        """Close the connection, and let the system forget what it could not deliver.

        Where packets vanish it would try for minutes, and a request that was given up could be
        done behind later ones.
        """
        if self.is_open:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def _write(self) -> None:
        output = self._session.take_output()
        try:
            self._socket.sendall(b"".join(output))
        except OSError as error:
            self.close()
            raise AnswerLostError(self._say("the connection broke while sending", error)) from error

    def _read(self, deadline: float) -> None:
        try:
            if not self.is_open:
                raise OSError("it is closed")  # noqa: TRY301 - as a closed socket would say
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            count = self._socket.recv_into(self._session.space())
        except TimeoutError as error:
            self._abort()
            raise AnswerTimeoutError(self._say("no answer in time")) from error
        except OSError as error:
            self.close()
            raise AnswerLostError(self._say("the connection broke", error)) from error
        if not count:
            self.close()
            raise AnswerLostError(self._say("the node closed the connection"))
        try:
            self._answers.extend(reply.response for reply in self._session.received(count))
        except WireError as error:
            self.close()
            raise AnswerLostError(self._say("the answer doesn't parse", error)) from error

    def _say(self, what: str, error: Exception | None = None) -> str:
        asked = self._posted[0] if self._posted else "ApiVersions"
        return f"{asked} to {self.name}: {what}" + (f" ({error})" if error else "")


class Driver(AbstractContextManager["Driver"]):
    """Requests to the nodes of one cluster, over one connection to each that is needed."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str = "holdfast",
        *,
        timeout_s: float = _TIMEOUT_S,
        connect_s: float | None = None,
    ) -> None:
        """Nothing is sent yet. `bootstrap`: "host:port,host:port". ValueError: it isn't that.

        `timeout_s` bounds an answer, `connect_s` a connection (None: the same).
        """
        self._bootstrap = parse_addresses(bootstrap)
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connect_s = connect_s
        self._peers: dict[tuple[str, int], Peer] = {}
        self._nodes: dict[int, tuple[str, int]] = {}
        self._controller = -1
        self._leaders: dict[tuple[str, int], int] = {}
        self._topic_ids: dict[str, bytes] = {}

    def send(
        self,
        message: Request,
        *,
        node: NodeChoice = None,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Send one request and return its response struct; codes inside are the caller's.

        `node`: an id; "controller" for the node that Metadata names as controller; None for
        any node that can be reached. DriverError and its kinds as they say.
        """
        return self.peer(node).send(message, version=version, timeout_s=timeout_s)

    def perform(
        self, asked: AdminRequest[T], *, node: NodeChoice = None, timeout_s: float | None = None
    ) -> T:
        """Send an administrative request to a node, as `send` does, and read its answer.

        AdminError: the cluster refuses.
        """
        return self.peer(node).perform(asked, timeout_s=timeout_s)

    def metadata(
        self, topics: Sequence[str] | None = None, *, auto_creation: bool = False
    ) -> MetadataResponse:
        """Fetch metadata from any node (None: of all topics) and remember it."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=auto_creation)
        response = self.send(request)
        assert isinstance(response, MetadataResponse)
        self._nodes = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self._controller = response.controller_id
        for topic in response.topics:
            self._remember(topic)
        return response

    def nodes(self) -> dict[int, tuple[str, int]]:
        """Ids, hosts and ports of the brokers alive, asked for anew."""
        self.metadata([])
        return dict(self._nodes)

    def leader(self, topic: str, partition: int, *, refresh: bool = False) -> int:
        """Leader's id, from what is remembered unless `refresh`. NoLeaderError."""
        known = self._leaders.get((topic, partition), -1)
        if known >= 0 and not refresh:
            return known
        found = next(one for one in self.metadata([topic]).topics if one.name == topic)
        if found.error_code:
            raise _refusal(f"topic {topic!r}", found.error_code)
        for one in found.partitions:
            if one.partition_index == partition:
                if one.leader_id < 0:
                    raise _refusal(
                        f"{topic}-{partition}", one.error_code or ErrorCode.LEADER_NOT_AVAILABLE
                    )
                return one.leader_id
        raise _refusal(f"{topic}-{partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def topic_id(self, topic: str) -> bytes:
        """UUID of a topic (16 bytes), for the versions that speak of topics by id."""
        if topic not in self._topic_ids:
            found = next(one for one in self.metadata([topic]).topics if one.name == topic)
            if found.error_code:
                raise _refusal(f"topic {topic!r}", found.error_code)
        return self._topic_ids[topic]

    def peer(self, node: NodeChoice = None) -> Peer:
        """Return the connection to a node, opening it when there is none; for pipelining."""
        if node is None:
            return self._any_peer()
        if node == "controller":
            if self._controller < 0:
                self.metadata([])
            if self._controller < 0:
                raise UnreachableError("the cluster names no controller")
            node = self._controller
        if node not in self._nodes:
            self.metadata([])
        if node not in self._nodes:
            alive = ", ".join(map(str, sorted(self._nodes))) or "none"
            raise UnreachableError(f"node {node} is not among the brokers alive ({alive})")
        return self._connected(*self._nodes[node])

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _any_peer(self) -> Peer:
        # Bootstrap addresses first: what was remembered may be of nodes that are gone.
        failures = []
        for address in dict.fromkeys([*self._bootstrap, *self._nodes.values()]):
            try:
                return self._connected(*address)
            except UnreachableError as error:
                failures.append(str(error))
        raise UnreachableError("; ".join(failures))

    def _connected(self, host: str, port: int) -> Peer:
        peer = self._peers.get((host, port))
        if peer is not None and not peer.in_flight and peer.is_stale():
            peer.close()
        if peer is None or not peer.is_open:
            peer = Peer(
                host,
                port,
                self._client_id,
                timeout_s=self._timeout_s,
                connect_s=self._connect_s,
            )
            self._peers[host, port] = peer
        return peer

    def _remember(self, topic: MetadataResponseTopic) -> None:
        if topic.name is None:
            return
        if not topic.error_code:
            self._topic_ids[topic.name] = topic.topic_id
        for partition in topic.partitions:
            self._leaders[topic.name, partition.partition_index] = partition.leader_id


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """Read "host:port,[::1]:port". ValueError: it isn't that."""
    addresses = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{part.strip()!r} is not host:port")
        addresses.append((host.removeprefix("[").removesuffix("]"), int(port)))
    return addresses


def _refusal(what: str, code: int) -> NoLeaderError:
    return NoLeaderError(f"{what}: {error_name(code)}", code)
