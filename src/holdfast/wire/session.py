"""A client's side of one connection, without the connection: bytes in, answers out.

Owns negotiation (ApiVersions, its fall-back), correlation and order, for every client here: the
blocking driver drives a `ClientSession`, the nodes' own client takes its parts. Must never touch a
socket or a clock: the driver writes what `take_output` gives, reads into `space`, and times out.

    session = ClientSession("my-client")
    write(session.take_output())            # the ApiVersions request
    while not session.ready:
        session.received(read_into(session.space())); write(session.take_output())
    session.send(MetadataRequest(topics=None))
    write(session.take_output())
    for reply in session.received(read_into(session.space())): ...
"""

from __future__ import annotations

from collections import deque
from struct import Struct as Layout
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from holdfast import __version__
from holdfast.wire.codec import decode
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.frame import (
    CORRELATION_MASK,
    FRAME_SIZE_MAX,
    decode_response,
    encode_request_buffers,
)
from holdfast.wire.frame_buffer import GIVEN_BYTES_MIN, Buffer, FrameBuffer
from holdfast.wire.messages import api_name
from holdfast.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from holdfast.wire.schema import Request, Response

Buffers: TypeAlias = list[bytes | memoryview]

_ID: Final = Layout(">i")
_ID_SIZE: Final = 4


class UnsupportedVersionError(Exception):
    """The peer and we have no version of an API in common."""


class Negotiation:
    """Which versions a peer and we have in common, by its answer to ApiVersions.

    Send `hello` in `version`; hand each answer to `read`, and send again while it says so.
    """

    def __init__(self, software_name: str, software_version: str) -> None:
        self.hello: Final = ApiVersionsRequest(
            client_software_name=software_name, client_software_version=software_version
        )
        self.version = ApiVersionsRequest.MAX_VERSION
        self.answer: ApiVersionsResponse | None = None
        self._ranges: dict[int, tuple[int, int]] = {}

    def read(self, frame: Buffer) -> bool:
        """Read an answer; False: ask once more, in the oldest version. WireError: it is none.

        A refusal of our version comes in version 0, whatever was asked (KIP-511).
        """
        code = int.from_bytes(frame[_ID_SIZE : _ID_SIZE + 2], "big", signed=True)
        refused = code == ErrorCode.UNSUPPORTED_VERSION
        answer = decode(ApiVersionsResponse, 0 if refused else self.version, frame, _ID_SIZE)
        if refused and self.version > 0:
            self.version = 0
            return False
        if answer.error_code != ErrorCode.NONE:
            raise WireError(f"the peer refuses ApiVersions with error {answer.error_code}")
        self.answer = answer
        self._ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        return True

    def version_of(self, cls: type[Request] | Request, version_max: int | None = None) -> int:
        """Return the newest version of an API that both sides have.

        `version_max` bounds it further. UnsupportedVersionError: there is none.
        """
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


class Numbered(Protocol):
    """A request in flight."""

    @property
    def correlation_id(self) -> int: ...


N = TypeVar("N", bound=Numbered)


class InFlight(deque[N], Generic[N]):
    """Requests without an answer yet, oldest first, and the numbers that they are given."""

    def __init__(self) -> None:
        super().__init__()
        self._next_id = 0

    def take_id(self) -> int:
        """Return the number of the next request."""
        taken = self._next_id
        self._next_id = (taken + 1) & CORRELATION_MASK
        return taken

    def match(self, frame: Buffer) -> N:
        """Return the request that a frame answers; it is in flight until it is popped.

        WireError: it is not the oldest one, and the connection must be closed.
        """
        if not self:
            raise WireError("an answer to no request")
        (correlation_id,) = _ID.unpack_from(frame)
        expected = self[0]
        if correlation_id != expected.correlation_id:
            raise WireError(
                f"an answer to {correlation_id} where {expected.correlation_id} was expected"
            )
        return expected


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
        software_version: str = __version__,
        frame_size_max: int = FRAME_SIZE_MAX,
    ) -> None:
        self.client_id = client_id
        self._negotiation = Negotiation(software_name, software_version)
        self._frames = FrameBuffer(frame_size_max)
        self._expected: InFlight[_Expected] = InFlight()
        self._output: Buffers = []
        self._say_hello()

    @property
    def ready(self) -> bool:
        """Whether the peer has said what it speaks."""
        return self.api_versions is not None

    @property
    def api_versions(self) -> ApiVersionsResponse | None:
        """What the peer has answered to ApiVersions."""
        return self._negotiation.answer

    @property
    def in_flight(self) -> int:
        """Requests not answered yet."""
        return len(self._expected)

    def version_of(self, cls: type[Request], version_max: int | None = None) -> int:
        """Return the newest version of an API that both sides have (see `Negotiation`)."""
        assert self.ready, "nothing is negotiated yet"
        return self._negotiation.version_of(cls, version_max)

    def send(self, request: Request, version: int | None = None, *, answered: bool = True) -> int:
        """Queue a request and return its correlation id. `answered=False`: Produce with acks=0.

        Without a version it takes `version_of`. EncodeError: that version can't carry it.
        """
        if version is None:
            version = self.version_of(type(request))
        correlation_id = self._expected.take_id()
        self._output += encode_request_buffers(request, version, correlation_id, self.client_id)
        if answered:
            self._expected.append(_Expected(correlation_id, request.KEY, version))
        return correlation_id

    def take_output(self) -> Buffers:
        """Return what is to be written now, and forget it."""
        output, self._output = self._output, []
        return output

    def feed(self, data: Buffer) -> list[Reply]:
        """Take what was read elsewhere; else as `received`."""
        return [reply for _ in self._frames.fill(data) for reply in self._answers()]

    def space(self) -> memoryview:
        """Return where to read to next; it is not empty."""
        return self._frames.space()

    def received(self, count: int) -> list[Reply]:
        """Note that so many bytes were read into `space`; return the answers that they complete.

        None of the negotiation's. A large answer keeps the memory that it was read into. WireError:
        the peer does not speak the protocol; the connection must be closed.
        """
        self._frames.received(count)
        return self._answers()

    def _answers(self) -> list[Reply]:
        """Read all frames that are whole."""
        frames = self._frames
        replies: list[Reply] = []
        while (view := frames.cut()) is not None:
            if len(view) >= GIVEN_BYTES_MIN:
                self._take(view, replies)
                frames.give()
            else:
                self._take(bytes(view), replies)
        return replies

    def _take(self, frame: Buffer, replies: list[Reply]) -> None:
        expected = self._expected.match(frame)
        if self.ready:
            _, response = decode_response(expected.key, expected.version, frame)
            replies.append(Reply(expected.correlation_id, expected.version, response))
        elif not self._negotiation.read(frame):
            self._say_hello()
        self._expected.popleft()

    def _say_hello(self) -> None:
        self.send(self._negotiation.hello, self._negotiation.version)
