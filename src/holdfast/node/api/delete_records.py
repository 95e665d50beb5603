"""DeleteRecords (21), versions 0-2: the leader raises its log start, and its followers follow.

Answered once every replica that is alive has let go of it, so that no election brings back what was
deleted; the leader's own part is durable by then. Version 2 is flexible.

Rules: log.md#deleting-records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.names import INTERNAL_TOPICS
from holdfast.node.context import Deferred, Operation, RequestContext, ResourceType
from holdfast.node.partition import Partition
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from holdfast.node.broker import Broker

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
    response = DeleteRecordsResponse()
    parts: list[Part] = []
    for topic in request.topics:
        refusal = _topic_refusal(broker, context, topic.name)
        results = []
        for asked in topic.partitions:
            result = DeleteRecordsPartitionResult(
                partition_index=asked.partition_index, low_watermark=UNKNOWN, error_code=refusal
            )
            results.append(result)
            if refusal is ErrorCode.NONE:
                _delete(broker, topic.name, asked.offset, result, parts)
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    parts = [part for part in parts if not _is_over(*part)]
    if not parts:
        return response
    deferred = context.defer()
    keys = [key for partition, _, _ in parts for key in (partition.key, partition.committed_key)]
    timeout_ms = max(0, min(request.timeout_ms, WAIT_MS_MAX))
    broker.waiting.park(DeletionWait(deferred, response, parts), keys, timeout_ms)
    return deferred


def _topic_refusal(broker: Broker, context: RequestContext, name: str) -> ErrorCode:
    if not context.allows(Operation.DELETE, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if name not in broker.image.topics:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_TOPIC_EXCEPTION if name in INTERNAL_TOPICS else ErrorCode.NONE


def _delete(
    broker: Broker,
    topic: str,
    offset: int,
    result: DeleteRecordsPartitionResult,
    parts: list[Part],
) -> None:
    partition, error = broker.partitions.find(topic, result.partition_index)
    if partition is None:
        result.error_code = error
        return
    error, required = partition.delete_before(offset)
    result.error_code = error
    if error is ErrorCode.NONE:
        parts.append((partition, required, result))


def _is_over(partition: Partition, required: int, result: DeleteRecordsPartitionResult) -> bool:
    """Whether one partition's part is settled, with its result filled in."""
    refusal = partition.refusal()
    if refusal is not ErrorCode.NONE:
        result.error_code = refusal
        return True
    low_watermark = partition.low_watermark
    if low_watermark < required:
        return False
    result.low_watermark = low_watermark
    return True
