"""FindCoordinator (key 10), versions 0 to 6: which broker keeps a group.

It is the leader of the group's partition of `__consumer_offsets`, which is made when it is first
asked for. Several keys in one request from version 4 on. Transactions have no coordinator yet.

Rules: group-records.md#where-a-group-lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain
from typing import Any, Final, NamedTuple

from holdfast.node.broker.broker import Broker
from holdfast.node.coordinator.gathering import Gathering
from holdfast.node.coordinator.pieces import Piece, Pieces
from holdfast.node.door.api_table import DESCRIBE_GROUP, DESCRIBE_ID
from holdfast.node.door.request_context import Deferred, RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

FIRST_VERSION_WITH_SEVERAL_KEYS: Final = 4
GROUP: Final = 0
TRANSACTION: Final = 1
CHARACTERS_AT_ONCE: Final = 10_000
KEY_CHARACTERS: Final = 100  # what else a key costs, as if it were so much longer
NO_KIND: Final = "There are coordinators of groups (0) and of transactions (1)."
NOT_AVAILABLE: Final = "The coordinator is not available."
NO_ERROR: Final = "NONE"  # what versions before 4 have for words then, as in Apache Kafka
NOBODY: Final[dict[str, Any]] = {"node_id": -1, "host": "", "port": -1}


def handle(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Deferred:
    """Find the coordinator of each key that the client may describe."""
    find = _finder(broker, context, request.key_type)
    if context.version < FIRST_VERSION_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(**({"error_message": NO_ERROR} | find(request.key)))

    def found(keys: Iterable[str]) -> list[Coordinator]:
        return [Coordinator(key=key, **find(key)) for key in keys]

    chunks = _chunks(request.coordinator_keys)
    first = next(chunks, [])
    if len(first) == len(request.coordinator_keys):
        return FindCoordinatorResponse(coordinators=found(first))
    pieces = Pieces(lambda some: FindCoordinatorResponse(coordinators=some), context.version)
    parts = (_Chunk(pieces, found, keys) for keys in chain([first], chunks))
    deferred = context.defer_alone(pieces.is_flexible)
    Gathering(deferred, parts, pieces.join, _no_call).begin()
    return deferred


def _chunks(keys: Iterable[str]) -> Iterator[list[str]]:
    """Cut keys into as many as may be looked up in one go: a long one takes a millisecond."""
    chunk: list[str] = []
    size = 0
    for key in keys:
        chunk.append(key)
        size += KEY_CHARACTERS + len(key)
        if size >= CHARACTERS_AT_ONCE:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


class _Chunk(NamedTuple):
    """Some keys of a request that names many."""

    pieces: Pieces
    found: Callable[[Iterable[str]], list[Coordinator]]
    keys: list[str]

    def ask(self, answer: Callable[[Piece], None]) -> None:
        answer(self.pieces.piece(self.found(self.keys)))

    def refused(self, code: ErrorCode) -> Piece:
        refused = [Coordinator(key=key, **NOBODY, error_code=code) for key in self.keys]
        return self.pieces.piece(refused)


def _no_call(_number: int) -> None:
    raise AssertionError("nobody was asked, so nobody is to forget anything")


def _finder(
    broker: Broker, context: RequestContext, key_type: int
) -> Callable[[str], dict[str, Any]]:
    """Return what finds the coordinator of one key."""
    need = DESCRIBE_ID if key_type == TRANSACTION else DESCRIBE_GROUP

    @cache
    def of_partition(index: int) -> dict[str, Any]:
        return _leader(broker, context, index)

    def find(key: str) -> dict[str, Any]:
        why = refusal(context, key, need)
        if why is not None:
            return NOBODY | {"error_code": why.code, "error_message": why.message}
        if key_type == TRANSACTION:
            # librdkafka takes any other error for one that passes, and waits without a bound.
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            message = "Transactions are not served by this cluster yet."
            return NOBODY | {"error_code": code, "error_message": message}
        if key_type != GROUP:
            return NOBODY | {"error_code": ErrorCode.INVALID_REQUEST, "error_message": NO_KIND}
        return of_partition(broker.groups.topic.partition_of(key))

    return find


def _leader(broker: Broker, context: RequestContext, index: int) -> dict[str, Any]:
    """Return where the leader of a partition of `__consumer_offsets` is."""
    topic = broker.groups.topic.find()
    if topic is None:
        broker.groups.topic.make()
    partition = None if topic is None else topic.partition(index)
    leader = None if partition is None else broker.image.brokers.get(partition.leader)
    endpoint = None if leader is None else leader.endpoint(context.client.listener)
    if leader is None or endpoint is None or leader.fenced:
        return NOBODY | {
            "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "error_message": NOT_AVAILABLE,
        }
    return {"node_id": leader.broker_id, "host": endpoint.host, "port": endpoint.port}
