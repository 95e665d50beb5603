"""SyncGroup (key 14), versions 0 to 5: get one's part of a generation; the leader brings all parts.

Rules: classic-groups.md#syncing.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.group.append_errors import append_error
from holdfast.core.group.classic.classic_member import sync_refused
from holdfast.node.broker.broker import Broker
from holdfast.node.door.request_context import RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NAMES_PROTOCOL_SINCE: Final = 5


def handle(broker: Broker, context: RequestContext, request: SyncGroupRequest) -> Any:
    if context.version >= NAMES_PROTOCOL_SINCE and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return sync_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    why = refusal(context, request.group_id)
    if why is not None:
        return sync_refused(why.code)
    if not request.group_id:
        return sync_refused(ErrorCode.INVALID_GROUP_ID)
    return broker.groups.coordinator.ask(
        context,
        request.group_id,
        lambda shard, caller, now_ms: shard.sync(caller, request, now_ms),
        _refused,
    )


def _refused(code: ErrorCode) -> SyncGroupResponse:
    # Clients take a coordinator that is not ready for an error that they don't know here, and give
    # up. Apache Kafka said REBALANCE_IN_PROGRESS before version 4, and has them joining again.
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.REBALANCE_IN_PROGRESS
    return sync_refused(append_error(code))
