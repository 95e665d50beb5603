"""What doesn't parse: that connection closes, the log says who and why, everyone else goes on.

Method throughout: a bare socket that sends the bytes, beside a proper client that must not notice.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from holdfast.clients.blocking_driver import Driver, parse_addresses
from holdfast.cluster.processes import resident_bytes, wait_until

if TYPE_CHECKING:
    from tests.clients_conformance.conftest import Target

BOUND_S = 15.0


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int, *, client: bytes = b"bad") -> bytes:
    return struct.pack(">hhih", key, version, 7, len(client)) + client


BAD: dict[str, bytes] = {
    "longer than allowed": struct.pack(">i", 2_000_000_000) + b"x" * 100,
    "longer than allowed by one": struct.pack(">i", 104_857_601) + b"x" * 100,
    "negative length": struct.pack(">i", -1),
    "empty": frame(b""),
    "shorter than a header": frame(b"\0\x03\0"),
    "client id behind the end": frame(struct.pack(">hhih", 3, 8, 7, 30_000) + b"abc"),
    "unknown API": frame(header(999, 0)),
    "unknown version": frame(header(3, 99) + b"\0" * 20),
    "negative version": frame(header(3, -1)),
    "body ends early": frame(header(3, 8) + b"\0\0\0\x05\0\x04ab"),
    "a count of two billion": frame(header(3, 8) + b"\x7f\xff\xff\xff" + b"\0" * 10),
    "a string of negative length": frame(header(3, 8) + b"\0\0\0\x01\xff\xf0" + b"\0" * 9),
    "a web browser": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100050100000101"),
}


@pytest.fixture
def connection(target: Target) -> Iterator[socket.socket]:
    address = parse_addresses(target.bootstrap)[0]
    with socket.create_connection(address, timeout=BOUND_S) as made:
        yield made


def is_closed(connection: socket.socket) -> bool:
    """Wait until the node closes; False if it answers instead."""
    try:
        return not connection.recv(1)
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("case", list(BAD))
def test_the_connection_closes_and_others_go_on(
    target: Target, connection: socket.socket, case: str
) -> None:
    """Goal: only the sender is cut off, and the log names it. Method: see the module."""
    with Driver(target.bootstrap) as other:
        before = other.nodes()
        who = "{}:{}".format(*connection.getsockname()[:2])
        connection.sendall(BAD[case])
        assert is_closed(connection)
        assert other.nodes() == before
    if target.local is not None:
        line = wait_until(
            lambda: next((line for line in target.logs().splitlines() if who in line), None),
            timeout_s=BOUND_S,
            what=f"a line of the log about {who}",
        )
        reason = line.partition(who)[2].strip(" :,.-")
        assert reason, f"the log doesn't say why: {line}"


def test_half_a_frame_and_then_nothing(target: Target, connection: socket.socket) -> None:
    """Goal: a client that dies in mid-frame harms nobody. Method: half a request, then the end."""
    whole = frame(header(3, 8) + b"\0\0\0\0\0\0\0")
    connection.sendall(whole[: len(whole) // 2])
    connection.shutdown(socket.SHUT_WR)
    assert is_closed(connection)
    with Driver(target.bootstrap) as other:
        assert len(other.nodes()) == target.brokers


def test_announcing_takes_no_memory(target: Target) -> None:
    """Goal: memory follows what has come, not what is announced. Method: thirty peers that each
    promise 100 MB and send a little.
    """
    if target.local is None:
        pytest.skip("the memory of a cluster that isn't ours can't be seen")
    broker = target.local.node(0)
    assert broker.pid is not None
    before = resident_bytes(broker.pid)
    assert before is not None
    with ExitStack() as promises:
        for _ in range(30):
            promise = socket.create_connection((broker.host, broker.port))
            promises.enter_context(promise)
            promise.sendall(struct.pack(">i", 100_000_000) + b"x" * 200_000)
        with Driver(broker.address) as other:
            assert len(other.nodes()) == target.brokers
        after = resident_bytes(broker.pid)
        assert after is not None
        assert after - before < 100_000_000


def test_what_came_before_is_answered(connection: socket.socket) -> None:
    """Goal: good requests before a bad one keep their answers. Method: both in one segment."""
    good = frame(header(3, 8) + b"\0\0\0\0\0\0\0")
    connection.sendall(good + frame(b"\0\x03\0"))
    size, correlation_id = struct.unpack(">ii", receive(connection, 8))
    assert correlation_id == 7
    receive(connection, size - 4)
    assert is_closed(connection)


def test_a_frame_in_single_bytes(connection: socket.socket) -> None:
    """Goal: segments may cut anywhere. Method: one byte at a time."""
    for byte in frame(header(3, 8) + b"\0\0\0\0\0\0\0"):
        connection.sendall(bytes([byte]))
    size, correlation_id = struct.unpack(">ii", receive(connection, 8))
    assert correlation_id == 7
    receive(connection, size - 4)


def test_a_newer_api_versions_gets_the_oldest_answer(connection: socket.socket) -> None:
    """Goal: KIP-511, so that newer clients can step down. Method: ApiVersions of version 99."""
    connection.sendall(frame(header(18, 99) + b"\0\1\1\0"))
    size, correlation_id, error, count = struct.unpack(">iihi", receive(connection, 14))
    assert (correlation_id, error) == (7, 35)
    assert count >= 1
    entries = receive(connection, size - 10)
    found = {key for key, _, _ in struct.iter_unpack(">hhh", entries[: count * 6])}
    assert 18 in found


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part, "closed too early"
        data += part
    return data
