"""The asynchronous client against a peer that answers as told, over TCP and over memory.

Goal: answers find their requests, whatever ends a connection ends every request on it, and
memory handed out is not written to again. Method: a scripted peer that speaks real frames.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.runtime.dial import (
    IN_FLIGHT_MAX,
    Connection,
    ConnectionBusyError,
    ConnectionLostError,
    RequestTimeoutError,
    UnsupportedApiError,
    dial,
)
from holdfast.runtime.ports import Runtime
from holdfast.wire.frame import (
    FRAME_SIZE_MAX,
    RequestHeader,
    decode_request_header,
    encode_response,
)
from holdfast.wire.frame_buffer import FrameBuffer
from holdfast.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from holdfast.wire.messages.create_topics import CreateTopicsRequest
from holdfast.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from holdfast.wire.messages.metadata import MetadataRequest, MetadataResponse

RANGES = {18: (0, 4), 3: (0, 12), 1: (4, 17)}
METADATA_VERSION = 12


def versions(error_code: int = 0) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in RANGES.items()
        ],
    )


class Peer(asyncio.Protocol):
    """Answers ApiVersions by itself; anything else goes to `asked`."""

    def __init__(self, asked: Callable[[Peer, RequestHeader], None], api_versions_max: int) -> None:
        self.asked = asked
        self.api_versions_max = api_versions_max
        self.headers: list[RequestHeader] = []
        self._reader = FrameBuffer(FRAME_SIZE_MAX)
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            header, _ = decode_request_header(frame)
            if header.key != ApiVersionsRequest.KEY:
                self.headers.append(header)
                self.asked(self, header)
            elif header.version > self.api_versions_max:
                self.answer(header, versions(error_code=35), version=0)
            else:
                self.answer(header, versions())

    def answer(self, header: RequestHeader, response: Any, version: int | None = None) -> None:
        spoken = header.version if version is None else version
        self.transport.writelines(encode_response(header.correlation_id, response, spoken))


def silent(_peer: Peer, _header: RequestHeader) -> None:
    """Never answer."""


def echo_correlation(peer: Peer, header: RequestHeader) -> None:
    peer.answer(header, MetadataResponse(cluster_id=str(header.correlation_id)))


@asynccontextmanager
async def dialled(
    runtime: Runtime,
    asked: Callable[[Peer, RequestHeader], None],
    *,
    api_versions_max: int = 4,
    **options: Any,
) -> AsyncIterator[tuple[Connection, Peer]]:
    peers: list[Peer] = []

    def accept() -> Peer:
        peers.append(Peer(asked, api_versions_max))
        return peers[-1]

    listener = await runtime.network.listen(accept, "127.0.0.1", 0)
    connection = await dial(runtime, "127.0.0.1", listener.port, "tester", **options)
    try:
        yield connection, peers[0]
    finally:
        connection.close()
        listener.close()
        peers[0].transport.abort()
        await connection.closed


def test_pipelined_requests_get_their_own_answers(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        async with dialled(runtime, echo_correlation) as (connection, peer):
            futures = [connection.send(MetadataRequest(topics=None)) for _ in range(50)]
            assert connection.in_flight == 50
            answers = await asyncio.gather(*futures)
            assert [one.cluster_id for one in answers] == [str(n) for n in range(1, 51)]
            assert connection.in_flight == 0
            assert {header.client_id for header in peer.headers} == {"tester"}
            assert {header.version for header in peer.headers} == {METADATA_VERSION}

    world.run(main)


def test_old_peer_is_asked_again_in_version_0(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        async with dialled(runtime, echo_correlation, api_versions_max=0) as (connection, _):
            assert connection.version_of(MetadataRequest) == METADATA_VERSION
            assert (await connection.send(MetadataRequest(topics=None))).cluster_id == "2"

    world.run(main)


def test_api_that_the_peer_lacks(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        async with dialled(runtime, silent) as (connection, _):
            with pytest.raises(UnsupportedApiError, match="CreateTopics"):
                connection.version_of(CreateTopicsRequest)
            with pytest.raises(UnsupportedApiError):
                await connection.send(CreateTopicsRequest())
            assert connection.is_open

    world.run(main)


@pytest.mark.parametrize("ends", ["peer closes", "peer aborts", "we close"])
def test_every_request_hears_of_the_end(world: Any, ends: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with dialled(runtime, silent) as (connection, peer):
            futures = [connection.send(MetadataRequest(topics=None)) for _ in range(3)]
            if ends == "peer closes":
                peer.transport.close()
            elif ends == "peer aborts":
                peer.transport.abort()
            else:
                connection.close()
            results = await asyncio.gather(*futures, return_exceptions=True)
            assert [type(one) for one in results] == [ConnectionLostError] * 3
            await connection.closed
            assert not connection.is_open
            with pytest.raises(ConnectionLostError):
                await connection.send(MetadataRequest(topics=None))

    world.run(main)


def test_no_answer_in_time_ends_the_connection(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        async with dialled(runtime, silent) as (connection, _):
            patient = connection.send(MetadataRequest(topics=None))
            hasty = connection.send(MetadataRequest(topics=None), timeout_ms=30)
            with pytest.raises(RequestTimeoutError, match="Metadata"):
                await hasty
            with pytest.raises(ConnectionLostError):
                await patient
            assert not connection.is_open

    world.run(main)


def test_answered_requests_do_not_time_out(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        held: list[RequestHeader] = []

        def second_waits(peer: Peer, header: RequestHeader) -> None:
            if header.correlation_id == 2:
                held.append(header)
                asyncio.get_running_loop().call_later(0.05, peer.answer, header, MetadataResponse())
            else:
                peer.answer(header, MetadataResponse())

        async with dialled(runtime, second_waits) as (connection, _):
            await connection.send(MetadataRequest(topics=None), timeout_ms=20)
            # The timer of the first request fires while the second one waits; it must pass over.
            await connection.send(MetadataRequest(topics=None), timeout_ms=10_000)
            assert connection.is_open

    if world.name == "memory":  # over TCP a slow machine could make the first one late
        world.run(main)


def test_in_flight_is_bounded(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        async with dialled(runtime, silent) as (connection, _):
            for _ in range(IN_FLIGHT_MAX):
                connection.send(MetadataRequest(topics=None))
            with pytest.raises(ConnectionBusyError):
                await connection.send(MetadataRequest(topics=None))
            assert connection.is_open

    world.run(main)


def test_cancelled_request_disturbs_no_other(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        async with dialled(runtime, echo_correlation) as (connection, _):
            connection.send(MetadataRequest(topics=None)).cancel()
            assert (await connection.send(MetadataRequest(topics=None))).cluster_id == "2"

    world.run(main)


@pytest.mark.parametrize(
    "reply",
    [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\1x", b"\0\0\0\x08\0\0\0\x63\0\0\0\0"],
    ids=["negative length", "giant length", "no header", "another correlation id"],
)
def test_nonsense_ends_the_connection(world: Any, reply: bytes) -> None:
    async def main(runtime: Runtime) -> None:
        async with dialled(runtime, lambda peer, _: peer.transport.write(reply)) as (conn, _):
            with pytest.raises(ConnectionLostError, match="doesn't speak the protocol"):
                await conn.send(MetadataRequest(topics=None))
            assert not conn.is_open

    world.run(main)


def fetched(size: int, fill: int) -> FetchResponse:
    data = PartitionData(partition_index=0, records=bytes([fill]) * size)
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])


@pytest.mark.parametrize("size", [10, 40_000, 70_000, 3_000_000])
def test_records_of_an_answer_are_its_own(world: Any, size: int) -> None:
    """Keep every answer, then look: a receive buffer used twice would show."""

    async def main(runtime: Runtime) -> None:
        def serve(peer: Peer, header: RequestHeader) -> None:
            peer.answer(header, fetched(size, header.correlation_id))

        async with dialled(runtime, serve) as (connection, _):
            answers = await asyncio.gather(
                *(connection.send(FetchRequest(), version=17) for _ in range(8))
            )
            for n, answer in enumerate(answers, 1):
                records = answer.responses[0].partitions[0].records
                assert bytes(records) == bytes([n]) * size

    world.run(main)


def test_dial_gives_up_on_who_never_answers(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        accepted: list[asyncio.Protocol] = []

        class Mute(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.append(self)
                self.transport = transport

        listener = await runtime.network.listen(Mute, "127.0.0.1", 0)
        with pytest.raises(RequestTimeoutError):
            await dial(runtime, "127.0.0.1", listener.port, "tester", timeout_ms=50)
        listener.close()

    world.run(main)


def test_dial_to_nobody_is_an_oserror(world: Any) -> None:
    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.listen(asyncio.Protocol, "127.0.0.1", 0)
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await dial(runtime, "127.0.0.1", listener.port, "tester")

    world.run(main)
