"""A client's side of one connection, without the connection: bytes in, answers out.

Owns negotiation (ApiVersions, its fall-back), correlation and order. Must never touch a socket
or a clock: the driver writes what `take_output` gives, feeds what it read, and times out.

    session = ClientSession("my-client")
    write(session.take_output())            # the ApiVersions request
    while not session.ready:
        session.feed(read()); write(session.take_output())
    session.send(MetadataRequest(topics=None))
    write(session.take_output())
    for reply in session.feed(read()): ...
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple, TypeAlias

from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.frame import (
    FRAME_SIZE_MAX,
    FrameReader,
    decode_response,
    encode_request_buffers,
)
from holdfast.wire.messages import api_name
from holdfast.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from holdfast.wire.schema import Request, Response

Buffer: TypeAlias = bytes | bytearray | memoryview
Buffers: TypeAlias = list[bytes | memoryview]

_CORRELATION_MASK: Final = 0x7FFFFFFF


class UnsupportedVersionError(Exception):
    """The peer and we have no version of an API in common."""


class Reply(NamedTuple):
    """One answer, in the order of the requests."""

    correlation_id: int
    version: int
    response: Response


class _Expected(NamedTuple):
    correlation_id: int
    key: int
    version: int


class ClientSession:
    """Negotiates, numbers requests, pairs answers with them. Any number may be in flight."""

    def __init__(
        self,
        client_id: str,
        *,
        software_name: str = "holdfast",
        software_version: str = "0.1.0",
        frame_size_max: int = FRAME_SIZE_MAX,
    ) -> None:
        self.client_id = client_id
        self.ready = False
        self.api_versions: ApiVersionsResponse | None = None
        self._ranges: dict[int, tuple[int, int]] = {}
        self._reader = FrameReader(frame_size_max)
        self._expected: deque[_Expected] = deque()
        self._output: Buffers = []
        self._next_correlation_id = 0
        self._hello = ApiVersionsRequest(
            client_software_name=software_name, client_software_version=software_version
        )
        self._say_hello(ApiVersionsRequest.MAX_VERSION)

    @property
    def in_flight(self) -> int:
        """Requests not answered yet."""
        return len(self._expected)

    def version_of(self, cls: type[Request], version_max: int | None = None) -> int:
        """Return the newest version of an API that both sides have.

        `version_max` bounds it further. UnsupportedVersionError: there is none.
        """
        assert self.ready, "nothing is negotiated yet"
        theirs = self._ranges.get(cls.KEY)
        if theirs is None:
            raise UnsupportedVersionError(f"{api_name(cls.KEY)}: the peer does not serve it")
        version = min(theirs[1], cls.MAX_VERSION)
        if version_max is not None:
            version = min(version, version_max)
        if version < max(theirs[0], cls.MIN_VERSION):
            limit = "" if version_max is None else f", at most {version_max} is wanted"
            raise UnsupportedVersionError(
                f"{api_name(cls.KEY)}: we have {cls.MIN_VERSION} to {cls.MAX_VERSION},"
                f" the peer {theirs[0]} to {theirs[1]}{limit}"
            )
        return version

    def send(self, request: Request, version: int | None = None, *, answered: bool = True) -> int:
        """Queue a request and return its correlation id. `answered=False`: Produce with acks=0.

        Without a version it takes `version_of`. EncodeError: that version can't carry it.
        """
        if version is None:
            version = self.version_of(type(request))
        correlation_id = self._next_correlation_id
        self._output += encode_request_buffers(request, version, correlation_id, self.client_id)
        self._next_correlation_id = (correlation_id + 1) & _CORRELATION_MASK
        if answered:
            self._expected.append(_Expected(correlation_id, request.KEY, version))
        return correlation_id

    def take_output(self) -> Buffers:
        """Return what is to be written now, and forget it."""
        output, self._output = self._output, []
        return output

    def feed(self, data: Buffer) -> list[Reply]:
        """Take what was read; return the answers that it completes (none of the negotiation's).

        WireError: the peer does not speak the protocol; the connection must be closed.
        """
        replies: list[Reply] = []
        for frame in self._reader.feed(data):
            if not self._expected:
                raise WireError("an answer to no request")
            expected = self._expected.popleft()
            if not self.ready:
                self._negotiate(expected, frame)
                continue
            correlation_id, response = decode_response(expected.key, expected.version, frame)
            _check_correlation(expected, correlation_id)
            replies.append(Reply(correlation_id, expected.version, response))
        return replies

    def _say_hello(self, version: int) -> None:
        self.send(self._hello, version)

    def _negotiate(self, expected: _Expected, frame: bytes) -> None:
        """Read an ApiVersions answer. One that refuses our version has a version 0 body."""
        version = expected.version
        if int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        correlation_id, response = decode_response(expected.key, version, frame)
        _check_correlation(expected, correlation_id)
        assert isinstance(response, ApiVersionsResponse)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and expected.version > 0:
            self._say_hello(0)
            return
        if response.error_code != ErrorCode.NONE:
            raise WireError(f"the peer refuses ApiVersions with error {response.error_code}")
        self.api_versions = response
        self._ranges = {
            api.api_key: (api.min_version, api.max_version) for api in response.api_keys
        }
        self.ready = True


def _check_correlation(expected: _Expected, correlation_id: int) -> None:
    if correlation_id != expected.correlation_id:
        raise WireError(
            f"an answer to {correlation_id} where {expected.correlation_id} was expected"
        )
