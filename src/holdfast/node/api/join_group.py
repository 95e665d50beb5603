"""JoinGroup (key 11): whoever subscribes is told at once, and for good, that there are no groups.

Served: 0 to 9, and refused in each, with the error that every client passes on to its user. It is
the first request of those alone who want a group: a consumer that was assigned its partitions asks
for a coordinator, too, and would take a refusal of that for a failure of its own.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.refusal import Refusal
from holdfast.node.broker.broker import Broker
from holdfast.node.door.request_context import RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

NO_GROUPS: Final = Refusal(
    ErrorCode.UNSUPPORTED_VERSION,
    "Consumer groups are not served by this cluster yet: assign partitions instead of subscribing.",
)


def handle(
    _broker: Broker, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse:
    refused = refusal(context, request.group_id) or NO_GROUPS
    return JoinGroupResponse(error_code=refused.code, member_id=request.member_id, protocol_name="")
