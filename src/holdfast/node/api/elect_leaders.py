"""ElectLeaders (43), versions 0-2: brokers forward it, the controller decides.

Versions: 0 knows the preferred election only; 1 adds the unclean one and a top-level error.
"""

from __future__ import annotations

from holdfast.core.controller.asked_elections import elect_leaders
from holdfast.node.api.decided import decided_by
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

handle_on_controller = decided_by(elect_leaders)


def refuse(request: ElectLeadersRequest, code: ErrorCode, message: str) -> ElectLeadersResponse:
    """Refuse the whole request."""
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ],
    )
