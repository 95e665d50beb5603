"""Frames and headers, against kafka-python's; the reader that cuts a stream into frames."""

from __future__ import annotations

import kafka.protocol.metadata as kafka_python
import pytest

from holdfast.wire import frame
from holdfast.wire.errors import EncodeError, WireError
from holdfast.wire.frame_buffer import FrameBuffer
from holdfast.wire.messages import API_NAMES, api_name, module_name, request_class, response_class
from holdfast.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from holdfast.wire.messages.metadata import MetadataRequest, MetadataResponse


@pytest.mark.parametrize("version", [0, 8, 9, 13])
@pytest.mark.parametrize("client", ["me", "", "ünï"])
def test_request_frames_as_kafka_python_writes_them(version: int, client: str) -> None:
    theirs = kafka_python.MetadataRequest[version](topics=[])
    theirs.with_header(correlation_id=77, client_id=client)
    written = bytes(theirs.encode(version=version, header=True, framed=True))
    ours = frame.encode_request(MetadataRequest(topics=[]), version, 77, client)
    assert ours == written
    header, request = frame.decode_request(memoryview(ours)[4:])
    assert header == (3, version, 77, client)
    assert request == MetadataRequest(topics=[])


def test_a_client_without_a_name() -> None:
    ours = frame.encode_request(MetadataRequest(), 12, 1, None)
    header, offset = frame.decode_request_header(ours[4:])
    assert header.client_id is None
    assert offset == 11


@pytest.mark.parametrize("version", [0, 8, 9, 12])
def test_response_frames(version: int) -> None:
    response = MetadataResponse(controller_id=4 if version else -1)
    whole = b"".join(frame.encode_response(9, response, version))
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    assert frame.decode_response(3, version, whole[4:]) == (9, response)
    theirs = kafka_python.MetadataResponse.decode(
        whole[4:], version=version, header=True, framed=False
    )
    assert theirs.header.correlation_id == 9


@pytest.mark.parametrize("version", range(5))
def test_api_versions_always_answers_with_header_version_0(version: int) -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=0, max_version=13)])
    whole = b"".join(frame.encode_response(1, response, version))
    theirs = kafka_python.ApiVersionsResponse.decode(
        whole, version=version, header=True, framed=True
    )
    assert theirs.header.correlation_id == 1
    assert theirs.api_keys[0].max_version == 13
    assert frame.decode_response(18, version, whole[4:])[1] == response


def test_headers_of_future_versions_are_read() -> None:
    """Goal: a node can answer an ApiVersions request of a version that it does not know."""
    data = frame.encode_request(ApiVersionsRequest(), 4, 5, "new")
    future = data[4:6] + b"\x00\x63" + data[8:]
    header, _ = frame.decode_request_header(future)
    assert header == (18, 99, 5, "new")
    with pytest.raises(WireError, match="ApiVersionsRequest version 99 is not known here"):
        frame.decode_request(future)


def test_unknown_tagged_fields_in_headers_are_skipped() -> None:
    body = frame.encode_request(MetadataRequest(), 12, 5, "c")[4:]
    assert body[11] == 0
    tagged = body[:11] + b"\x02\x07\x03abc\x63\x00" + body[12:]
    header, offset = frame.decode_request_header(tagged)
    assert header.client_id == "c"
    assert tagged[offset:] == body[12:]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "too short"),
        (b"\0\3\0\0\0\0\0\1\0", "too short"),
        (b"\x27\x0f\0\0\0\0\0\1\xff\xff", "API key 9999 is not known here"),
        (b"\0\3\xff\xff\0\0\0\1\xff\xff", "version -1 is negative"),
        (b"\0\3\0\0\0\0\0\1\0\5abc", "truncated"),
        (b"\0\3\0\0\0\0\0\1\0\1\xff", "UTF-8"),
        (b"\0\3\0\x0c\0\0\0\1\xff\xff", "truncated"),
        (b"\0\3\0\x0c\0\0\0\1\xff\xff\x01\x00\x7f", "longer than what remains"),
    ],
)
def test_bad_request_headers(data: bytes, text: str) -> None:
    with pytest.raises(WireError, match=text):
        frame.decode_request_header(data)


def test_bad_responses() -> None:
    with pytest.raises(WireError, match="too short"):
        frame.decode_response(3, 12, b"\0\0")
    with pytest.raises(WireError, match="API key 9999"):
        frame.decode_response(9999, 0, b"\0\0\0\0")
    with pytest.raises(EncodeError, match="version 99 is not known here"):
        frame.encode_response(1, MetadataResponse(), 99)


@pytest.mark.parametrize("step", [3, 7, 1000, 1_000_000])
def test_a_stream_is_cut_into_frames(step: int) -> None:
    frames = [b"1234", b"12345", b"bc" * 50, b"d" * 100_000]
    stream = b"".join(len(one).to_bytes(4, "big") + one for one in frames)
    reader = FrameBuffer(frame.FRAME_SIZE_MAX)
    found: list[bytes] = []
    for start in range(0, len(stream), step):
        found += reader.feed(stream[start : start + step])
    assert found == frames


@pytest.mark.slow
def test_room_for_a_frame_is_made_as_it_comes() -> None:
    """Whoever announces two gigabytes has to send them first."""
    reader = FrameBuffer(2**31 - 1)
    size, largest = 20 << 20, 0
    assert reader.feed((2**31 - 1).to_bytes(4, "big")) == []
    assert len(reader.space()) <= 16 << 20
    reader = FrameBuffer(2**31 - 1)
    stream = size.to_bytes(4, "big") + bytes(range(256)) * (size >> 8)
    for start in range(0, len(stream), 5 << 20):
        largest = max(largest, len(reader.space()))
        found = reader.feed(stream[start : start + (5 << 20)])
    assert found == [stream[4:]]
    assert largest <= 32 << 20


@pytest.mark.parametrize("length", [-1, 3, 101, 2**31 - 1, -(2**31)])
def test_lengths_of_frames_are_bounded(length: int) -> None:
    reader = FrameBuffer(100)
    assert reader.feed(length.to_bytes(4, "big", signed=True)[:3]) == []
    with pytest.raises(WireError, match="at most 100"):
        reader.feed(length.to_bytes(4, "big", signed=True)[3:])


def test_every_api_has_its_module() -> None:
    for key, name in API_NAMES.items():
        assert request_class(key).__name__ == name + "Request"
        assert response_class(key).__name__ == name + "Response"
        assert request_class(key).__module__.endswith("." + module_name(key))
        assert request_class(key).MAX_VERSION == response_class(key).MAX_VERSION
        assert request_class(key).MIN_VERSION == response_class(key).MIN_VERSION
    assert api_name(0) == "Produce"
    assert api_name(999) == "API 999"
    with pytest.raises(WireError, match="API key 4 is not known here"):
        request_class(4)
