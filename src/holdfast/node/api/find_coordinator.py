"""FindCoordinator (key 10), versions 0 to 6: which broker keeps a group.

It is the leader of the group's partition of `__consumer_offsets`, which is made when it is first
asked for. Several keys in one request from version 4 on. Transactions have no coordinator yet.

Rules: group-records.md#where-a-group-lives.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from holdfast.node.broker.broker import Broker
from holdfast.node.door.api_table import DESCRIBE_GROUP, DESCRIBE_ID
from holdfast.node.door.request_context import RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

FIRST_VERSION_WITH_SEVERAL_KEYS: Final = 4
GROUP: Final = 0
TRANSACTION: Final = 1
NOBODY: Final[dict[str, Any]] = {"node_id": -1, "host": "", "port": -1}


def handle(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Find the coordinator of each key that the client may describe."""
    need = DESCRIBE_ID if request.key_type == TRANSACTION else DESCRIBE_GROUP

    @cache
    def of_partition(index: int) -> dict[str, Any]:
        return _leader(broker, context, index)

    def find(key: str) -> dict[str, Any]:
        why = refusal(context, key, need)
        if why is not None:
            return NOBODY | {"error_code": why.code, "error_message": why.message}
        if request.key_type == TRANSACTION:
            # librdkafka takes any other error for one that passes, and waits without a bound.
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            message = "Transactions are not served by this cluster yet."
            return NOBODY | {"error_code": code, "error_message": message}
        if request.key_type != GROUP:
            return NOBODY | {"error_code": ErrorCode.INVALID_REQUEST}
        return of_partition(broker.groups.topic.partition_of(key))

    if context.version < FIRST_VERSION_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(**find(request.key))
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key=key, **find(key)) for key in request.coordinator_keys]
    )


def _leader(broker: Broker, context: RequestContext, index: int) -> dict[str, Any]:
    """Return where the leader of a partition of `__consumer_offsets` is."""
    topic = broker.groups.topic.find()
    if topic is None:
        broker.groups.topic.make()
    partition = None if topic is None else topic.partition(index)
    leader = None if partition is None else broker.image.brokers.get(partition.leader)
    endpoint = None if leader is None else leader.endpoint(context.client.listener)
    if leader is None or endpoint is None or leader.fenced:
        return NOBODY | {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    return {"node_id": leader.broker_id, "host": endpoint.host, "port": endpoint.port}
