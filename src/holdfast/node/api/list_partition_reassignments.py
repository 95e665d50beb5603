"""ListPartitionReassignments (46), version 0: what is being moved, from the controller's image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.controller.reassignment import list_partition_reassignments
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> Deferred:
    return controller.decide(context, lambda state, _: list_partition_reassignments(state, request))


def refuse(
    _: ListPartitionReassignmentsRequest, code: ErrorCode, message: str
) -> ListPartitionReassignmentsResponse:
    """Refuse the whole request."""
    return ListPartitionReassignmentsResponse(error_code=code, error_message=message)
