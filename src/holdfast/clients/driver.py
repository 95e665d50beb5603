"""A blocking client of the protocol: one request, one answer, nothing behind the scenes.

Owns sockets to the nodes of one cluster and knows who leads what. Must never try a request
twice, wait and try again, or reorder: who drives decides that, and sees every error as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, Self

NodeChoice = int | Literal["controller"] | None


class DriverError(Exception):
    """Something is wrong between us and the cluster; the text says what and with whom."""


class UnreachableError(DriverError):
    """No connection could be had: nothing was sent."""


class AnswerLostError(DriverError):
    """Sent, and no answer came: the node may or may not have done what was asked."""


class AnswerTimeoutError(AnswerLostError):
    """Sent, and no answer came in time. The connection was closed."""


class UnsupportedError(DriverError):
    """The node doesn't speak this API, or no version of it that we speak."""


class NoLeaderError(DriverError):
    """The cluster names no leader for the partition, or doesn't know it (`code` says which)."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Peer:
    """One connection to one node. Requests may be pipelined; answers come in their order."""

    def __init__(
        self, host: str, port: int, client_id: str = "holdfast", *, timeout_s: float = 10.0
    ) -> None:
        """Connect and negotiate versions. UnreachableError: nobody listens, or no Kafka does."""
        raise NotImplementedError

    def version_of(self, message: Any) -> int:
        """Highest version of a request (its class or an instance) that both sides know."""
        raise NotImplementedError

    def post(self, message: Any, *, version: int | None = None) -> None:
        """Send a request without waiting for the answer."""
        raise NotImplementedError

    def take(self, *, timeout_s: float | None = None) -> Any:
        """Wait for the answer to the oldest posted request."""
        raise NotImplementedError

    def send(
        self, message: Any, *, version: int | None = None, timeout_s: float | None = None
    ) -> Any:
        """Post, then take. Only when nothing else is in flight."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Driver:
    """Requests to the nodes of one cluster, over one connection to each that is needed."""

    def __init__(
        self, bootstrap: str, client_id: str = "holdfast", *, timeout_s: float = 10.0
    ) -> None:
        """Nothing is sent yet. `bootstrap`: "host:port,host:port". ValueError: it isn't that."""
        raise NotImplementedError

    def send(
        self,
        message: Any,
        *,
        node: NodeChoice = None,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Send one request and return its response struct; codes inside are the caller's.

        `node`: an id; "controller" for the node that Metadata names as controller; None for
        any node that can be reached. DriverError and its kinds as they say.
        """
        raise NotImplementedError

    def metadata(self, topics: Sequence[str] | None = None, *, auto_creation: bool = False) -> Any:
        """Fetch a MetadataResponse from any node (None: all topics) and remember it."""
        raise NotImplementedError

    def nodes(self) -> dict[int, tuple[str, int]]:
        """Ids, hosts and ports of the brokers alive, asked for anew."""
        raise NotImplementedError

    def leader(self, topic: str, partition: int, *, refresh: bool = False) -> int:
        """Leader's id, from what is remembered unless `refresh`. NoLeaderError."""
        raise NotImplementedError

    def send_to_leader(
        self, message: Any, topic: str, partition: int, *, timeout_s: float | None = None
    ) -> Any:
        """Send to the leader of a partition, as remembered (see `leader`)."""
        raise NotImplementedError

    def peer(self, node: NodeChoice = None) -> Peer:
        """Return the connection to a node, opening it when there is none; for pipelining."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
