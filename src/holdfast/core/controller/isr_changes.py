"""AlterPartition: a leader asks for another ISR, and the controller says whether it may be.

Owns the checks and their order: which code comes first tells the leader whether its request was
refused for good, or whether its own knowledge is old.

Rules: replication.md#refusing-an-isr.
"""

from __future__ import annotations

from holdfast.core.controller.decisions import ControllerState, Decision
from holdfast.core.controller.elections import Wish, decide_on
from holdfast.core.metadata.image import (
    MetadataRecord,
    Partition,
    RecoveryState,
    Topic,
    changed_partition,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

UNCHECKED_EPOCH = -1


def alter_partition(state: ControllerState, request: AlterPartitionRequest) -> Decision:
    """Decide on every partition of the request by itself."""
    broker = state.image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return Decision(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    records: list[MetadataRecord] = []
    topics = []
    for asked in request.topics:
        topic = state.image.topics_by_id.get(bytes(asked.topic_id))
        answers = []
        for wanted in asked.partitions:
            answer, record = _alter_one(state, request.broker_id, topic, wanted)
            answers.append(answer)
            if record is not None:
                records.append(record)
        topics.append(ResponseTopicData(topic_id=bytes(asked.topic_id), partitions=answers))
    return Decision(AlterPartitionResponse(topics=topics), records)


def _alter_one(
    state: ControllerState, requester: int, topic: Topic | None, wanted: RequestPartitionData
) -> tuple[ResponsePartitionData, MetadataRecord | None]:
    index = wanted.partition_index
    if topic is None:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_ID), None
    partition = topic.partition(index)
    if partition is None:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None
    refusal = _refuse(state, requester, partition, wanted)
    if refusal is not ErrorCode.NONE:
        return _refused(index, refusal), None
    record = decide_on(
        state,
        partition,
        Wish(
            isr=[member.broker_id for member in _members(wanted)],
            recovery_state=RecoveryState(wanted.leader_recovery_state),
        ),
    )
    after = partition if record is None else changed_partition(partition, record)
    if after.leader != requester:
        # Applied, and yet told as an error: the leader must not go on as one.
        return _refused(index, ErrorCode.NEW_LEADER_ELECTED), record
    answer = ResponsePartitionData(
        partition_index=index,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        leader_recovery_state=int(after.recovery_state),
        partition_epoch=after.partition_epoch,
    )
    return answer, record


def _refuse(
    state: ControllerState, requester: int, partition: Partition, wanted: RequestPartitionData
) -> ErrorCode:
    """The first check that fails; the order matters."""
    members = _members(wanted)
    isr = [member.broker_id for member in members]
    if (
        wanted.leader_epoch > partition.leader_epoch
        or wanted.partition_epoch > partition.partition_epoch
    ):
        return ErrorCode.NOT_CONTROLLER  # the leader has read more than this controller
    if wanted.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if requester != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if wanted.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if requester not in isr:
        return ErrorCode.INVALID_REQUEST
    if wanted.leader_recovery_state not in (RecoveryState.RECOVERED, RecoveryState.RECOVERING):
        return ErrorCode.INVALID_REQUEST
    if wanted.leader_recovery_state == RecoveryState.RECOVERING and (
        len(isr) > 1 or partition.recovery_state is RecoveryState.RECOVERED
    ):
        return ErrorCode.INVALID_REQUEST
    if not all(_eligible(state, partition, member) for member in members):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _eligible(state: ControllerState, partition: Partition, member: BrokerState) -> bool:
    """Whether a replica may be in an ISR: active (KIP-841) and the one that was seen (KIP-903)."""
    broker = state.image.brokers.get(member.broker_id)
    if broker is None or not state.may_lead(partition, member.broker_id):
        return False
    return member.broker_epoch in (UNCHECKED_EPOCH, broker.epoch)


def _members(wanted: RequestPartitionData) -> list[BrokerState]:
    """The ISR asked for; version 2 knows no broker epochs."""
    if wanted.new_isr_with_epochs:
        return wanted.new_isr_with_epochs
    return [BrokerState(broker_id=broker_id) for broker_id in wanted.new_isr]


def _refused(index: int, code: ErrorCode) -> ResponsePartitionData:
    return ResponsePartitionData(partition_index=index, error_code=code)
