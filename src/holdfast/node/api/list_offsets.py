"""ListOffsets (key 2): the offset at a moment or at an end of the log.

Served: 1 to 11. -1 latest, -2 earliest, -3 the largest timestamp (7), -4 earliest local (8), -5
latest tiered (9), -6 earliest pending upload (11); nothing is tiered here. "Latest" waits out an
election: until the new epoch's start is committed it is not known (version 5 brought the error).

Rules: fetch.md#special-timestamps, fetch.md#latest-after-an-election, fetch.md#search-by-timestamp.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from holdfast.log.errors import StorageError
from holdfast.node.broker.broker import Broker
from holdfast.node.broker.leading_replica import LeadingReplica
from holdfast.node.door.request_context import Deferred, RequestContext, refusal
from holdfast.runtime.sliced_work import REST, Effort, Steps
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import list_offsets as wire
from holdfast.wire.well_known import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)

SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
FIRST_VERSION_WITH_EPOCHS = 4
FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5

ASKED_EFFORT: Final = 1 / 500  # at least, of each partition that is named

MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER

Answer = wire.ListOffsetsPartitionResponse


def handle(
    broker: Broker, context: RequestContext, request: wire.ListOffsetsRequest
) -> wire.ListOffsetsResponse | Deferred:
    """Answer at once, but for look-ups by timestamp that take longer than a slice."""
    response = wire.ListOffsetsResponse()
    steps = _fill(broker, context, request, response)
    try:
        wanted = next(steps)
    except StopIteration:
        return response
    deferred = context.defer(partitions=sum(len(topic.partitions) for topic in request.topics))
    deferred.lost = broker.sliced_work.begin(
        steps,
        wanted,
        queue=("look-ups", context.sender),
        done=lambda _: deferred.answer(response),
        failed=deferred.abandon,
    )
    return deferred


def _fill(
    broker: Broker,
    context: RequestContext,
    request: wire.ListOffsetsRequest,
    response: wire.ListOffsetsResponse,
) -> Steps[None]:
    """Fill the response with the answers to all that is asked, one after the other."""
    effort = broker.sliced_work.first_effort()
    named = Counter(
        (topic.name, asked.partition_index)
        for topic in request.topics
        for asked in topic.partitions
    )
    for topic in request.topics:
        refused = refusal(context, topic.name)
        answers: list[Answer] = []
        response.topics.append(wire.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        for asked in topic.partitions:
            times = named.pop((topic.name, asked.partition_index), 0)
            if not times:
                continue  # it was answered where it was named first
            if refused is not None:
                answer = _refused(asked, refused.code)
            elif times > 1:
                # Rules: connections.md#what-is-named-twice.
                answer = _refused(asked, ErrorCode.INVALID_REQUEST)
            else:
                follower = request.replica_id >= 0
                asking = Asking(broker, context.version, effort, topic.name, follower=follower)
                answer = yield from _look_up(asking, asked)
            if context.version < FIRST_VERSION_WITH_EPOCHS:
                answer.leader_epoch = -1  # there is no place for it
            answers.append(answer)
            effort.spent += ASKED_EFFORT
            if effort.is_over:
                yield REST
                effort.spent = 0


class Asking(NamedTuple):
    """What all partitions of a topic have in common that a request asks for."""

    broker: Broker
    version: int
    effort: Effort
    topic: str
    follower: bool


def _look_up(asking: Asking, asked: wire.ListOffsetsPartition) -> Steps[Answer]:
    index, epoch = asked.partition_index, asked.current_leader_epoch
    leading = asking.broker.partitions.leading(asking.topic, index, epoch)
    if isinstance(leading, ErrorCode):
        return _refused(asked, leading)
    if asked.timestamp < 0 and SINCE.get(asked.timestamp, asking.version + 1) > asking.version:
        return _refused(asked, ErrorCode.UNSUPPORTED_VERSION)
    try:
        answer = yield from _found(asking, leading, asked)
    except StorageError:
        answer = _refused(asked, ErrorCode.KAFKA_STORAGE_ERROR)
    # It may lead no longer, or in another epoch, by the time that a long look-up ends.
    now = asking.broker.partitions.leading(asking.topic, index, epoch)
    if now is not leading:
        return _refused(asked, now if isinstance(now, ErrorCode) else MOVED)
    return answer


def _found(
    asking: Asking, leading: LeadingReplica, asked: wire.ListOffsetsPartition
) -> Steps[Answer]:
    log, leader = leading.log, leading.state
    if asked.timestamp in {EARLIEST, EARLIEST_LOCAL}:  # nothing is uploaded, so all is local
        return _answer(asked, log.start, log.epoch_at(log.start))
    if asked.timestamp in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:
        return _answer(asked, -1, -1)
    found = None
    if asked.timestamp == MAX_TIMESTAMP:
        found = yield from log.find_max_timestamp(asking.effort)
    elif asked.timestamp != LATEST:
        found = yield from log.find_timestamp(asked.timestamp, asking.effort)
    end = log.end if asking.follower else log.high_watermark
    # The fetchable end is unknown while the watermark may still lag behind what an earlier
    # leader had committed; a follower asks for the log end, which is known.
    unsure = not asking.follower and log.high_watermark < leader.epoch_start
    if asked.timestamp == LATEST:
        return _not_yet(asked, asking.version) if unsure else _answer(asked, end, leader.epoch)
    if found is not None and found.offset < end:
        return _answer(asked, found.offset, found.epoch, found.timestamp)
    if unsure and found is not None:
        return _not_yet(asked, asking.version)
    return _answer(asked, -1, -1)


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
