"""AlterPartitionReassignments (45), versions 0-1: brokers forward it, the controller decides.

Version 1 lets the caller forbid that the number of replicas changes. The answer says that the move
has begun; ListPartitionReassignments says whether it is over.
"""

from __future__ import annotations

from holdfast.core.controller.reassignment import alter_partition_reassignments
from holdfast.node.api.decided import decided_by
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

handle_on_controller = decided_by(alter_partition_reassignments)


def refuse(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode, message: str
) -> AlterPartitionReassignmentsResponse:
    """Refuse the whole request."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=message,
    )
