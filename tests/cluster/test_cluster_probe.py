"""Waiting asks for Metadata over a plain socket, and takes strangers and cuts for what they are."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.cluster import probe
from holdfast.cluster.layout import ClusterError
from holdfast.wire.codec import encode
from holdfast.wire.frame import decode_request
from holdfast.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

BOUND_S = 10.0


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[tuple[str, int], list[bytes]]]:
    """A server that takes one request, sends these bytes and closes."""
    with answering_each(answer) as served:
        yield served


@contextmanager
def answering_each(*answers: bytes) -> Iterator[tuple[tuple[str, int], list[bytes]]]:
    """A server that takes a connection for each of these, with one request, and closes it."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(BOUND_S)

        def serve() -> None:
            for answer in answers:
                connection, _ = server.accept()
                with connection:
                    requests.append(connection.recv(65_536))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname(), requests
        thread.join(BOUND_S)


RESPONSE = MetadataResponse(
    brokers=[
        MetadataResponseBroker(node_id=0, host="a", port=1, rack=None),
        MetadataResponseBroker(node_id=2, host="b", port=2, rack="r"),
    ],
    cluster_id="id",
    controller_id=2,
    topics=[
        MetadataResponseTopic(
            name="t",
            topic_id=b"t" * 16,
            partitions=[
                MetadataResponsePartition(
                    partition_index=1,
                    error_code=5,
                    leader_id=-1,
                    leader_epoch=4,
                    replica_nodes=[0, 1, 2],
                    isr_nodes=[1],
                    offline_replicas=[1],
                ),
                MetadataResponsePartition(
                    partition_index=0, leader_id=2, leader_epoch=9, replica_nodes=[2], isr_nodes=[2]
                ),
            ],
        ),
        MetadataResponseTopic(name="of a broker that keeps no ids"),
    ],
)


def frame(body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, 1) + body


def frame_with_ids(response: MetadataResponse) -> bytes:
    return frame(b"\0" + encode(response, 10))  # no tagged fields


def version_asked(request: bytes) -> int:
    """Return the version of a request that came behind its size and its key."""
    (version,) = struct.unpack_from(">h", request, 6)
    return int(version)


def test_an_answer_is_read_as_it_was_written() -> None:
    """Goal: every field that waiting uses is right. Method: encode with the tables, ask for it."""
    with answering(frame(encode(RESPONSE, 8))) as (address, requests):
        found = probe.ask(address, ["t"])
    assert found is not None
    assert found.cluster_id == "id"
    assert found.brokers == {0: ("a", 1), 2: ("b", 2)}
    assert found.topic_ids == {}, "which nobody wanted"
    assert list(found.topics["t"]) == [0, 1]
    assert found.topics["t"][1] == probe.PartitionState(
        leader=-1, leader_epoch=4, replicas=(0, 1, 2), isr=(1,), offline=(1,), error=5
    )
    _, request = decode_request(requests[0][4:])
    assert isinstance(request, MetadataRequest)
    assert request.topics is not None
    assert [topic.name for topic in request.topics] == ["t"]
    assert not request.allow_auto_topic_creation


def test_who_wants_ids_of_topics_has_them() -> None:
    with answering(frame_with_ids(RESPONSE)) as (address, requests):
        found = probe.ask(address, ["t"], with_ids=True)
    assert found is not None
    assert found.topic_ids == {"t": b"t" * 16}, "and no id where there is none"
    assert list(map(version_asked, requests)) == [10]


def test_a_cluster_whose_protocol_has_no_ids_answers_without() -> None:
    """Goal: an Apache Kafka before 2.8 is there; it closes on a version that it does not know.

    Method: a server that does. Seen to fail: it was asked for ids by everybody, and called absent.
    """
    with answering_each(b"", frame(encode(RESPONSE, 8))) as (address, requests):
        found = probe.ask(address, ["t"], with_ids=True)
    assert found is not None
    assert (list(found.topics["t"]), found.topic_ids) == ([0, 1], {})
    assert list(map(version_asked, requests)) == [10, 8]
    with answering(frame(encode(RESPONSE, 8))) as (address, requests):
        assert probe.ask(address) is not None
    assert list(map(version_asked, requests)) == [8], "who needs no ids asks once"


def test_who_wants_ids_waits_for_a_silent_broker_once() -> None:
    """Goal: a node that stands still costs one wait. Method: one accepts, as its kernel does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert probe.ask(server.getsockname(), with_ids=True, timeout_s=0.05) is None
        server.settimeout(BOUND_S)
        server.accept()[0].close()
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_all_topics_or_none_can_be_asked_for() -> None:
    """Goal: None and [] mean what they mean in Kafka. Method: decode what is sent."""
    for topics, expected in ((None, None), ((), [])):
        with answering(frame(encode(RESPONSE, 8))) as (address, requests):
            probe.ask(address, topics)
        _, request = decode_request(requests[0][4:])
        assert isinstance(request, MetadataRequest)
        assert request.topics == expected


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", frame(b"\x7f" * 40), frame(b"")]
)
def test_what_is_no_broker_is_named(answer: bytes) -> None:
    """Goal: a stranger on the port is an error, not a wait. Method: bytes of strangers."""
    with answering(answer) as (address, _), pytest.raises(ClusterError, match="broker"):
        probe.ask(address)


def test_nobody_there_is_no_answer() -> None:
    """Goal: a node that isn't up yet is waited for. Method: a port without a listener, a cut."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    assert probe.ask(address) is None
    with answering(b"\0\0\0\x50abc") as (address, _):
        assert probe.ask(address) is None
