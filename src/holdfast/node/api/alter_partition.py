"""AlterPartition (56), versions 2-3: a leader proposes another ISR.

Versions: 3 names each member's broker epoch (KIP-903).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.isr import alter_partition
from holdfast.node.access import is_broker
from holdfast.node.context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from holdfast.node.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: AlterPartitionRequest
) -> Deferred | AlterPartitionResponse:
    if not is_broker(context):
        return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return controller.decide(context, lambda state, _: alter_partition(state, request))
