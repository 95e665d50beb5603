"""Frames and headers: what stands around a message on a connection.

Owns the header versions.

Rules: connections.md#frames, connections.md#headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Layout
from struct import error as LayoutError  # noqa: N812 - an alias for a class
from typing import Final, NamedTuple, TypeAlias

from holdfast.wire.codec import decode, encode_buffers
from holdfast.wire.errors import WireError
from holdfast.wire.messages import (
    API_NAMES,
    FLEXIBLE_SINCE,
    api_name,
    request_class,
    response_class,
)
from holdfast.wire.primitives import skip_tagged_fields
from holdfast.wire.schema import Request, Response

Buffer: TypeAlias = bytes | bytearray | memoryview
Buffers: TypeAlias = list[bytes | memoryview]

FRAME_SIZE_MAX: Final = 104_857_600
"""`socket.request.max.bytes` of Kafka."""

API_VERSIONS: Final = 18
LENGTH_SIZE: Final = 4  # of the number before each frame
CORRELATION_MASK: Final = 0x7FFFFFFF  # correlation ids begin anew behind it
_HEAD: Final = Layout(">hhih")
_LENGTH: Final = Layout(">i")
_RESPONSE_HEAD: Final = Layout(">ii")
_RESPONSE_HEAD_FLEXIBLE: Final = Layout(">iib")


class RequestHeader(NamedTuple):
    """Who asks what, in which version."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None


def is_flexible(key: int, version: int) -> bool:
    """True if requests of that key and version have header version 2."""
    return version >= FLEXIBLE_SINCE[key]


def decode_request_header(view: Buffer) -> tuple[RequestHeader, int]:
    """Return the header of a frame (without its length prefix) and the offset of its body.

    The version is not held against any range: an ApiVersions request may be of a future one, and
    a node serves fewer than are known here. WireError: truncated, or a key not known here.
    """
    try:
        key, version, correlation_id, size = _HEAD.unpack_from(view)
    except LayoutError as error:
        raise WireError(f"a request of {len(view)} bytes is too short for its header") from error
    if key not in API_NAMES:
        raise WireError(f"API key {key} is not known here")
    if version < 0:
        raise WireError(f"{api_name(key)} version {version} is negative")
    offset = _HEAD.size
    client_id = None
    if size >= 0:
        end = offset + size
        if end > len(view):
            raise WireError("truncated in the client id")
        try:
            client_id = str(view[offset:end], "utf-8")
        except UnicodeDecodeError as error:
            raise WireError("the client id is not UTF-8") from error
        offset = end
    if version >= FLEXIBLE_SINCE[key]:
        offset = skip_tagged_fields(view, offset)
    return RequestHeader(key, version, correlation_id, client_id), offset


def decode_request(view: Buffer) -> tuple[RequestHeader, Request]:
    """Return the header and the request of a frame (without its length prefix).

    WireError: it does not parse, or its key or version is not known here.
    """
    header, offset = decode_request_header(view)
    return header, decode(request_class(header.key), header.version, view, offset)


def encode_request_buffers(
    message: Request, version: int, correlation_id: int, client_id: str | None
) -> Buffers:
    """Return a whole frame as buffers to be written in turn; record batches are not copied."""
    body = encode_buffers(message, version)
    name = b"" if client_id is None else client_id.encode()
    head = _HEAD.pack(message.KEY, version, correlation_id, -1 if client_id is None else len(name))
    head += name
    if version >= message.FLEXIBLE:
        head += b"\0"
    return [_LENGTH.pack(len(head) + sum(map(len, body))) + head, *body]


def encode_request(
    message: Request, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return a whole frame, its length prefix included. EncodeError: as `codec.encode`."""
    return b"".join(encode_request_buffers(message, version, correlation_id, client_id))


def encode_response(correlation_id: int, message: Response, version: int) -> Buffers:
    """Return a whole frame as buffers, its length prefix included; records are not copied.

    ApiVersions always answers with header version 0.
    """
    is_flexible = version >= message.FLEXIBLE and message.KEY != API_VERSIONS
    return frame_response(correlation_id, encode_buffers(message, version), is_flexible)


def frame_response(
    correlation_id: int, body: Sequence[bytes | memoryview], is_flexible: bool
) -> Buffers:
    """Return a whole frame of a response that is encoded already."""
    size = sum(map(len, body)) + 4
    if is_flexible:
        head = _RESPONSE_HEAD_FLEXIBLE.pack(size + 1, correlation_id, 0)
    else:
        head = _RESPONSE_HEAD.pack(size, correlation_id)
    return [head, *body]


def decode_response(key: int, version: int, view: Buffer) -> tuple[int, Response]:
    """Return correlation id and response of a frame (without its length prefix).

    WireError: it does not parse, or its key or version is not known here.
    """
    cls = response_class(key)
    if len(view) < _LENGTH.size:
        raise WireError(f"a response of {len(view)} bytes is too short for its header")
    (correlation_id,) = _LENGTH.unpack_from(view)
    offset = _LENGTH.size
    if version >= cls.FLEXIBLE and key != API_VERSIONS:
        offset = skip_tagged_fields(view, offset)
    return correlation_id, decode(cls, version, view, offset)
