"""What a request may weigh, by what it asks.

Goal: no frame within socket.request.max.bytes becomes gigabytes of objects or holds the loop for
long, while records may be as large as they like; and a mistake in a handler never has a frame
handled twice. Method: a connection without a network, given bytes; real requests, then counted.
"""

from __future__ import annotations

import asyncio
import logging
import tracemalloc
from collections.abc import Callable
from functools import partial
from struct import pack

import pytest

from holdfast.node.api.produce import decode_request
from holdfast.node.door import request_bounds as bounds
from holdfast.node.door.budget import Budget
from holdfast.node.door.connection import BUFFER_BYTES, Connection, Connections
from holdfast.node.door.ledger import REQUESTS, Ledger
from holdfast.node.door.request_bounds import ENVELOPE, PRODUCED_MAX, SMALL_BYTES_MAX, check_produce
from holdfast.node.door.request_context import (
    PARTITION_BYTES,
    WAITING_BYTES,
    AllowAll,
    Deferred,
    RequestContext,
)
from holdfast.wire.codec import encode
from holdfast.wire.errors import WireError
from holdfast.wire.frame import decode_request_header, encode_request
from holdfast.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from holdfast.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.primitives import uvarint

METADATA, PRODUCE = 3, 0
MIB = 1024 * 1024


class Wire(asyncio.Transport):
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False
        self.written = b""

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def connected(
    handle: Callable[[Connection, memoryview], Deferred | None],
) -> tuple[Connection, Wire]:
    group = Connections(listener="TEST", handle=handle, frame_bytes_max=100 * MIB)
    group.held = False
    connection, wire = group.accept(), Wire()
    connection.connection_made(wire)
    return connection, wire


def receive(connection: Connection, data: bytes) -> None:
    buffer = connection.get_buffer(-1)
    assert len(data) <= len(buffer)
    buffer[: len(data)] = data
    connection.buffer_updated(len(data))


@pytest.mark.parametrize(
    ("key", "size", "taken"),
    [
        (METADATA, SMALL_BYTES_MAX, True),
        (METADATA, SMALL_BYTES_MAX + 1, False),
        (PRODUCE, 100 * MIB, True),
        (PRODUCE, 100 * MIB + 1, False),
        (ENVELOPE, SMALL_BYTES_MAX + 1000, True),
        (ENVELOPE, 100 * MIB, False),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_only_records_may_be_large(
    key: int, size: int, taken: bool, together: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused as soon as it is announced; an Envelope may hold what a client may send."""

    async def scenario() -> None:
        connection, wire = connected(lambda _, __: None)
        announced = pack(">ih", size, key)
        if together:
            receive(connection, announced)
        else:
            for piece in (announced[:3], announced[3:5], announced[5:]):
                if not wire.aborted:
                    receive(connection, piece)
        assert wire.aborted is not taken

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert ("closing the connection" in caplog.text) is not taken


def test_a_request_that_waits_for_its_answer_keeps_none_of_its_bytes() -> None:
    """One that has appended 8 MiB and waits for its followers held the whole receive buffer."""

    async def scenario() -> None:
        waiting: list[Deferred] = []

        def handle(connection: Connection, frame: memoryview) -> Deferred:
            header, _ = decode_request_header(frame)
            client, deliver = connection.client, connection.deliver
            waiting.append(RequestContext(header, None, frame, client, AllowAll(), deliver).defer())
            return waiting[-1]

        connection, _ = connected(handle)
        data = encode_request(request(1, 1, b"r" * (8 * MIB)), 9, 1, "producer")
        tracemalloc.start()
        try:
            for _ in range(5):
                for begin in range(0, len(data), BUFFER_BYTES):
                    piece = data[begin : begin + BUFFER_BYTES]
                    while len(connection.get_buffer(-1)) < len(piece):
                        await asyncio.sleep(0)  # others have their turn where it took long
                    receive(connection, piece)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(waiting) == 5
        assert held < MIB, f"{held >> 20} MiB are held by requests whose records were taken"

    asyncio.run(scenario())


def test_the_refusal_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        connection, _ = connected(lambda _, __: None)
        receive(connection, pack(">ih", SMALL_BYTES_MAX + 1, METADATA))

    asyncio.run(scenario())
    assert "to Metadata: without records it may have 4194304; ask for less" in caplog.text


def test_a_handler_that_breaks_has_no_frame_handled_twice() -> None:
    """Woken by a timer, nobody closes for us: the first frame was handled again with the second."""
    seen: list[bytes] = []

    def handle(_: Connection, frame: memoryview) -> None:
        seen.append(bytes(frame[:1]))
        assert frame[0] != ord("b"), "broken on purpose"

    async def scenario() -> None:
        connection, wire = connected(handle)
        connection.group.held = True
        receive(connection, b"".join(pack(">i", 8) + each * 8 for each in (b"a", b"b", b"c")))
        assert not seen
        connection.group.held = False
        with pytest.raises(AssertionError, match="on purpose"):
            connection.resume()
        assert wire.aborted
        connection.resume()
        connection.buffer_updated(0)
        assert seen == [b"a", b"b"]

    asyncio.run(scenario())


def request(topics: int, partitions: int, records: bytes = b"") -> ProduceRequest:
    return ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(index=n, records=records) for n in range(partitions)
                ],
            )
            for _ in range(topics)
        ],
    )


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_a_produce_request_has_so_many_parts(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PRODUCED_MAX", 1000)
    for topics, partitions in ((1, 999), (500, 1)):
        data = memoryview(encode(request(topics, partitions), version))
        check_produce(version, data, 0)
    for topics, partitions in ((1, 1000), (1001, 0), (500, 2)):
        data = memoryview(encode(request(topics, partitions), version))
        with pytest.raises(WireError, match="more than 1000 topics and partitions"):
            check_produce(version, data, 0)


def test_tagged_fields_of_a_produce_request_count_as_parts() -> None:
    """Goal: no 50 million of them in 100 MB, spread over parts, are walked one by one."""
    tagged = (4).to_bytes(4, "big") + b"\0" + uvarint(1000) + b"\x7f\0" * 1000
    for partitions, fits in ((99, True), (100, False)):
        topic = b"\x02t" + uvarint(partitions + 1) + tagged * partitions + b"\0"
        data = memoryview(b"\0" + b"\0\1\0\0\0\1" + b"\x02" + topic + b"\0")
        if fits:
            check_produce(9, data, 0)
            assert len(decode_request(9, data, 0).topic_data[0].partition_data) == partitions
            continue
        with pytest.raises(WireError, match="topics and partitions"):
            check_produce(9, data, 0)


@pytest.mark.slow
@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_a_large_produce_request_is_looked_through_first(version: int) -> None:
    large = memoryview(encode(request(1, 3, b"r" * MIB), version))
    decoded = decode_request(version, large, 0)
    assert [len(each.records or b"") for each in decoded.topic_data[0].partition_data] == [MIB] * 3
    many = memoryview(encode(request(2 * PRODUCED_MAX, 1), version))
    assert len(many) > MIB
    with pytest.raises(WireError, match="topics and partitions"):
        decode_request(version, many, 0)
    with pytest.raises(WireError):
        decode_request(version, large[: len(large) // 2], 0)


def test_what_requests_keep_while_they_wait_counts_for_the_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Goal: no number of connections makes a node keep more than it may of requests that wait."""
    waiting: list[Deferred] = []
    lost: list[Deferred] = []

    def handle(connection: Connection, frame: memoryview) -> Deferred:
        header, _ = decode_request_header(frame)
        context = RequestContext(
            header, None, frame, connection.client, AllowAll(), connection.deliver
        )
        deferred = context.defer(partitions=1000)
        deferred.lost = partial(lost.append, deferred)
        waiting.append(deferred)
        return deferred

    async def scenario() -> None:
        ledger = Ledger(REQUESTS, 3 * MIB)
        group = Connections(
            listener="TEST",
            handle=handle,
            frame_bytes_max=MIB,
            budget=Budget(requests=ledger),
        )
        group.held = False
        request = encode_request(ApiVersionsRequest(), 0, 1, "a client")
        wires = [Wire(), Wire()]
        modest, greedy = connections = [group.accept(), group.accept()]
        for connection, wire in zip(connections, wires, strict=True):
            connection.connection_made(wire)
        receive(modest, request)
        each = WAITING_BYTES + 1000 * PARTITION_BYTES + len("a client")
        assert ledger.held == each
        waiting.pop().answer(ApiVersionsResponse())
        assert (ledger.held, modest._kept_bytes) == (0, 0)
        for _ in range(6):
            receive(greedy, request)
        assert (ledger.held, wires[1].aborted) == (6 * each, False)
        receive(greedy, request)
        assert (ledger.held, ledger.closed, wires[1].aborted) == (0, 1, True)
        assert lost == waiting, "whoever waits for nobody is told, the last one too"

    caplog.set_level(logging.WARNING, "holdfast.budget")
    asyncio.run(scenario())
    (line,) = caplog.messages
    assert "requests that wait" in line
    assert "holdfast.request.bytes.max" in line


def test_an_answer_after_the_end_of_its_connection_gives_nothing_back() -> None:
    waiting: list[Deferred] = []

    def handle(connection: Connection, _: memoryview) -> Deferred:
        waiting.append(Deferred(lambda _: [b"a"], connection.deliver, kept=MIB))
        return waiting[-1]

    async def scenario() -> None:
        connection, _wire = connected(handle)
        receive(connection, encode_request(ApiVersionsRequest(), 0, 1, None))
        ledger = connection.group.budget.requests
        assert ledger.held == MIB
        connection.connection_lost(None)
        assert ledger.held == 0
        waiting[0].answer(None)
        assert ledger.held == 0

    asyncio.run(scenario())
