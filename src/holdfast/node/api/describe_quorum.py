"""DescribeQuorum (55), versions 0-2: who leads the metadata quorum, and how far the others are.

A broker forwards it; the active controller alone can answer. Versions: 1 adds when a replica last
fetched and was last caught up, 2 the voters' directories, listeners and messages for errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.quorum.leader_view import ReplicaView
from holdfast.node.door.request_context import RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from holdfast.wire.structs import QuorumEndpoint
from holdfast.wire.well_known import METADATA_TOPIC

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller

NODES_SINCE: Final = 2
DIRECTORIES_SINCE: Final = 2


def handle_on_controller(
    controller: Controller, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    if not request.topics:
        return DescribeQuorumResponse()
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return refuse(
            request,
            ErrorCode.INVALID_REQUEST,
            f"There is one metadata log, {METADATA_TOPIC}-0: ask for that.",
        )
    topic, partition = request.topics[0], request.topics[0].partitions[0].partition_index
    view = controller.describe_quorum()
    found = ResponsePartitionData(partition_index=partition)
    is_known = topic.topic_name == METADATA_TOPIC and partition == 0
    if not is_known:
        found.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found.error_message = f"There is one metadata log, {METADATA_TOPIC}-0."
    elif view is None:
        found.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    else:
        # Voters that stand in the properties file do so without their directories.
        told = context.version >= DIRECTORIES_SINCE
        found = ResponsePartitionData(
            partition_index=partition,
            leader_id=view.leader_id,
            leader_epoch=view.epoch,
            high_watermark=view.high_watermark,
            current_voters=[
                _state(each, told=told and controller.kraft_version > 0) for each in view.voters
            ],
            observers=[_state(each, told=told) for each in view.observers],
        )
    response = DescribeQuorumResponse(
        topics=[ResponseTopicData(topic_name=topic.topic_name, partitions=[found])]
    )
    if is_known and view is not None and context.version >= NODES_SINCE:
        name = controller.settings.controller_listener_names[0]  # under which all voters listen
        response.nodes = [
            Node(
                node_id=voter.node_id,
                listeners=[QuorumEndpoint(name=name, host=voter.host, port=voter.port)],
            )
            for voter in view.members.voters
        ]
    return response


def _state(replica: ReplicaView, *, told: bool) -> ReplicaState:
    state = ReplicaState(
        replica_id=replica.key.node_id,
        log_end_offset=replica.log_end,
        last_fetch_timestamp=replica.fetched_wall_ms,
        last_caught_up_timestamp=replica.caught_up_wall_ms,
    )
    if told:
        state.replica_directory_id = replica.key.directory_id
    return state


def refuse(_: DescribeQuorumRequest, code: ErrorCode, message: str) -> DescribeQuorumResponse:
    """Refuse the whole request."""
    return DescribeQuorumResponse(error_code=code, error_message=message)
