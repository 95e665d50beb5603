"""DeleteRecords (21), versions 0-2: the leader raises its log start, and its followers follow.

Answered once every replica that is alive has let go of it, so that no election brings back what was
deleted, and the leader's own part is durable. Many partitions are begun in several turns of the
loop; what is then written to the disk, is written in the worker. Version 2 is flexible.

Rules: log.md#deleting-records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from holdfast.core.metadata.topic_names import INTERNAL_TOPICS
from holdfast.node.broker.broker import Broker
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
SLICE: Final = 50  # partitions begun in one turn of the loop

logger = logging.getLogger("holdfast.delete_records")


@dataclass(slots=True, eq=False)
class _Part:
    """What one partition's log has to let go of."""

    partition: Partition
    required: int
    result: DeleteRecordsPartitionResult

    def is_over(self) -> bool:
        """Whether it is settled, with its result filled in."""
        leading = self.partition.as_leader()
        if isinstance(leading, ErrorCode):
            self.result.error_code = leading
            return True
        low_watermark = leading.low_watermark
        if low_watermark < self.required or leading.log.kept_start < self.required:
            return False
        self.result.low_watermark = low_watermark
        return True


class _Deletion:
    """A request until all that it deletes is gone everywhere."""

    def __init__(
        self, broker: Broker, context: RequestContext, request: DeleteRecordsRequest
    ) -> None:
        wanted = _wanted(request)
        self.deferred: Final[Deferred] = context.defer(partitions=len(wanted))
        self._broker = broker
        self._context = context
        self._asked = iter(wanted.items())
        self._topics: dict[str, DeleteRecordsTopicResult] = {}
        self._left: dict[Hashable, _Part] = {}  # by both keys of each partition
        self._touched: dict[Hashable, None] = {}
        timeout_ms = max(0, min(request.timeout_ms, WAIT_MS_MAX))
        self._is_begun = False  # all of it
        self._is_over = False
        self._forget = broker.waiting.park(self, (), timeout_ms)
        self.deferred.lost = self._end
        self._go_on()

    def _go_on(self) -> None:
        """Begin with some partitions: thousands at once would hold up everybody else."""
        if self._is_over:
            return
        some = list(islice(self._asked, SLICE))
        for (name, index), offset in some:
            self._begin(name, index, offset)
        if len(some) == SLICE:
            asyncio.get_running_loop().call_soon(self._go_on)
            return
        self._is_begun = True
        if self.try_complete():
            self._end()

    def _begin(self, name: str, index: int, offset: int) -> None:
        result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=UNKNOWN)
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = DeleteRecordsTopicResult(name=name)
            if name in self._broker.image.topics:  # any name may be asked for, and any number
                logger.info("records of %s are deleted by name", name)
        topic.partitions.append(result)
        result.error_code = _topic_refusal(self._broker, self._context, name)
        if result.error_code:
            return
        partition = self._broker.partitions.find(name, index)
        if isinstance(partition, ErrorCode):
            result.error_code = partition
            return
        leading = partition.as_leader()
        if isinstance(leading, ErrorCode):
            result.error_code = leading
            return
        result.error_code, required = leading.delete_before(offset)
        part = _Part(partition, required, result)
        if result.error_code or part.is_over():
            return
        for key in (partition.key, partition.committed_key):
            self._left[key] = part
            self._broker.waiting.watch(key, self)

    # -- what the waiting room asks --------------------------------------------------------------

    @property
    def sender(self) -> Hashable:
        return self._context.sender

    def touched(self, key: Hashable) -> bool:
        self._touched[key] = None
        return True

    def ask(self) -> None:
        """Look at the partitions of which something has changed, and at no others."""
        touched, self._touched = self._touched, {}
        for key in touched:
            part = self._left.get(key)
            if part is not None and part.is_over():
                self._leave(part)
        if self.try_complete():
            self._end()

    def try_complete(self) -> bool:
        if self._left or not self._is_begun or self._is_over:
            return False
        self._answer()
        return True

    def expire(self) -> None:
        """The request's own time-out: what is begun goes on, and followers will hear of it."""
        for (name, index), _ in self._asked:
            topic = self._topics.setdefault(name, DeleteRecordsTopicResult(name=name))
            result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=UNKNOWN)
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
            topic.partitions.append(result)
        for part in dict.fromkeys(self._left.values()):
            if not part.is_over():
                part.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._end()
        self._answer()

    def _answer(self) -> None:
        self.deferred.answer(DeleteRecordsResponse(topics=list(self._topics.values())))

    def _leave(self, part: _Part) -> None:
        for key in (part.partition.key, part.partition.committed_key):
            del self._left[key]
            self._broker.waiting.unwatch(key, self)

    def _end(self) -> None:
        """Wait for nothing any more: it is answered, or nobody is there who could be."""
        self._is_over = True
        self._forget()
        for key in self._left:
            self._broker.waiting.unwatch(key, self)
        self._left.clear()


def handle(broker: Broker, context: RequestContext, request: DeleteRecordsRequest) -> Deferred:
    """Delete what may be deleted; answer when it is gone from every replica."""
    return _Deletion(broker, context, request).deferred


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
