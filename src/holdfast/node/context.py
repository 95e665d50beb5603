"""What a handler is told about its request, and what it may ask: who, from where, and may they.

Owns the security seams: the principal that a connection's authentication gate has established, and
the authorizer that every handler asks. It decides nothing about any API.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Protocol, TypeAlias

from holdfast.wire.errors import EncodeError

logger = logging.getLogger("holdfast.context")

Buffers: TypeAlias = Sequence[bytes | bytearray | memoryview]

ANONYMOUS = "User:ANONYMOUS"


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


class Authorizer(Protocol):
    def allows(
        self, context: RequestContext, operation: Operation, kind: ResourceType, name: str
    ) -> bool: ...


class AllowAll:
    """The authorizer while there are no ACLs."""

    __slots__ = ()

    def allows(
        self, _context: RequestContext, _operation: Operation, _kind: ResourceType, _name: str
    ) -> bool:
        return True


class Deferred:
    """The answer to one request that comes later; its place among the answers is kept.

    Exactly one of `answer` and `abandon` is called, once, at any later moment on the loop, or
    before the handler returns. When the connection is gone by then, nothing happens.
    """

    __slots__ = ("_deliver", "_encode", "buffers", "closes")

    def __init__(
        self,
        encode: Callable[[object], Buffers],
        deliver: Callable[[Deferred], None],
    ) -> None:
        self.buffers: Buffers | None = None  # None: not answered yet
        self.closes = False  # the connection ends instead of an answer
        self._encode = encode
        self._deliver = deliver

    @classmethod
    def answered(cls, buffers: Buffers) -> Deferred:
        """Make an answer that is ready, and has to wait for its turn only."""
        deferred = cls(_never_encoded, _never_delivered)
        deferred.buffers = buffers
        return deferred

    def answer(self, response: object) -> None:
        """Send a response struct; it is encoded for the request's own version.

        One that can't be is our mistake: it costs this client its connection, and not whoever
        answers (the controller, a partition) the rest of its work.
        """
        assert self.buffers is None, "a request is answered once"
        try:
            self.buffers = self._encode(response)
        except EncodeError:
            logger.exception("an answer can't be encoded: its connection closes")
            self.abandon()
            return
        self._deliver(self)

    def abandon(self) -> None:
        """Close the connection instead of answering: there is no error that would fit."""
        assert self.buffers is None, "a request is answered once"
        self.buffers = ()
        self.closes = True
        self._deliver(self)


def _never_encoded(_response: object) -> Buffers:
    raise AssertionError("an answer that is ready is not answered again")


def _never_delivered(_answer: Deferred) -> None:
    raise AssertionError("an answer that is ready is not delivered again")


class RequestContext:
    """One request's surroundings: principal, client, listener, API and version."""

    __slots__ = (
        "_deliver",
        "_encode",
        "api_key",
        "authorizer",
        "client_host",
        "client_id",
        "correlation_id",
        "frame",
        "listener",
        "principal",
        "version",
    )

    def __init__(
        self,
        *,
        principal: str,
        client_id: str | None,
        client_host: str,
        listener: str,
        api_key: int,
        version: int,
        correlation_id: int,
        authorizer: Authorizer,
        frame: memoryview | bytes,
        encode: Callable[[object], Buffers],
        deliver: Callable[[Deferred], None],
    ) -> None:
        self.principal = principal
        self.client_id = client_id
        self.client_host = client_host  # an IP address in text
        self.listener = listener  # the listener's name, "PLAINTEXT" say
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.authorizer = authorizer
        self.frame = frame  # header and body as received; dies when the handler returns
        self._encode = encode
        self._deliver = deliver

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the principal may do this."""
        return self.authorizer.allows(self, operation, kind, name)

    def defer(self) -> Deferred:
        """Promise an answer for later; the handler returns what it gets here."""
        return Deferred(self._encode, self._deliver)
