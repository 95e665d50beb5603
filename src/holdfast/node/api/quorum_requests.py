"""What requests to the quorum have in common: whom they are for, refusals, addresses.

Owns the checks before a request reaches the state machine, and where a leader listens, for answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.core.quorum.voter_events import Answer
from holdfast.wire.errors import ErrorCode
from holdfast.wire.structs import (
    QuorumEpochPartition,
    QuorumEpochResponse,
    QuorumEpochTopic,
    QuorumNode,
)
from holdfast.wire.uuids import NULL_UUID
from holdfast.wire.well_known import METADATA_TOPIC

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller

ANYBODY = -1
EPOCH_LEAP_MAX: Final = 1_000_000
"""So far ahead an epoch may be. Elections take months to get there, and a voter that was away for
longer learns of the epoch from its own fetch; the last epoch of all would end all elections."""

EpochResponse = TypeVar("EpochResponse", bound=QuorumEpochResponse)


def misdirected(controller: Controller, request: Any) -> ErrorCode:
    """Why the whole request can't be served; NONE: it has exactly one partition, ours."""
    if request.cluster_id not in (None, controller.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return ErrorCode.INVALID_REQUEST
    topic = request.topics[0]
    if topic.topic_name != METADATA_TOPIC or topic.partitions[0].partition_index != 0:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not controller.quorum.serving:
        return ErrorCode.BROKER_NOT_AVAILABLE
    return ErrorCode.NONE


def is_meant(controller: Controller, voter_id: int, directory_id: bytes) -> bool:
    """Whether the sender means this replica, and not another one that had this address."""
    key = controller.quorum.key
    return voter_id in (ANYBODY, key.node_id) and directory_id in (NULL_UUID, key.directory_id)


def is_epoch(controller: Controller, epoch: int) -> bool:
    """Whether this may be an epoch of our quorum."""
    return 0 <= epoch <= controller.quorum.epoch + EPOCH_LEAP_MAX


def epoch_response(
    made: type[EpochResponse], controller: Controller, answer: Answer
) -> EpochResponse:
    """What a voter says of its leader to the one that begins or ends an epoch."""
    data = QuorumEpochPartition(
        partition_index=0,
        error_code=answer.error,
        leader_id=answer.leader_id,
        leader_epoch=answer.epoch,
    )
    return made(
        topics=[QuorumEpochTopic(topic_name=METADATA_TOPIC, partitions=[data])],
        node_endpoints=leader_endpoints(controller, answer.leader_id, QuorumNode),
    )


def leader_endpoints(controller: Controller, leader_id: int, endpoint: type[Any]) -> list[Any]:
    """Where the leader that an answer names listens; empty when that is not known."""
    voter = controller.quorum.addresses.find(leader_id)
    if voter is None:
        return []
    return [endpoint(node_id=voter.node_id, host=voter.host, port=voter.port)]


def listener_of(controller: Controller, listeners: Sequence[Any]) -> Any | None:
    """The one at which controllers are reached, the best first; None: it is not among them."""
    by_name = {each.name: each for each in listeners}
    return next(filter(None, map(by_name.get, controller.settings.controller_listener_names)), None)
