"""Which brokers hold the partitions of a request: checked when named by hand, placed otherwise.

Owns the records of new partitions. Whether a topic may be made at all is for `topics`.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.controller.decisions import ControllerState
from holdfast.core.controller.placement import PlacementError, Site, place
from holdfast.core.metadata.image import UNASSIGNED_DIRECTORY
from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.create_topics import CreatableReplicaAssignment
from holdfast.wire.records.metadata import PartitionRecord


def placed(
    state: ControllerState, partitions: int, factor: int, seed: int
) -> Refusal | list[list[int]]:
    """Replica lists for new partitions, spread over racks and brokers."""
    brokers = state.image.brokers
    sites = [Site(node, brokers[node].rack, brokers[node].active) for node in sorted(brokers)]
    try:
        return place(sites, partitions, factor, seed)
    except PlacementError as error:
        return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, str(error))


def by_hand(
    state: ControllerState, assignments: Sequence[CreatableReplicaAssignment]
) -> Refusal | list[list[int]]:
    """Replica lists of a whole new topic, as its creator wants them."""
    by_index: dict[int, CreatableReplicaAssignment] = {}
    for assignment in assignments:
        if assignment.partition_index in by_index:
            return Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Partition {assignment.partition_index} is assigned more than once.",
            )
        by_index[assignment.partition_index] = assignment
    if sorted(by_index) != list(range(len(by_index))):
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Partitions must be numbered from 0 without gaps.",
        )
    lists = [list(by_index[index].broker_ids) for index in range(len(by_index))]
    for index, replicas in enumerate(lists):
        wrong = wrong_replicas(state, index, replicas, len(lists[0]))
        if wrong is not None:
            return wrong
    return lists


def wrong_replicas(
    state: ControllerState, index: int, replicas: Sequence[int], factor: int
) -> Refusal | None:
    """What is wrong with one partition's replicas, if anything."""
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not replicas:
        return Refusal(code, f"Partition {index} is assigned to no broker.")
    if len(set(replicas)) != len(replicas):
        return Refusal(code, f"Partition {index} is assigned to a broker more than once.")
    for broker_id in replicas:
        if broker_id not in state.image.brokers:
            return Refusal(code, f"Partition {index}: broker {broker_id} is not registered.")
    if len(replicas) != factor:
        return Refusal(
            code, f"Partition {index} has {len(replicas)} replicas where others have {factor}."
        )
    return None


def partition_record(
    state: ControllerState, topic_id: bytes, index: int, replicas: Sequence[int]
) -> PartitionRecord | None:
    """A new partition: the replicas that are up are its ISR, the first of them leads.

    None when none of them is up.
    """
    isr = [node for node in replicas if state.image.is_active(node)]
    if not isr:
        return None
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[home_directory(state, node) for node in replicas],
    )


def home_directory(state: ControllerState, broker_id: int) -> bytes:
    """Where a broker will put a replica, if that is clear beforehand."""
    broker = state.image.brokers.get(broker_id)
    if broker is None or len(broker.directories) != 1:
        return UNASSIGNED_DIRECTORY
    return broker.directories[0]


def nobody_to_lead(index: int, replicas: Sequence[int]) -> Refusal:
    """Refuse a partition that could not have a leader."""
    return Refusal(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"Partition {index}: all of its brokers {list(replicas)} are fenced or shutting down. "
        "Name one that is up.",
    )
