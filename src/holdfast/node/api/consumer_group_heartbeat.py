"""ConsumerGroupHeartbeat (key 68): as JoinGroup, for consumers with `group.protocol=consumer`.

Served: 0 and 1, and refused in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.node.api.join_group import NO_GROUPS
from holdfast.node.context import RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from holdfast.node.broker import Broker


def handle(
    _broker: Broker, _context: RequestContext, _request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=NO_GROUPS
    )
