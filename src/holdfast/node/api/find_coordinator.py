"""FindCoordinator (key 10): this broker for every group, and nobody for a transaction.

Served: 0 to 6. There are no groups yet; who wants one is refused by JoinGroup, in words that its
user sees. Were no coordinator named, librdkafka would ask for ever, and its user poll None.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.node.broker.broker import Broker
from holdfast.node.door.api_table import DESCRIBE_GROUP, DESCRIBE_ID
from holdfast.node.door.request_context import Need, RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

FIRST_VERSION_WITH_SEVERAL_KEYS: Final = 4
TRANSACTION: Final = 1
NOBODY: Final[dict[str, Any]] = {"node_id": -1, "host": "", "port": -1}


def handle(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Give each key that the client may describe the same answer."""
    need = DESCRIBE_ID if request.key_type == TRANSACTION else DESCRIBE_GROUP
    found = _find(broker, context, request.key_type)
    if context.version < FIRST_VERSION_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(**_refused(context, request.key, need) or found)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, **_refused(context, key, need) or found)
            for key in request.coordinator_keys
        ]
    )


def _refused(context: RequestContext, key: str, need: Need) -> dict[str, Any] | None:
    why = refusal(context, key, need)
    return None if why is None else NOBODY | {"error_code": why.code, "error_message": why.message}


def _find(broker: Broker, context: RequestContext, key_type: int) -> dict[str, Any]:
    if key_type == TRANSACTION:
        # librdkafka takes any other error for one that passes, and waits without a bound.
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        message = "Transactions are not served by this cluster yet."
        return NOBODY | {"error_code": code, "error_message": message}
    own = broker.image.brokers.get(broker.settings.node_id)
    endpoint = None if own is None else own.endpoint(context.client.listener)
    if endpoint is None:
        return NOBODY | {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    return {"node_id": broker.settings.node_id, "host": endpoint.host, "port": endpoint.port}
