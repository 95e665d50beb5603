"""Fetch (key 1): records from offsets on, for consumers and for followers.

Served: 4 to 17. Version 11 brought the rack, and with it followers serve consumers too: what is
committed as far as they know (KIP-392). 12 the diverging epoch, 13 topic ids, 15 the replica's
broker epoch, 16 the leaders' addresses. There are no fetch sessions: every answer says session 0,
which is always legal, and every request is a full one (rules: fetch.md#fetch-sessions). What is
named twice counts once (rules: connections.md#what-is-named-twice).

Each partition is looked at once. If all that was seen is enough, it is the answer; if not, the
request waits until something changes, and looks again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from holdfast.log.errors import CorruptFileError, StorageError
from holdfast.node.api.fetch_readers import (
    FIRST_VERSION_WITH_DIVERGENCE,
    Asked,
    ConsumerReader,
    FollowerReader,
    Look,
    Refused,
    Seen,
)
from holdfast.node.api.leader import name_leaders
from holdfast.node.broker.broker import Broker
from holdfast.node.broker.replica import Partition
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire import hot
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import fetch as wire

FIRST_VERSION_WITH_IDS = 13
FIRST_VERSION_WITH_ADDRESSES = 16
READ_COMMITTED = 1
WAIT_MS_MAX = 60_000  # an end of the connection may go unheard: no wait lasts for weeks
NOTHING = b""
LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Reader: TypeAlias = ConsumerReader | FollowerReader


decode_request = hot.decode_fetch  # by hand: this is the hot path


class Fetch:
    """One request, and what there is for it: parked, it looks again each time something changed."""

    __slots__ = ("_asked", "_broker", "_context", "_deferred", "_reader", "_request")

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        request: wire.FetchRequest,
        reader: Reader,
        asked: Sequence[Asked],
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._reader = reader
        self._asked = asked

    def look(self) -> Look:
        """Look at each partition, as it is now."""
        look = self._reader.look
        return [
            look(each.found, each.wanted)
            if isinstance(each.found, Partition)
            else Refused(each.found)
            for each in self._asked
        ]

    def is_enough(self, look: Look) -> bool:
        """Whether to answer now: enough bytes, or something that the client must hear at once.

        Rules: fetch.md#when-to-answer.
        """
        request = self._request
        if request.max_wait_ms <= 0 or not look:
            return True
        available = 0
        for seen, asked in zip(look, self._asked, strict=True):
            if isinstance(seen, Refused) or seen.has_news:
                return True
            offset = asked.wanted.fetch_offset
            if offset < seen.end and seen.is_readable:
                if request.min_bytes <= 1:
                    return True
                try:
                    found = seen.log.bytes_between(offset, seen.end)
                except (StorageError, CorruptFileError):
                    return True  # the read says what is wrong
                available += min(found, asked.wanted.partition_max_bytes)
                if available >= request.min_bytes:
                    return True
        return False

    def answer(self, look: Look) -> wire.FetchResponse:
        """Read what there is. Rules: fetch.md#size-of-an-answer."""
        budget = min(self._request.max_bytes, self._broker.settings.fetch_max_bytes)
        if self._broker.runtime.provoke("fetch.one-batch"):
            budget = 0  # one batch of the first partition that has any
        topics: dict[tuple[str, bytes], wire.FetchableTopicResponse] = {}
        first = True
        for seen, asked in zip(look, self._asked, strict=True):
            if isinstance(seen, Refused):
                data = _refused(asked.wanted.partition, seen)
            else:
                data = self._read(seen, asked.wanted, budget, minimum_one=first)
            if data.records:
                budget -= len(data.records)
                first = False
            topic = topics.get((asked.name, asked.topic_id))
            if topic is None:
                topic = topics[asked.name, asked.topic_id] = wire.FetchableTopicResponse(
                    topic=asked.name, topic_id=asked.topic_id
                )
            topic.partitions.append(data)
        response = wire.FetchResponse(responses=list(topics.values()))
        self._name_leaders(response)
        return response

    @property
    def size_max(self) -> int:
        """The most bytes of records that its answer may have, but for one larger batch."""
        wanted = sum(asked.wanted.partition_max_bytes for asked in self._asked)
        return max(0, min(wanted, self._request.max_bytes, self._broker.settings.fetch_max_bytes))

    def park(self, deferred: Deferred) -> None:
        """Wait for any of its partitions to change, as long as the client allows."""
        keys = [
            key
            for asked in self._asked
            if isinstance(asked.found, Partition)
            for key in self._reader.wakes(asked.found)
        ]
        self._deferred = deferred
        forget = self._broker.waiting.park(self, keys, min(self._request.max_wait_ms, WAIT_MS_MAX))
        if not deferred.is_answered:
            deferred.lost = forget

    def try_complete(self) -> bool:
        look = self.look()
        if not self.is_enough(look):
            return False
        self._deferred.answer(self.answer(look))
        return True

    def expire(self) -> None:
        self._deferred.answer(self.answer(self.look()))

    def _read(
        self, seen: Seen, wanted: wire.FetchPartition, budget: int, *, minimum_one: bool
    ) -> wire.PartitionData:
        """Read one partition's part of the answer, and tell whoever keeps count of it."""
        records = NOTHING
        limit = max(0, min(budget, wanted.partition_max_bytes))
        if wanted.fetch_offset < seen.end and (limit or minimum_one) and seen.is_readable:
            try:
                records, _, error = seen.log.read(
                    wanted.fetch_offset, limit, seen.end, minimum_one=minimum_one
                )
            except StorageError:
                error = ErrorCode.KAFKA_STORAGE_ERROR
            if error:
                return _refused(wanted.partition, Refused(error))
        seen.answered(len(records))
        high_watermark = seen.log.high_watermark
        data = wire.PartitionData(
            partition_index=wanted.partition,
            high_watermark=high_watermark,
            last_stable_offset=high_watermark,
            log_start_offset=seen.log.start,
            aborted_transactions=[] if self._request.isolation_level == READ_COMMITTED else None,
            records=records,
        )
        if seen.diverging is not None:
            data.diverging_epoch = seen.diverging
        if seen.preferred is not None:
            data.preferred_read_replica = seen.preferred
        return data

    def _name_leaders(self, response: wire.FetchResponse) -> None:
        """Tell whoever came to the wrong broker where the leader is (KIP-951)."""
        if self._context.version < FIRST_VERSION_WITH_DIVERGENCE:
            return
        refused = []
        for topic in response.responses:
            for data in topic.partitions:
                if data.error_code in LED_ELSEWHERE:
                    name = topic.topic or _name_of(self._broker, topic.topic_id)
                    refused.append((name, data.partition_index, data))
        if refused:
            nodes = name_leaders(self._broker, refused, self._context.client.listener)
            if self._context.version >= FIRST_VERSION_WITH_ADDRESSES:
                response.node_endpoints = nodes


def handle(
    broker: Broker, context: RequestContext, request: wire.FetchRequest
) -> wire.FetchResponse | Deferred:
    """Answer at once when there is enough, else wait."""
    if request.session_id != 0 and request.session_epoch > 0:
        return wire.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    node, broker_epoch = hot.fetch_replica(request)
    reader: Reader = (
        ConsumerReader(broker, context, request.rack_id)
        if node < 0
        else FollowerReader(broker, context, node, broker_epoch)
    )
    # What is named twice counts once: every look costs as much as there is to look at.
    asked = {
        (each.name, each.topic_id, each.wanted.partition): each
        for topic in request.topics
        for each in _find(broker, context.version, reader, topic)
    }
    fetch = Fetch(broker, context, request, reader, list(asked.values()))
    look = fetch.look()
    reader.begin(look)
    if fetch.is_enough(look):
        return fetch.answer(look)
    deferred = context.defer(fetch.size_max)
    fetch.park(deferred)
    return deferred


def _find(broker: Broker, version: int, reader: Reader, topic: wire.FetchTopic) -> Iterator[Asked]:
    """Find the partitions of one topic."""
    name, topic_id = topic.topic, bytes(topic.topic_id)
    by_id = version >= FIRST_VERSION_WITH_IDS
    if by_id:
        name = _name_of(broker, topic_id)
    # Nobody may be refused an id that stands for nothing: it is unknown.
    refused = reader.refuses(name) if name else None
    for wanted in topic.partitions:
        found: Partition | ErrorCode
        if refused is not None:
            found = refused
        elif by_id:
            found = broker.partitions.find_by_id(topic_id, wanted.partition)
        else:
            found = broker.partitions.find(name, wanted.partition)
        if isinstance(found, Partition):
            found = reader.admit(found, wanted)
        yield Asked(name, topic_id, wanted, found)


def _name_of(broker: Broker, topic_id: bytes) -> str:
    topic = broker.image.topics_by_id.get(topic_id)
    return topic.name if topic is not None else ""


def _refused(index: int, refused: Refused) -> wire.PartitionData:
    return wire.PartitionData(
        partition_index=index,
        error_code=refused.error,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=refused.log_start,
        aborted_transactions=None,
        records=NOTHING,
    )
