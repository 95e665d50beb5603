"""ListOffsets (key 2): the offset at a moment or at an end of the log.

Served: 1 to 11. -1 latest, -2 earliest, -3 the largest timestamp (7), -4 earliest local (8), -5
latest tiered (9), -6 earliest pending upload (11); nothing is tiered here. "Latest" waits out an
election: until the new epoch's start is committed it is not known (version 5 brought the error).

Rules: fetch.md#special-timestamps, fetch.md#latest-after-an-election, fetch.md#search-by-timestamp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.log.errors import StorageError
from holdfast.log.log import FoundRecord
from holdfast.node.context import Operation, RequestContext, ResourceType
from holdfast.node.partition import Partition
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import list_offsets as wire

if TYPE_CHECKING:
    from holdfast.node.broker import Broker

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
FIRST_VERSION_WITH_EPOCHS = 4
FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5

Answer = wire.ListOffsetsPartitionResponse


def handle(
    broker: Broker, context: RequestContext, request: wire.ListOffsetsRequest
) -> wire.ListOffsetsResponse:
    """Answer at once; a look-up by timestamp reads at most one index entry's worth of the log."""
    topics = []
    for topic in request.topics:
        allowed = context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        answers = []
        for asked in topic.partitions:
            if allowed:
                answer = _look_up(broker, context.version, request, topic.name, asked)
            else:
                answer = _refused(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if context.version < FIRST_VERSION_WITH_EPOCHS:
                answer.leader_epoch = -1  # there is no place for it
            answers.append(answer)
        topics.append(wire.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return wire.ListOffsetsResponse(topics=topics)


def _look_up(
    broker: Broker,
    version: int,
    request: wire.ListOffsetsRequest,
    topic: str,
    asked: wire.ListOffsetsPartition,
) -> Answer:
    partition, error = broker.partitions.find(topic, asked.partition_index)
    if partition is None:
        return _refused(asked, error)
    refusal = partition.refusal(asked.current_leader_epoch)
    if refusal is not ErrorCode.NONE:
        return _refused(asked, refusal)
    if asked.timestamp < 0 and not _is_known(asked.timestamp, version):
        return _refused(asked, ErrorCode.UNSUPPORTED_VERSION)
    try:
        return _found(partition, version, asked, follower=request.replica_id >= 0)
    except StorageError:
        return _refused(asked, ErrorCode.KAFKA_STORAGE_ERROR)


def _is_known(timestamp: int, version: int) -> bool:
    return timestamp in {LATEST, EARLIEST} or SINCE.get(timestamp, version + 1) <= version


def _found(
    partition: Partition, version: int, asked: wire.ListOffsetsPartition, *, follower: bool
) -> Answer:
    log, leader = partition.log, partition.leader
    assert log is not None
    assert leader is not None
    if asked.timestamp in {EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD}:
        # Nothing is uploaded anywhere, so all that is here is local, and pending for ever.
        return _answer(asked, log.start, log.epoch_at(log.start))
    if asked.timestamp == LATEST_TIERED:
        return _answer(asked, -1, -1)
    end = log.end if follower else partition.high_watermark
    # The fetchable end is unknown while the watermark may still lag behind what an earlier
    # leader had committed; a follower asks for the log end, which is known.
    unsure = not follower and partition.high_watermark < leader.epoch_start
    if asked.timestamp == LATEST:
        return _not_yet(asked, version) if unsure else _answer(asked, end, leader.epoch)
    found: FoundRecord | None
    if asked.timestamp == MAX_TIMESTAMP:
        found = log.max_timestamp()
    else:
        found = log.offset_for_timestamp(asked.timestamp)
    if found is not None and found.offset < end:
        return _answer(asked, found.offset, found.epoch, found.timestamp)
    return _not_yet(asked, version) if unsure and found is not None else _answer(asked, -1, -1)


def _answer(
    asked: wire.ListOffsetsPartition, offset: int, epoch: int, timestamp: int = -1
) -> Answer:
    return Answer(
        partition_index=asked.partition_index,
        offset=offset,
        leader_epoch=epoch,
        timestamp=timestamp,
    )


def _not_yet(asked: wire.ListOffsetsPartition, version: int) -> Answer:
    if version >= FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE:
        return _refused(asked, ErrorCode.OFFSET_NOT_AVAILABLE)
    return _refused(asked, ErrorCode.LEADER_NOT_AVAILABLE)


def _refused(asked: wire.ListOffsetsPartition, error: ErrorCode) -> Answer:
    return Answer(partition_index=asked.partition_index, error_code=error)
