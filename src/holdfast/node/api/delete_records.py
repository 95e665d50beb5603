"""DeleteRecords (21), versions 0-2: the leader raises its log start, and its followers follow.

Answered once every replica that is alive has let go of it, so that no election brings back what was
deleted; the leader's own part is durable by then. Version 2 is flexible.

Rules: log.md#deleting-records.
"""

from __future__ import annotations

from holdfast.core.metadata.topic_names import INTERNAL_TOPICS
from holdfast.node.broker.broker import Broker
from holdfast.node.broker.leading_replica import LeadingReplica, keep_deletions
from holdfast.node.broker.replica import Partition
from holdfast.node.door.request_context import Deferred, RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

UNKNOWN = -1
WAIT_MS_MAX = 600_000

Part = tuple[Partition, int, DeleteRecordsPartitionResult]


class DeletionWait:
    """A request until all that it deletes is gone everywhere."""

    __slots__ = ("_deferred", "_left", "_response")

    def __init__(
        self, deferred: Deferred, response: DeleteRecordsResponse, parts: list[Part]
    ) -> None:
        self._deferred = deferred
        self._response = response
        self._left = parts

    def try_complete(self) -> bool:
        self._left = [part for part in self._left if not _is_over(*part)]
        if self._left:
            return False
        self._deferred.answer(self._response)
        return True

    def expire(self) -> None:
        """The request's own time-out: it is deleted here, and followers will hear of it."""
        for part in self._left:
            if not _is_over(*part):
                part[2].error_code = ErrorCode.REQUEST_TIMED_OUT
        self._deferred.answer(self._response)


def handle(
    broker: Broker, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Deferred:
    """Delete what may be deleted; answer when it is gone from every replica."""
    results: dict[str, DeleteRecordsTopicResult] = {}
    parts: list[Part] = []
    moved: dict[LeadingReplica, DeleteRecordsPartitionResult] = {}
    for (name, index), offset in _wanted(request).items():
        topic = results.setdefault(name, DeleteRecordsTopicResult(name=name))
        result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=UNKNOWN)
        topic.partitions.append(result)
        result.error_code = _topic_refusal(broker, context, name)
        if result.error_code is ErrorCode.NONE:
            _delete(broker, name, offset, result, parts, moved)
    for failed in keep_deletions(moved):
        moved[failed].error_code = ErrorCode.KAFKA_STORAGE_ERROR
    response = DeleteRecordsResponse(topics=list(results.values()))
    parts = [part for part in parts if part[2].error_code == ErrorCode.NONE and not _is_over(*part)]
    if not parts:
        return response
    deferred = context.defer()
    keys = [key for partition, _, _ in parts for key in (partition.key, partition.committed_key)]
    timeout_ms = max(0, min(request.timeout_ms, WAIT_MS_MAX))
    forget = broker.waiting.park(DeletionWait(deferred, response, parts), keys, timeout_ms)
    if not deferred.is_answered:
        deferred.lost = forget
    return deferred


def _wanted(request: DeleteRecordsRequest) -> dict[tuple[str, int], int]:
    """Return the offset for each partition. Rules: connections.md#what-is-named-twice."""
    return {
        (topic.name, asked.partition_index): asked.offset
        for topic in request.topics
        for asked in topic.partitions
    }


def _topic_refusal(broker: Broker, context: RequestContext, name: str) -> ErrorCode:
    refused = refusal(context, name)
    if refused is not None:
        return refused.code
    if name not in broker.image.topics:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_TOPIC_EXCEPTION if name in INTERNAL_TOPICS else ErrorCode.NONE


def _delete(
    broker: Broker,
    topic: str,
    offset: int,
    result: DeleteRecordsPartitionResult,
    parts: list[Part],
    moved: dict[LeadingReplica, DeleteRecordsPartitionResult],
) -> None:
    partition = broker.partitions.find(topic, result.partition_index)
    if isinstance(partition, ErrorCode):
        result.error_code = partition
        return
    leading = partition.as_leader()
    if isinstance(leading, ErrorCode):
        result.error_code = leading
        return
    start = leading.log.start
    result.error_code, required = leading.delete_before(offset)
    if leading.log.start > start:
        moved[leading] = result
    if result.error_code is ErrorCode.NONE:
        parts.append((partition, required, result))


def _is_over(partition: Partition, required: int, result: DeleteRecordsPartitionResult) -> bool:
    """Whether one partition's part is settled, with its result filled in."""
    leading = partition.as_leader()
    if isinstance(leading, ErrorCode):
        result.error_code = leading
        return True
    low_watermark = leading.low_watermark
    if low_watermark < required:
        return False
    result.low_watermark = low_watermark
    return True
