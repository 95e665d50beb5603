"""AlterPartitionReassignments and ListPartitionReassignments: partitions move to other brokers.

Owns the refusals, with messages that say what to do. Moving a partition means first adding
replicas, then, when all of the target are in sync, dropping the others: that last step is in
`elections.change`, which every change of an ISR goes through.

Rules: topics.md#reassignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from holdfast.core.controller.assignment import home_directory
from holdfast.core.controller.decisions import RECORDS_PER_REQUEST_MAX, ControllerState, Decision
from holdfast.core.controller.elections import Wish, decide_on
from holdfast.core.controller.replica_sets import ReplicaSet
from holdfast.core.metadata.image import MetadataRecord, Partition
from holdfast.core.refusal import Refusal, shown
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from holdfast.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from holdfast.wire.records.metadata import PartitionChangeRecord

KeyT = TypeVar("KeyT")


def alter_partition_reassignments(
    state: ControllerState, request: AlterPartitionReassignmentsRequest
) -> Decision:
    """Decide on every partition of the request by itself; one named twice is refused twice."""
    may_change_factor = request.allow_replication_factor_change
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_factor
    )
    if sum(len(topic.partitions) for topic in request.topics) > RECORDS_PER_REQUEST_MAX:
        response.error_code = ErrorCode.INVALID_REQUEST
        response.error_message = (
            f"At most {RECORDS_PER_REQUEST_MAX} partitions can be reassigned in one request."
        )
        return Decision(response)
    twice = _repeated(
        (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    )
    records: list[MetadataRecord] = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            if (topic.name, asked.partition_index) in twice:
                outcome: Refusal | PartitionChangeRecord | None = Refusal(
                    ErrorCode.INVALID_REQUEST, "The partition is named more than once."
                )
            else:
                outcome = _alter_one(state, topic.name, asked, may_change_factor)
            refusal = outcome if isinstance(outcome, Refusal) else None
            answers.append(
                ReassignablePartitionResponse(
                    partition_index=asked.partition_index,
                    error_code=ErrorCode.NONE if refusal is None else refusal.code,
                    error_message=None if refusal is None else refusal.message,
                )
            )
            if refusal is None and outcome is not None:
                records.append(outcome)
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
    return Decision(response, records)


def list_partition_reassignments(
    state: ControllerState, request: ListPartitionReassignmentsRequest
) -> Decision:
    """Show what is under way: of the partitions named, or everywhere. What is not is left out."""
    asked: Iterable[Partition | None]
    if request.topics is None:
        asked = state.image.partitions()
    else:
        names = dict.fromkeys(
            (topic.name, index) for topic in request.topics for index in topic.partition_indexes
        )
        asked = (state.image.partition(*name) for name in names)
    topics: dict[str, OngoingTopicReassignment] = {}
    for partition in asked:
        if partition is None or not ReplicaSet.of(partition).is_changing:
            continue
        topic = topics.setdefault(partition.topic, OngoingTopicReassignment(name=partition.topic))
        topic.partitions.append(
            OngoingPartitionReassignment(
                partition_index=partition.index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
            )
        )
    return Decision(ListPartitionReassignmentsResponse(topics=list(topics.values())))


def _alter_one(
    state: ControllerState, topic: str, asked: ReassignablePartition, may_change_factor: bool
) -> Refusal | PartitionChangeRecord | None:
    """The record that begins, redirects or cancels one reassignment, or why it may not be."""
    if topic not in state.image.topics:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return Refusal(code, f"Unable to find a topic named {shown(topic)}.")
    partition = state.image.partition(topic, asked.partition_index)
    if partition is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return Refusal(code, f"Unable to find partition {topic}:{asked.partition_index}.")
    if asked.replicas is None:
        return _cancel(state, partition)
    refusal = _refuse_target(state, asked.replicas)
    if refusal is not None:
        return refusal
    members = ReplicaSet.of(partition)
    if not may_change_factor and len(asked.replicas) != len(members.original):
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(members.original)} to "
            f"{len(asked.replicas)}, which the request forbids.",
        )
    return _move(state, partition, members.towards(asked.replicas))


def _cancel(state: ControllerState, partition: Partition) -> Refusal | PartitionChangeRecord | None:
    members = ReplicaSet.of(partition)
    if not members.is_changing:
        return Refusal(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
        )
    return _move(state, partition, members.reverted())


def _move(
    state: ControllerState, partition: Partition, members: ReplicaSet
) -> Refusal | PartitionChangeRecord | None:
    """Give a partition this replica set, unless what it holds would be lost by it."""
    unclean_allowed = state.unclean_allowed(partition.topic)
    if _drops_the_last(state, partition, members):
        survivors = [node for node in members.replicas if state.may_lead(partition, node)]
        if not unclean_allowed or not survivors:
            return Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {partition.topic}:{partition.index} "
                "because it would require an unclean leader election: none of the replicas that "
                f"would be left {list(members.replicas)} is in sync (ISR {list(partition.isr)}).",
            )
    wish = Wish(
        replica_set=members, directory_of=lambda broker_id: home_directory(state, broker_id)
    )
    return decide_on(state, partition, wish)


def _drops_the_last(state: ControllerState, partition: Partition, members: ReplicaSet) -> bool:
    """Whether replicas that have everything would go, and none that surely has it would stay.

    An eligible one that is down does not count: it may come back without what it had.
    """
    whole = (*partition.isr, *partition.elr)
    if all(node in members.replicas for node in whole) or members.kept(partition.isr):
        return False
    return not any(state.may_lead(partition, node) for node in members.kept(partition.elr))


def _refuse_target(state: ControllerState, replicas: Sequence[int]) -> Refusal | None:
    """What is wrong with a target; Apache Kafka's words."""
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not replicas:
        return Refusal(code, "The manual partition assignment includes an empty replica list.")
    for broker_id in _repeated(replicas):
        return Refusal(
            code,
            f"The manual partition assignment includes the broker {broker_id} more than once.",
        )
    for broker_id in replicas:
        if broker_id not in state.image.brokers:
            return Refusal(
                code,
                f"The manual partition assignment includes broker {broker_id}, but no such "
                "broker is registered.",
            )
    return None


def _repeated(keys: Iterable[KeyT]) -> dict[KeyT, None]:
    """Those that come more than once, in the order of their second coming."""
    seen: dict[KeyT, None] = {}
    twice: dict[KeyT, None] = {}
    for key in keys:
        (twice if key in seen else seen)[key] = None
    return twice
