"""AlterPartition (56), versions 2-3: a leader proposes another ISR.

Versions: 3 names each member's broker epoch (KIP-903).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.controller.isr_changes import alter_partition
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.messages.alter_partition import AlterPartitionRequest

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: AlterPartitionRequest
) -> Deferred:
    return controller.decide(context, lambda state, _: alter_partition(state, request))
