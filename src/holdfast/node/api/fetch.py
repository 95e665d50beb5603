"""Fetch (key 1): records from offsets on, for consumers and for followers.

Served: 4 to 17. Version 11 brought the rack, and with it followers serve consumers too: what is
committed as far as they know (KIP-392). 12 the diverging epoch, 13 topic ids, 15 the replica's
broker epoch, 16 the leaders' addresses. There are no fetch sessions: every answer says session 0,
which is always legal, and every request is a full one (rules: fetch.md#fetch-sessions).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.read_replica import RACK_AWARE, preferred_read_replica
from holdfast.log.errors import CorruptFileError, StorageError
from holdfast.log.log import Log
from holdfast.node.api.leader import current_leader, endpoints
from holdfast.node.context import (
    CLUSTER_NAME,
    Deferred,
    Operation,
    RequestContext,
    ResourceType,
)
from holdfast.node.partition import FollowerFetch, Partition
from holdfast.wire import hot
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import fetch as wire

if TYPE_CHECKING:
    from holdfast.node.broker import Broker

FIRST_VERSION_WITH_RACKS = 11
FIRST_VERSION_WITH_IDS = 13
FIRST_VERSION_WITH_DIVERGENCE = 12
FIRST_VERSION_WITH_ADDRESSES = 16
READ_COMMITTED = 1
WAIT_MS_MAX = 60_000  # a wait outlives its connection: none may do so for weeks
NOTHING = b""
UNKNOWN_EPOCH = wire.EpochEndOffset()
LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def decode_request(version: int, frame: memoryview, offset: int) -> wire.FetchRequest:
    """Decode by hand: this is the hot path."""
    return hot.decode_fetch(version, frame, offset)


class Asked(NamedTuple):
    """One partition of a request, found or refused."""

    name: str
    topic_id: bytes
    wanted: wire.FetchPartition
    partition: Partition | None
    refusal: ErrorCode


class FetchWait:
    """A fetch until there is enough to answer: tried at once, then each time something changed."""

    __slots__ = (
        "_asked",
        "_broker",
        "_context",
        "_deferred",
        "_follower_serves",
        "_rack_of",
        "_replica",
        "_request",
    )

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        request: wire.FetchRequest,
        asked: list[Asked],
        replica: tuple[int, int] | None,
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._asked = asked
        self._replica = replica  # node and broker epoch of a follower
        self._follower_serves = replica is None and context.version >= FIRST_VERSION_WITH_RACKS
        self._rack_of: dict[int, str | None] | None = None  # of whom this client can reach
        self._deferred: Deferred | None = None

    def park(self, deferred: Deferred) -> None:
        """Wait for any of its partitions to change, as long as the client allows."""
        self._deferred = deferred
        partitions = [asked.partition for asked in self._asked if asked.partition is not None]
        keys: list[Hashable] = [partition.key for partition in partitions]
        if self._replica is None or self._is_rack_aware:
            keys += [partition.committed_key for partition in partitions]
        self._broker.waiting.park(self, keys, min(self._request.max_wait_ms, WAIT_MS_MAX))

    def try_complete(self) -> bool:
        assert self._deferred is not None
        response = self.answer(final=False)
        if response is None:
            return False
        self._deferred.answer(self.encode(response))
        return True

    def expire(self) -> None:
        assert self._deferred is not None
        response = self.answer(final=True)
        assert response is not None
        self._deferred.answer(self.encode(response))

    def encode(self, response: wire.FetchResponse) -> object:
        context = self._context
        return hot.encode_fetch_response(response, context.version, context.correlation_id)

    def answer(self, *, final: bool) -> wire.FetchResponse | None:
        """Read what there is; None when it is not enough yet and the client may wait.

        Rules: fetch.md#size-of-an-answer.
        """
        if not final and not self._enough():
            return None
        budget = min(self._request.max_bytes, self._broker.settings.fetch_max_bytes)
        if self._broker.runtime.provoke("fetch.one-batch"):
            budget = 0  # one batch of the first partition that has any
        topics: dict[tuple[str, bytes], wire.FetchableTopicResponse] = {}
        first = True
        for asked in self._asked:
            data = self._read(asked, budget, minimum_one=first)
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

    # -- is it enough? -------------------------------------------------------------------------

    def _enough(self) -> bool:
        """Whether to answer now: enough bytes, or something that the client must hear at once.

        Rules: fetch.md#when-to-answer.
        """
        request = self._request
        if request.max_wait_ms <= 0 or not self._asked:
            return True
        available = 0
        for asked in self._asked:
            partition = asked.partition
            if partition is None or partition.log is None or asked.refusal is not ErrorCode.NONE:
                return True
            wanted = asked.wanted
            if self._refusal(partition, wanted) is not ErrorCode.NONE:
                return True
            offset, log = wanted.fetch_offset, partition.log
            if not log.start <= offset <= log.end or self._parting(log, wanted) is not None:
                return True
            if self._replica is not None and self._has_news(partition, wanted):
                return True
            if self._preferred(partition, wanted) is not None:
                return True
            bound = self._bound(partition)
            if offset < bound and not self._must_wait(partition):
                if request.min_bytes <= 1:
                    return True
                try:
                    found = log.bytes_between(offset, bound)
                except (StorageError, CorruptFileError):
                    return True  # the read says what is wrong
                available += min(found, wanted.partition_max_bytes)
                if available >= request.min_bytes:
                    return True
        return False

    def _refusal(self, partition: Partition, wanted: wire.FetchPartition) -> ErrorCode:
        error = partition.refusal(
            wanted.current_leader_epoch, follower_serves=self._follower_serves
        )
        if error is ErrorCode.NONE and self._replica is not None:
            # It may have been taken away while its fetch was parked.
            assert partition.leader is not None, "followers are served by leaders only"
            if self._replica[0] not in partition.leader.followers:
                return _unknown_follower(wanted)
        return error

    def _has_news(self, partition: Partition, wanted: wire.FetchPartition) -> bool:
        """Whether this follower should hear something at once that is no record."""
        assert self._replica is not None
        node = self._replica[0]
        return partition.has_news_for(node, wanted.log_start_offset) or (
            self._is_rack_aware and partition.has_committed_for(node)
        )

    def _must_wait(self, partition: Partition) -> bool:
        """Whether this follower's part is throttled for now; one that is in sync never is."""
        if self._replica is None or not partition.throttled.as_leader or partition.leader is None:
            return False
        now_ms = self._broker.runtime.clock.monotonic_ms()
        return self._replica[0] not in partition.leader.isr and (
            self._broker.leader_quota.is_exceeded(now_ms)
        )

    @property
    def _is_rack_aware(self) -> bool:
        return self._broker.settings.replica_selector_class == RACK_AWARE

    def _preferred(self, partition: Partition, wanted: wire.FetchPartition) -> int | None:
        """Which follower this consumer should ask instead, if any."""
        if (
            not self._request.rack_id
            or self._replica is not None
            or partition.leader is None
            or not self._is_rack_aware
        ):
            return None
        if self._rack_of is None:
            self._rack_of = {
                broker.broker_id: broker.rack
                for broker in self._broker.image.alive_brokers()
                if broker.endpoint(self._context.listener) is not None
            }
        return preferred_read_replica(
            partition.leader, wanted.fetch_offset, self._request.rack_id, self._rack_of.get
        )

    def _bound(self, partition: Partition) -> int:
        """The end of what this reader may see: a follower all, a consumer what is committed.

        Rules: fetch.md#readable-end.
        """
        assert partition.log is not None
        return partition.log.end if self._replica is not None else partition.high_watermark

    def _parting(self, log: Log, wanted: wire.FetchPartition) -> wire.EpochEndOffset | None:
        """Where the reader's log parts from this one, if it does; see `parting`."""
        if self._context.version < FIRST_VERSION_WITH_DIVERGENCE:
            return None
        return parting(log, wanted)

    # -- one partition's part of the answer -----------------------------------------------------

    def _read(self, asked: Asked, budget: int, *, minimum_one: bool) -> wire.PartitionData:
        partition, wanted = asked.partition, asked.wanted
        error = asked.refusal
        if error is ErrorCode.NONE:
            assert partition is not None
            error = self._refusal(partition, wanted)
        if error is not ErrorCode.NONE or partition is None or partition.log is None:
            return _refused(wanted.partition, error)
        log = partition.log
        diverging = self._parting(log, wanted)
        if wanted.fetch_offset < log.start or diverging is UNKNOWN_EPOCH:
            return self._out_of_range(partition, wanted)
        if diverging is not None:
            return self._data(partition, wanted, NOTHING, diverging)
        if wanted.fetch_offset > log.end:
            return self._out_of_range(partition, wanted)
        preferred = self._preferred(partition, wanted)
        if preferred is not None:
            data = self._data(partition, wanted, NOTHING, None)
            data.preferred_read_replica = preferred
            return data
        records = NOTHING
        bound = self._bound(partition)
        limit = min(budget, wanted.partition_max_bytes)
        if (
            wanted.fetch_offset < bound
            and (limit > 0 or minimum_one)
            and not self._must_wait(partition)
        ):
            try:
                records, _, error = log.read(
                    wanted.fetch_offset, max(limit, 0), bound, minimum_one=minimum_one
                )
            except StorageError:
                return _refused(wanted.partition, ErrorCode.KAFKA_STORAGE_ERROR)
            if error is not ErrorCode.NONE:
                return _refused(wanted.partition, error)
            if self._replica is not None and partition.throttled.as_leader:
                now_ms = self._broker.runtime.clock.monotonic_ms()
                self._broker.leader_quota.record(len(records), now_ms)
        return self._data(partition, wanted, records, None)

    def _out_of_range(
        self, partition: Partition, wanted: wire.FetchPartition
    ) -> wire.PartitionData:
        """Refuse an offset that is not in the log, with where it starts.

        Rules: fetch.md#out-of-range.
        """
        data = _refused(wanted.partition, ErrorCode.OFFSET_OUT_OF_RANGE)
        if partition.log is not None:
            data.log_start_offset = partition.log.start
        return data

    def _data(
        self,
        partition: Partition,
        wanted: wire.FetchPartition,
        records: bytes,
        diverging: wire.EpochEndOffset | None,
    ) -> wire.PartitionData:
        """Make the answer, after the read; tell the leader that this follower got here."""
        assert partition.log is not None
        if self._replica is not None and diverging is None:
            node, broker_epoch = self._replica
            partition.fetched_by(
                FollowerFetch(node, wanted.fetch_offset, wanted.log_start_offset, broker_epoch)
            )
            partition.told(node)
        committed = self._request.isolation_level == READ_COMMITTED
        data = wire.PartitionData(
            partition_index=wanted.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.high_watermark,
            log_start_offset=partition.log.start,
            aborted_transactions=[] if committed else None,
            records=records,
        )
        if diverging is not None:
            data.diverging_epoch = diverging
        return data

    def _name_leaders(self, response: wire.FetchResponse) -> None:
        """Tell whoever came to the wrong broker where the leader is (KIP-951)."""
        if self._context.version < FIRST_VERSION_WITH_DIVERGENCE:
            return
        leaders: dict[int, None] = {}
        for topic in response.responses:
            for data in topic.partitions:
                if data.error_code in LED_ELSEWHERE:
                    name = topic.topic or _name_of(self._broker, topic.topic_id)
                    found = current_leader(self._broker, name, data.partition_index)
                    if found is not None:
                        data.current_leader = wire.LeaderIdAndEpoch(
                            leader_id=found[0], leader_epoch=found[1]
                        )
                        leaders[found[0]] = None
        if leaders and self._context.version >= FIRST_VERSION_WITH_ADDRESSES:
            response.node_endpoints = [
                wire.NodeEndpoint(node_id=node, host=host, port=port, rack=rack)
                for node, host, port, rack in endpoints(
                    self._broker, leaders, self._context.listener
                )
            ]


def handle(
    broker: Broker, context: RequestContext, request: wire.FetchRequest
) -> wire.FetchResponse | Deferred | object:
    """Answer at once when there is enough, else wait."""
    if request.session_id != 0 and request.session_epoch > 0:
        return wire.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    replica = _replica(context, request)
    if replica is not None and not context.allows(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        return wire.FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = [
        _find(broker, context, topic, wanted, replica)
        for topic in request.topics
        for wanted in topic.partitions
    ]
    if replica is not None:
        _note_followers(asked, replica)
    wait = FetchWait(broker, context, request, asked, replica)
    response = wait.answer(final=False)
    if response is not None:
        return wait.encode(response)
    deferred = context.defer()
    wait.park(deferred)
    return deferred


def _replica(context: RequestContext, request: wire.FetchRequest) -> tuple[int, int] | None:
    """Node and broker epoch of a follower; None for a consumer."""
    if context.version >= 15:
        state = request.replica_state
        return (state.replica_id, state.replica_epoch) if state.replica_id >= 0 else None
    return (request.replica_id, -1) if request.replica_id >= 0 else None


def _find(
    broker: Broker,
    context: RequestContext,
    topic: wire.FetchTopic,
    wanted: wire.FetchPartition,
    replica: tuple[int, int] | None,
) -> Asked:
    name, topic_id = topic.topic, bytes(topic.topic_id)
    if context.version >= FIRST_VERSION_WITH_IDS:
        name = _name_of(broker, topic_id)
        partition, refusal = broker.partitions.find_by_id(topic_id, wanted.partition)
    else:
        partition, refusal = broker.partitions.find(name, wanted.partition)
    if replica is None and not context.allows(Operation.READ, ResourceType.TOPIC, name):
        refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif replica is not None and partition is not None:
        refusal = _follower_refusal(broker, partition, wanted, replica)
    return Asked(name, topic_id, wanted, partition, refusal)


def _follower_refusal(
    broker: Broker, partition: Partition, wanted: wire.FetchPartition, replica: tuple[int, int]
) -> ErrorCode:
    """Whether this follower may fetch from here; the leader's own state is apart.

    Rules: replication.md#who-may-follow.
    """
    node, broker_epoch = replica
    leader = partition.leader
    if leader is None:
        return ErrorCode.NONE  # what is the matter, the partition itself says
    if node not in leader.followers:
        return _unknown_follower(wanted)
    registered = broker.image.brokers.get(node)
    if broker_epoch != -1 and registered is not None and broker_epoch < registered.epoch:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER  # sent before the broker came back (KIP-903)
    return ErrorCode.NONE


def _unknown_follower(wanted: wire.FetchPartition) -> ErrorCode:
    """Our metadata may simply be behind: with an epoch that matches, let it try again."""
    unknown = wanted.current_leader_epoch == -1
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if unknown else ErrorCode.UNKNOWN_LEADER_EPOCH


def _note_followers(asked: list[Asked], replica: tuple[int, int]) -> None:
    """A fetch acknowledges what came before its offset, also when it then has to wait.

    Rules: replication.md#a-fetch-acknowledges.
    """
    for each in asked:
        partition, wanted = each.partition, each.wanted
        if (
            partition is not None
            and partition.log is not None
            and each.refusal is ErrorCode.NONE
            and partition.refusal(wanted.current_leader_epoch) is ErrorCode.NONE
            and partition.log.start <= wanted.fetch_offset <= partition.log.end
            and parting(partition.log, wanted) is None
        ):
            partition.fetched_by(
                FollowerFetch(replica[0], wanted.fetch_offset, wanted.log_start_offset, replica[1])
            )


def parting(log: Log, wanted: wire.FetchPartition) -> wire.EpochEndOffset | None:
    """Where the reader's log parts from this one; None: nowhere.

    UNKNOWN_EPOCH when its last epoch is one that this log has never heard of.
    Rules: replication.md#diverging-logs.
    """
    last = wanted.last_fetched_epoch
    if last < 0 or (last == log.latest_epoch and wanted.fetch_offset <= log.end):
        return None
    epoch, end = log.epoch_end(last)
    if end == -1:
        return UNKNOWN_EPOCH
    if epoch < last or end < wanted.fetch_offset:
        return wire.EpochEndOffset(epoch=epoch, end_offset=end)
    return None


def _name_of(broker: Broker, topic_id: bytes) -> str:
    topic = broker.image.topics_by_id.get(topic_id)
    return topic.name if topic is not None else ""


def _refused(index: int, error: ErrorCode) -> wire.PartitionData:
    return wire.PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=NOTHING,
    )
