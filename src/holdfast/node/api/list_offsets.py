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
from holdfast.log.log import Log
from holdfast.node.broker.broker import Broker
from holdfast.node.broker.leading_replica import LeadingReplica
from holdfast.node.broker.replica import Partition
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

CONSUMER: Final = -1  # replica ids that are no broker's
DEBUGGING: Final = -2

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
                asking = Asking(broker, context.version, effort, topic.name, request.replica_id)
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
    replica_id: int

    @property
    def reads_all(self) -> bool:
        """Whether the log's own end is meant, and not how far it is committed."""
        return self.replica_id != CONSUMER

    def held(self, index: int, epoch: int) -> LeadingReplica | Log | ErrorCode:
        """Return what leads the partition here; for who debugs, whatever replica is here."""
        partitions = self.broker.partitions
        if self.replica_id != DEBUGGING:
            return partitions.leading(self.topic, index, epoch)
        found = partitions.find(self.topic, index)
        return found.as_nearest(epoch) if isinstance(found, Partition) else found


def _look_up(asking: Asking, asked: wire.ListOffsetsPartition) -> Steps[Answer]:
    index, epoch = asked.partition_index, asked.current_leader_epoch
    held = asking.held(index, epoch)
    if isinstance(held, ErrorCode):
        return _refused(asked, held)
    if asked.timestamp < 0 and SINCE.get(asked.timestamp, asking.version + 1) > asking.version:
        return _refused(asked, ErrorCode.UNSUPPORTED_VERSION)
    try:
        answer = yield from _found(asking, held, asked)
    except StorageError:
        answer = _refused(asked, ErrorCode.KAFKA_STORAGE_ERROR)
    # It may lead no longer, or in another epoch, by the time that a long look-up ends.
    now = asking.held(index, epoch)
    if now is not held:
        return _refused(asked, now if isinstance(now, ErrorCode) else MOVED)
    return answer


def _found(
    asking: Asking, held: LeadingReplica | Log, asked: wire.ListOffsetsPartition
) -> Steps[Answer]:
    log = held if isinstance(held, Log) else held.log
    if asked.timestamp in {EARLIEST, EARLIEST_LOCAL}:  # nothing is uploaded, so all is local
        return _answer(asked, log.start, log.epoch_at(log.start))
    if asked.timestamp in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:
        return _answer(asked, -1, -1)
    found = None
    if asked.timestamp == MAX_TIMESTAMP:
        found = yield from log.find_max_timestamp(asking.effort)
    elif asked.timestamp != LATEST:
        found = yield from log.find_timestamp(asked.timestamp, asking.effort)
    end = log.end if asking.reads_all else log.high_watermark
    # The fetchable end is unknown while the watermark may still lag behind what an earlier
    # leader had committed; a follower asks for the log end, which is known.
    unsure = (
        not isinstance(held, Log)
        and not asking.reads_all
        and log.high_watermark < held.state.epoch_start
    )
    if asked.timestamp == LATEST:
        epoch = log.latest_epoch if isinstance(held, Log) else held.state.epoch
        return _not_yet(asked, asking.version) if unsure else _answer(asked, end, epoch)
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
