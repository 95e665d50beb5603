"""FindCoordinator (key 10): this broker for every group, and nobody for a transaction.

Served: 0 to 6. There are no groups yet; who wants one is refused by JoinGroup, in words that its
user sees. Were no coordinator named, librdkafka would ask for ever, and its user poll None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.node.context import RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from holdfast.node.broker import Broker

FIRST_VERSION_WITH_SEVERAL_KEYS: Final = 4
TRANSACTION: Final = 1


def handle(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Give each key the same answer."""
    found = _find(broker, context, request.key_type)
    if context.version < FIRST_VERSION_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(**found)
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key=key, **found) for key in request.coordinator_keys]
    )


def _find(broker: Broker, context: RequestContext, key_type: int) -> dict[str, Any]:
    nobody = {"node_id": -1, "host": "", "port": -1}
    if key_type == TRANSACTION:
        # librdkafka takes any other error for one that passes, and waits without a bound.
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        message = "Transactions are not served by this cluster yet."
        return nobody | {"error_code": code, "error_message": message}
    own = broker.image.brokers.get(broker.settings.node_id)
    endpoint = None if own is None else own.endpoint(context.listener)
    if endpoint is None:
        return nobody | {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    return {"node_id": broker.settings.node_id, "host": endpoint.host, "port": endpoint.port}
