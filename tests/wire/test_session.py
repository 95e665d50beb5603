"""The sans-IO client session: negotiation, order, pipelining, peers that misbehave."""

from __future__ import annotations

import pytest

from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.frame import decode_request, encode_response
from holdfast.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from holdfast.wire.messages.fetch import FetchRequest
from holdfast.wire.messages.metadata import MetadataRequest, MetadataResponse
from holdfast.wire.messages.produce import ProduceRequest
from holdfast.wire.schema import Request, Response
from holdfast.wire.session import ClientSession, UnsupportedVersionError

RANGES = ApiVersionsResponse(
    api_keys=[
        ApiVersion(api_key=18, min_version=0, max_version=4),
        ApiVersion(api_key=3, min_version=0, max_version=99),
        ApiVersion(api_key=0, min_version=0, max_version=9),
        ApiVersion(api_key=1, min_version=30, max_version=40),
    ]
)


def written(session: ClientSession) -> list[tuple[int, int, Request]]:
    """Return (correlation id, version, request) of what the session wants written."""
    stream = b"".join(session.take_output())
    found = []
    while stream:
        size = int.from_bytes(stream[:4], "big")
        header, request = decode_request(stream[4 : 4 + size])
        assert header.client_id == session.client_id
        found.append((header.correlation_id, header.version, request))
        stream = stream[4 + size :]
    return found


def answer(correlation_id: int, version: int, response: Response) -> bytes:
    return b"".join(encode_response(correlation_id, response, version))


def ready_session() -> ClientSession:
    session = ClientSession("test")
    [(correlation_id, version, _)] = written(session)
    assert session.feed(answer(correlation_id, version, RANGES)) == []
    assert session.ready
    assert session.take_output() == []
    return session


def test_negotiation() -> None:
    session = ClientSession("test", software_name="tool", software_version="2")
    assert not session.ready
    [(_, version, hello)] = written(session)
    assert version == 4
    assert hello == ApiVersionsRequest(client_software_name="tool", client_software_version="2")
    assert ready_session().api_versions == RANGES


def test_an_old_peer_is_asked_again_in_version_0() -> None:
    """Goal: KIP-511. Method: answer with error 35 and a body of version 0, as brokers do."""
    session = ClientSession("test")
    [(first, _, _)] = written(session)
    refusal = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=RANGES.api_keys
    )
    session.feed(answer(first, 0, refusal))
    assert not session.ready
    [(second, version, _)] = written(session)
    assert version == 0
    assert second != first
    session.feed(answer(second, 0, ApiVersionsResponse(api_keys=RANGES.api_keys)))
    assert session.ready


def test_a_peer_that_refuses_version_0_too() -> None:
    session = ClientSession("test")
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    session.feed(answer(written(session)[0][0], 0, refusal))
    with pytest.raises(WireError, match="refuses ApiVersions with error 35"):
        session.feed(answer(written(session)[0][0], 0, refusal))


def test_the_newest_common_version_is_taken() -> None:
    session = ready_session()
    assert session.version_of(MetadataRequest) == 13
    assert session.version_of(MetadataRequest, version_max=5) == 5
    assert session.version_of(ProduceRequest) == 9
    with pytest.raises(UnsupportedVersionError, match="Fetch: we have 4 to 18, the peer 30 to 40"):
        session.version_of(FetchRequest)
    with pytest.raises(UnsupportedVersionError, match="Produce: we have 3 to 13, the peer 0 to 9"):
        session.version_of(ProduceRequest, version_max=2)


def test_requests_pipeline_and_answers_keep_their_order() -> None:
    session = ready_session()
    ids = [session.send(MetadataRequest(topics=[])) for _ in range(5)]
    assert session.in_flight == 5
    assert [correlation_id for correlation_id, _, _ in written(session)] == ids
    stream = b"".join(answer(one, 13, MetadataResponse(controller_id=one)) for one in ids)
    replies = session.feed(stream[:40])
    replies += session.feed(stream[40:])
    assert [reply.correlation_id for reply in replies] == ids
    assert [reply.response.controller_id for reply in replies] == ids  # type: ignore[attr-defined]
    assert session.in_flight == 0


def test_a_request_without_an_answer() -> None:
    """Goal: Produce with acks=0 has no answer; the next answer is the next request's."""
    session = ready_session()
    session.send(ProduceRequest(acks=0), answered=False)
    correlation_id = session.send(MetadataRequest(), 12)
    [reply] = session.feed(answer(correlation_id, 12, MetadataResponse()))
    assert (reply.correlation_id, reply.version) == (correlation_id, 12)


def test_peers_that_misbehave() -> None:
    session = ready_session()
    with pytest.raises(WireError, match="an answer to no request"):
        session.feed(answer(0, 12, MetadataResponse()))
    session = ready_session()
    correlation_id = session.send(MetadataRequest(), 12)
    with pytest.raises(WireError, match="where"):
        session.feed(answer(correlation_id + 1, 12, MetadataResponse()))
    session = ready_session()
    session.send(MetadataRequest(), 12)
    with pytest.raises(WireError, match="a frame of"):
        session.feed(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(WireError):
        ClientSession("test").feed(answer(0, 4, RANGES)[:4] + b"\0" * 100)
