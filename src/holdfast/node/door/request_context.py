"""What a handler is told about its request, and what it may ask: who, from where, and may they.

Owns the security seams: the principal that a connection's authentication gate has established, and
the authorizer that every handler asks, in the words of one API: refusals and operation sets. So it
has Kafka's table of which operations exist for which kind of resource; who may do what is the
authorizer's. It decides nothing about any API.

Rules: errors.md#a-right-that-is-missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple, NoReturn, Protocol, TypeAlias

from holdfast.core.refusal import Refusal
from holdfast.wire import hot
from holdfast.wire.errors import EncodeError, ErrorCode
from holdfast.wire.frame import RequestHeader, frame_response
from holdfast.wire.structs import ResourceType as ConfigResourceType

logger = logging.getLogger("holdfast.context")

Buffers: TypeAlias = Sequence[bytes | bytearray | memoryview]

ANONYMOUS = "User:ANONYMOUS"

WAITING_BYTES: Final = 2048  # in memory, of a request that waits
PARTITION_BYTES: Final = 512  # and of each partition that it waits for


class Operation(IntEnum):
    """Kafka's ACL operations, by their numbers on the wire."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """Kafka's ACL resource types, by their numbers on the wire."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME = "kafka-cluster"  # the one name of a CLUSTER resource
NOT_REQUESTED: Final = -2_147_483_648  # authorized operations, when nobody asked for them

OPERATIONS: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
assert OPERATIONS.keys() == set(ResourceType), "each kind can be asked for"

_CODES: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Need(NamedTuple):
    """What a client must be allowed to do, and to which kind of resource."""

    operation: Operation
    kind: ResourceType


class Authorizer(Protocol):
    def allows(
        self, context: RequestContext, operation: Operation, kind: ResourceType, name: str
    ) -> bool: ...


class AllowAll:
    """The authorizer while there are no ACLs."""

    def allows(
        self, _context: RequestContext, _operation: Operation, _kind: ResourceType, _name: str
    ) -> bool:
        return True


class Deferred:
    """The answer to one request that comes later; its place among the answers is kept.

    Exactly one of `answer` and `abandon` is called, once, at any later moment on the loop, or
    before the handler returns; or neither, by one that has set `lost`. When the connection is gone
    by then, nothing happens. But whoever sets `outlives` is not told so by `lost`, goes on, and
    calls one of them: until then what the request keeps stays counted.
    """

    __slots__ = (
        "_deliver",
        "_encode",
        "_put_away",
        "buffers",
        "closes",
        "counted",
        "is_answered",
        "is_before_effect",
        "is_left",
        "kept",
        "outlives",
        "partitions",
        "proceed",
        "reserved",
    )

    def __init__(
        self,
        encode: Callable[[object], Buffers],
        deliver: Callable[[Deferred], None],
        reserved: int = 0,
        partitions: int = 0,
        *,
        kept: int = 0,
        is_before_effect: bool = False,
    ) -> None:
        self.buffers: Buffers = ()
        self.kept = kept  # bytes in memory until it is answered
        self.counted = 0  # of these, by its connection
        self.partitions = partitions  # that it waits for, if they may be many
        self.reserved = reserved  # bytes that the answer may come to have, if they are many
        self.is_answered = False
        self.closes = False  # the connection ends instead of an answer
        self._put_away: Callable[[], None] = _nothing
        # What the request does is not done yet, and nothing behind it may be done before it. Who
        # has done it calls `proceed`, once.
        self.is_before_effect = is_before_effect
        self.proceed: Callable[[], None] = _nothing
        # Its effect is due also when its client has gone before. `lost` is called then only where
        # the node holds too much: the work ends with nothing done.
        self.outlives = False
        self.is_left = False  # the client has gone before: nobody takes an answer
        self._encode = encode
        self._deliver = deliver

    @classmethod
    def answered(cls, buffers: Buffers) -> Deferred:
        """Make an answer that is ready, and has to wait for its turn only."""
        deferred = cls(_never, _never)
        deferred.buffers = buffers
        deferred.is_answered = True
        return deferred

    @property
    def sender(self) -> Hashable:
        """The same as of its request's context."""
        return self._deliver

    @property
    def lost(self) -> Callable[[], None]:
        """Called when the connection ends first: what waits for this answer's sake need not.

        See `outlives` for what is to be done all the same.

        It is let go of then, and with an answer: it refers to whoever has this promise, and a
        circle would keep the connection and all that it received until a collector comes by.
        """
        put_away, self._put_away = self._put_away, _nothing
        return put_away

    @lost.setter
    def lost(self, put_away: Callable[[], None]) -> None:
        self._put_away = put_away

    def leave_to(self, deliver: Callable[[Deferred], None]) -> None:
        """Its client has gone: who is told here of the end of its work takes no answer."""
        assert not self.is_answered, "its effect is done"
        self.is_left = True
        self.proceed = _nothing
        self._deliver = deliver

    @property
    def size(self) -> int:
        """Bytes of the answer, which is there."""
        return sum(map(len, self.buffers))

    def answer(self, response: object) -> None:
        """Send a response struct; it is encoded for the request's own version.

        One that can't be is our mistake: it costs this client its connection, and not whoever
        answers (the controller, a partition) the rest of its work.
        """
        assert not self.is_answered, "a request is answered once"
        try:
            self.buffers = self._encode(response)
        except EncodeError:
            logger.exception("an answer can't be encoded: its connection closes")
            self.abandon()
            return
        self.is_answered = True
        self._put_away = _nothing
        self._deliver(self)

    def answer_nothing(self) -> None:
        """There is no answer to this request (acks=0): those behind it may go."""
        assert not self.is_answered, "a request is answered once"
        self.is_answered = True
        self._put_away = _nothing
        self._deliver(self)

    def abandon(self) -> None:
        """Close the connection instead of answering: there is no error that would fit."""
        assert not self.is_answered, "a request is answered once"
        self.is_answered = self.closes = True
        self._put_away = _nothing
        self._deliver(self)


def _nothing() -> None:
    """Whoever answers has nothing to put away."""


def _never(_again: object) -> NoReturn:
    raise AssertionError("an answer that is ready is neither answered nor delivered again")


class Client(NamedTuple):
    """Who is at the other end: of a connection, or of the broker that forwarded its request."""

    principal: str
    host: str  # an IP address in text
    listener: str  # the listener's name, "PLAINTEXT" say


class RequestContext:
    """One request's surroundings: its header, its client, and the way back to it."""

    __slots__ = (
        "_deliver",
        "authorizer",
        "client",
        "frame",
        "header",
        "need",
        "version",
    )

    def __init__(
        self,
        header: RequestHeader,
        need: Need | None,
        frame: memoryview | bytes,
        client: Client,
        authorizer: Authorizer,
        deliver: Callable[[Deferred], None],
    ) -> None:
        self.header = header
        self.need = need  # what its API takes, by the table
        self.frame = frame  # header and body as received; dies when the handler returns
        self.client = client
        self.authorizer = authorizer
        self.version = header.version
        self._deliver = deliver

    @property
    def sender(self) -> Hashable:
        """What tells requests of one connection from those of all others."""
        return self._deliver

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the principal may do this."""
        return self.authorizer.allows(self, operation, kind, name)

    def defer(self, reserved: int = 0, partitions: int = 0) -> Deferred:
        """Promise an answer for later; the handler returns what it gets here.

        One that may be large says how large, and for how many partitions it waits: while so much is
        promised, its client is not read.
        """
        kept = self._kept(PARTITION_BYTES * partitions)
        return Deferred(self.encode, self._deliver, reserved, partitions, kept=kept)

    def _kept(self, more: int) -> int:
        return WAITING_BYTES + len(self.header.client_id or "") + more

    def defer_encoded(self, is_flexible: bool) -> Deferred:
        """Promise an answer that its handler gives as bytes: a response's body, encoded."""
        frame = partial(_frame, self.header.correlation_id, is_flexible)
        return Deferred(frame, self._deliver, kept=self._kept(0))

    def defer_effect(self, size: int) -> Deferred:
        """Promise an answer, and that what the request does is done later: see `proceed`.

        Until then so many bytes of it are kept.
        """
        kept = self._kept(size)
        return Deferred(self.encode, self._deliver, kept=kept, is_before_effect=True)

    def defer_alone(self, is_flexible: bool) -> Deferred:
        """Promise an answer, a response struct or its body as bytes, and nothing else meanwhile.

        What its client has sent behind this request is looked at when `proceed` is called, which
        whoever answers has to do.
        """
        encode_body = partial(_frame, self.header.correlation_id, is_flexible)

        def encode(answer: object) -> Buffers:
            return encode_body(answer) if isinstance(answer, bytes) else self.encode(answer)

        return Deferred(encode, self._deliver, kept=self._kept(0), is_before_effect=True)

    def encode(self, answer: object) -> Buffers:
        """Encode a response struct for the request's version."""
        return hot.encode_answer(answer, self.version, self.header.correlation_id)


def _frame(correlation_id: int, is_flexible: bool, body: object) -> Buffers:
    assert isinstance(body, bytes), "an encoded body was promised"
    return frame_response(correlation_id, [body], is_flexible)


# -- what handlers ask the authorizer --------------------------------------------------------


def authorized_operations(context: RequestContext, kind: ResourceType, name: str) -> int:
    """The bit field of operations that the requester may perform."""
    return sum(
        1 << operation for operation in OPERATIONS[kind] if context.allows(operation, kind, name)
    )


def refusal(context: RequestContext, name: str, need: Need | None = None) -> Refusal | None:
    """Return why the requester has no right to what is named so; None: it has.

    What the API takes, its row in the table says; `need` is for one that takes something else too.
    """
    need = need or context.need
    assert need is not None, "an API that takes nothing refuses nobody"
    operation, kind = need
    if context.allows(operation, kind, name):
        return None
    what = f"{kind.name.lower().replace('_', ' ')} '{name}'"
    return Refusal(_CODES[kind], f"{context.client.principal} may not {operation.name} {what}.")


def refused(
    context: RequestContext, names: Iterable[str], need: Need | None = None
) -> dict[str, Refusal]:
    """Return the refusals of those names to which the requester has no right."""
    return {name: why for name in names if (why := refusal(context, name, need)) is not None}


def config_refusal(context: RequestContext, kind: int, name: str) -> Refusal | None:
    """Return why the requester has no right to a resource's configuration; None: it has.

    A topic's and a group's take a right over it, every other one a right over the cluster.
    """
    if kind == ConfigResourceType.TOPIC:
        return refusal(context, name)
    assert context.need is not None
    if kind == ConfigResourceType.GROUP:
        return refusal(context, name, context.need._replace(kind=ResourceType.GROUP))
    return refusal(context, CLUSTER_NAME, context.need._replace(kind=ResourceType.CLUSTER))
