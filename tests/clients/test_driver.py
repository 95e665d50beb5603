"""The blocking driver against nodes that answer as told.

Goal: every failure has its own name, nothing is sent twice, and routing follows the metadata.
Method: real sockets; each scripted node is a thread that speaks real frames.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from holdfast.clients.blocking_driver import (
    AnswerLostError,
    AnswerTimeoutError,
    Driver,
    DriverError,
    NoBrokerError,
    NoLeaderError,
    Peer,
    UnreachableError,
    UnsupportedError,
    parse_addresses,
)
from holdfast.wire.frame import FRAME_SIZE_MAX, RequestHeader, decode_request, encode_response
from holdfast.wire.frame_buffer import FrameBuffer
from holdfast.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from holdfast.wire.messages.create_topics import CreateTopicsRequest
from holdfast.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from holdfast.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.schema import Request, Response

RANGES = {18: (0, 4), 3: (0, 12), 2: (1, 8)}
Answer = Callable[[RequestHeader, Request], Response | bytes | None]


class Node:
    """A node in a thread: answers ApiVersions by itself, the rest by `answer`.

    An answer of None closes the connection; bytes are sent as they are.
    """

    def __init__(self, node_id: int = 0) -> None:
        self.node_id = node_id
        self.asked: list[tuple[RequestHeader, Request]] = []
        self.answer: Answer = lambda _header, _request: MetadataResponse()
        self.accepted = 0
        self.ranges = dict(RANGES)
        self._connections: list[socket.socket] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.accepted += 1
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        reader = FrameBuffer(FRAME_SIZE_MAX)
        with connection:
            while True:
                try:
                    data = connection.recv(65536)
                except OSError:
                    return
                if not data:
                    return
                for frame in reader.feed(data):
                    if not self._handle(connection, frame):
                        return

    def _handle(self, connection: socket.socket, frame: bytes) -> bool:
        header, request = decode_request(frame)
        reply: Response | bytes | None
        if isinstance(request, ApiVersionsRequest):
            reply = ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=key, min_version=low, max_version=high)
                    for key, (low, high) in self.ranges.items()
                ]
            )
        else:
            self.asked.append((header, request))
            reply = self.answer(header, request)
        if reply is None:
            return False
        if isinstance(reply, bytes):
            connection.sendall(reply)
        else:
            buffers = encode_response(header.correlation_id, reply, header.version)
            connection.sendall(b"".join(buffers))
        return True

    def drop_connections(self) -> None:
        for connection in self._connections:
            connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(timeout=10)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed already
        for thread in self._threads:
            thread.join(timeout=10)


@pytest.fixture
def nodes() -> Iterator[Callable[[int], Node]]:
    with ExitStack() as stack:

        def make(node_id: int) -> Node:
            node = Node(node_id)
            stack.callback(node.close)
            return node

        yield make


@pytest.fixture
def node(nodes: Callable[[int], Node]) -> Node:
    return nodes(0)


def metadata(brokers: list[Node], topics: list[MetadataResponseTopic]) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=one.node_id, host="127.0.0.1", port=one.port)
            for one in brokers
        ],
        controller_id=brokers[-1].node_id,
        topics=topics,
    )


def topic(name: str, leaders: list[int], error_code: int = 0) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        topic_id=name.encode().ljust(16, b"."),
        error_code=error_code,
        partitions=[
            MetadataResponsePartition(partition_index=n, leader_id=leader)
            for n, leader in enumerate(leaders)
        ],
    )


def test_request_and_answer(node: Node) -> None:
    node.answer = lambda _header, _request: MetadataResponse(cluster_id="c")
    with Driver(node.address, "me") as driver:
        assert driver.send(MetadataRequest(topics=None)).cluster_id == "c"
        assert driver.send(MetadataRequest(topics=None), version=9).cluster_id == "c"
    assert [(h.client_id, h.version) for h, _ in node.asked] == [("me", 12), ("me", 9)]
    assert node.accepted == 1


def test_pipelined_answers_come_in_order(node: Node) -> None:
    node.answer = lambda header, _request: MetadataResponse(cluster_id=str(header.correlation_id))
    peer = Peer("127.0.0.1", node.port)
    for _ in range(20):
        peer.post(MetadataRequest(topics=None))
    assert peer.in_flight == 20
    assert [peer.take().cluster_id for _ in range(20)] == [str(n) for n in range(1, 21)]
    peer.close()


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Driver(f"127.0.0.1:{port}") as driver, pytest.raises(UnreachableError, match=str(port)):
        driver.send(MetadataRequest(topics=None))


def test_any_bootstrap_address_will_do(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Driver(f"127.0.0.1:{port},{node.address}") as driver:
        driver.send(MetadataRequest(topics=None))
    assert len(node.asked) == 1


def test_answer_that_never_comes(node: Node) -> None:
    gate = threading.Event()

    def wait(_header: RequestHeader, _request: Request) -> None:
        gate.wait(30)

    node.answer = wait
    with Driver(node.address) as driver:
        with pytest.raises(AnswerTimeoutError, match="Metadata"):
            driver.send(MetadataRequest(topics=None), timeout_s=0.05)
        gate.set()
        node.answer = lambda _header, _request: MetadataResponse()
        driver.send(MetadataRequest(topics=None))
    assert node.accepted == 2, "the connection with the late answer is not used again"


def test_connection_that_ends_instead(node: Node) -> None:
    node.answer = lambda _header, _request: None
    with Driver(node.address) as driver, pytest.raises(AnswerLostError, match="closed"):
        driver.send(MetadataRequest(topics=None))
    assert len(node.asked) == 1, "it is not sent again"


def test_answer_that_does_not_parse(node: Node) -> None:
    node.answer = lambda _header, _request: b"\xff\xff\xff\xf0junk"
    with Driver(node.address) as driver, pytest.raises(AnswerLostError, match="parse"):
        driver.send(MetadataRequest(topics=None))


def test_connection_closed_while_idle_is_opened_anew(node: Node) -> None:
    with Driver(node.address) as driver:
        driver.send(MetadataRequest(topics=None))
        node.drop_connections()
        driver.send(MetadataRequest(topics=None))
    assert (node.accepted, len(node.asked)) == (2, 2)


def test_api_that_the_node_lacks(node: Node) -> None:
    with Driver(node.address) as driver, pytest.raises(UnsupportedError, match="CreateTopics"):
        driver.send(CreateTopicsRequest())
    assert not node.asked


def test_who_serves_no_clients(node: Node) -> None:
    """Goal: the address of a controller is told from a broker that lacks an API."""
    del node.ranges[MetadataRequest.KEY]
    with Driver(node.address) as driver, pytest.raises(NoBrokerError, match="a controller"):
        driver.nodes()
    assert not node.asked


def test_what_is_no_kafka_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            connection, _ = server.accept()
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(UnreachableError, match="is it Kafka"):
            Peer("127.0.0.1", server.getsockname()[1])
        thread.join(timeout=10)


def test_requests_go_to_whom_they_are_for(nodes: Callable[[int], Node]) -> None:
    brokers = [nodes(n) for n in range(3)]

    def answer(_header: RequestHeader, request: Request) -> Response:
        if isinstance(request, MetadataRequest):
            return metadata(brokers, [topic("t", [1, 2])])
        return ListOffsetsResponse()

    for broker in brokers:
        broker.answer = answer
    with Driver(brokers[0].address) as driver:
        assert driver.nodes() == {n: ("127.0.0.1", brokers[n].port) for n in range(3)}
        assert (driver.leader("t", 0), driver.leader("t", 1)) == (1, 2)
        assert driver.topic_id("t") == b"t..............."
        asked = len(brokers[0].asked)
        driver.send(ListOffsetsRequest(), node=driver.leader("t", 0))
        driver.send(ListOffsetsRequest(), node=2)
        driver.send(ListOffsetsRequest(), node="controller")
        assert len(brokers[0].asked) == asked, "what is remembered is not asked for"
        assert [len(broker.asked) for broker in brokers[1:]] == [1, 2]
        driver.leader("t", 0, refresh=True)
        assert len(brokers[0].asked) == asked + 1
        with pytest.raises(UnreachableError, match=r"node 9 .*\(0, 1, 2\)"):
            driver.send(ListOffsetsRequest(), node=9)


def test_no_leader_is_an_error_with_its_code(node: Node) -> None:
    node.answer = lambda _header, _request: metadata([node], [topic("t", [-1])])
    with Driver(node.address) as driver:
        with pytest.raises(NoLeaderError, match="LEADER_NOT_AVAILABLE") as caught:
            driver.leader("t", 0)
        assert caught.value.code == 5
        with pytest.raises(NoLeaderError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            driver.leader("t", 7)
    node.answer = lambda _header, _request: metadata([node], [topic("t", [], error_code=3)])
    with Driver(node.address) as driver:
        for ask in (lambda: driver.leader("t", 0), lambda: driver.topic_id("t")):
            with pytest.raises(NoLeaderError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                ask()


def test_every_error_is_a_driver_error() -> None:
    for kind in (UnreachableError, AnswerLostError, AnswerTimeoutError, UnsupportedError):
        assert issubclass(kind, DriverError)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:65535", [("a", 1), ("b", 65535)]),
        ("[::1]:9092", [("::1", 9092)]),
    ],
)
def test_addresses(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:0", "a:65536", "a:x", "a:1,,b:2", "a:²"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_addresses(text)
