"""In which log directory of its broker each replica lies, and what that means when one is gone.

Owns AssignReplicasToDirs and the offline directories of a heartbeat (KIP-858). What is told here is
what keeps an empty disk, in the place of the one that held a replica, from being taken for it.

Rules: elections.md#recorded-directories.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from holdfast.core.controller.decisions import ControllerState, Decision
from holdfast.core.controller.elections import Wish, decide_on
from holdfast.core.metadata.image import NO_LEADER, Broker, MetadataRecord, Partition
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryOutcome,
    PartitionOutcome,
    TopicOutcome,
)
from holdfast.wire.records.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord


def assign_replicas(state: ControllerState, request: AssignReplicasToDirsRequest) -> Decision:
    """Take down where a broker has its replicas; each succeeds or fails by itself.

    INELIGIBLE_REPLICA: it was recorded on a disk that is gone, and nobody leads from whom it could
    have what lies there now; an election must not take the one for the other. It is granted once
    somebody leads.
    """
    broker = state.image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return Decision(AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    records: list[MetadataRecord] = []
    directories = []
    for directory in request.directories:
        topics = []
        for topic in directory.topics:
            outcomes = []
            for asked in topic.partitions:
                place = (bytes(topic.topic_id), asked.partition_index)
                code = _assign_one(state, broker, *place, bytes(directory.id), records)
                outcomes.append(
                    PartitionOutcome(partition_index=asked.partition_index, error_code=code)
                )
            topics.append(TopicOutcome(topic_id=bytes(topic.topic_id), partitions=outcomes))
        directories.append(DirectoryOutcome(id=bytes(directory.id), topics=topics))
    return Decision(AssignReplicasToDirsResponse(directories=directories), records)


def _assign_one(
    state: ControllerState,
    broker: Broker,
    topic_id: bytes,
    index: int,
    directory: bytes,
    records: list[MetadataRecord],
) -> ErrorCode:
    node = broker.broker_id
    topic = state.image.topics_by_id.get(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partition(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if node not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    recorded = partition.directory_of(node)
    if recorded == directory:
        return ErrorCode.NONE
    lost = not broker.has_directory(recorded)
    if lost and partition.leader == NO_LEADER:
        return ErrorCode.INELIGIBLE_REPLICA
    records.append(_moved(state, partition, broker, directory, lost=lost))
    return ErrorCode.NONE


def _moved(
    state: ControllerState, partition: Partition, broker: Broker, directory: bytes, *, lost: bool
) -> PartitionChangeRecord:
    """The record for a replica that lies elsewhere; `lost`: where it lay is gone."""
    node = broker.broker_id
    directories = partition.directories_with(node, directory)
    after = replace(partition, directories=tuple(directories))
    gone = lost or not broker.has_directory(directory)
    record = decide_on(
        state,
        after,
        Wish(
            isr=[each for each in partition.isr if each != node] if gone else None,
            without=node if gone else None,
            lost=(node,) if lost else (),
        ),
    )
    if record is None:
        record = PartitionChangeRecord(partition_id=partition.index, topic_id=partition.topic_id)
    record.directories = directories
    return record


def go_offline(
    state: ControllerState, broker: Broker, offline: Collection[bytes]
) -> list[MetadataRecord]:
    """A broker has lost log directories: what lies there is neither in an ISR nor leads any more.

    It goes on with the others; one that has lost all of them ends by itself.
    """
    gone = [directory for directory in broker.directories if directory in offline]
    left = [directory for directory in broker.directories if directory not in offline]
    if not gone or not left:
        return []
    records: list[MetadataRecord] = [
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=left
        )
    ]
    for partition in state.image.partitions():
        if partition.directory_of(broker.broker_id) in gone:
            record = _leave(state, partition, broker.broker_id)
            if record is not None:
                records.append(record)
    return records


def _leave(state: ControllerState, partition: Partition, node: int) -> PartitionChangeRecord | None:
    if node != partition.leader and node not in partition.isr:
        return None
    isr = [each for each in partition.isr if each != node]
    return decide_on(state, partition, Wish(without=node, isr=isr))
