"""Fetch (key 1): records from offsets on, for consumers and for followers.

Served: 4 to 18. Version 11 brought the rack, and with it followers serve consumers too: what is
committed as far as they know (KIP-392). 12 the diverging epoch, 13 topic ids, 15 the replica's
broker epoch, 16 the leaders' addresses, 18 which high watermark a follower knows (here it hears of
a later one at once, also when it does not say). From 7 on there are sessions, in which a request
names what has changed and an answer tells what has (rules: fetch.md#fetch-sessions). What is named
twice counts once (rules: connections.md#what-is-named-twice).

Each partition that may have something to tell is looked at once. If all that was seen is enough, it
is the answer; if not, the request waits, and looks at what changes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

from holdfast.core.metadata.topic_names import NAME_LENGTH_MAX
from holdfast.core.replica.replication import LastFetch
from holdfast.core.replica.session_cache import FINAL, FULL, NO_SESSION
from holdfast.log.errors import CorruptFileError, StorageError
from holdfast.node.api.fetch_readers import (
    Asked,
    ConsumerReader,
    FollowerReader,
    Look,
    Refused,
    Seen,
)
from holdfast.node.api.fetch_session import FetchSession
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
READ_BYTES_MAX = 8 * 1024 * 1024  # in one go: while it is read nothing else is done
NOTHING = b""
# Refused before any replica is looked for, and told with an empty list where others have none.
NOT_SOUGHT = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Reader: TypeAlias = ConsumerReader | FollowerReader


decode_request = hot.decode_fetch  # by hand: this is the hot path


class Fetch:
    """One request, and what there is for it."""

    __slots__ = (
        "_available",
        "_broker",
        "_context",
        "_deferred",
        "_forget",
        "_fresh",
        "_reader",
        "_request",
        "_session",
    )

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        request: wire.FetchRequest,
        reader: Reader,
        session: FetchSession,
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._reader = reader
        self._session = session
        self._available = 0  # bytes for it, as far as was looked
        self._fresh: dict[Asked, None] = {}  # has changed since it was looked at

    @property
    def sender(self) -> Hashable:
        """Whose it is: its connection."""
        return self._context.sender

    def begin(self) -> wire.FetchResponse | None:
        """Take the request for what it says; the answer, if there is enough for one.

        Rules: fetch.md#when-to-answer.
        """
        session, request = self._session, self._request
        look = self._look(session.stirred)
        self._reader.begin(look, session.last_fetch)
        for asked in look:
            asked.available = 0
        if (
            request.max_wait_ms <= 0
            or request.min_bytes <= 0
            or (not look and not session.size)
            or self._is_enough(look)
        ):
            return self._answer(look)
        if session.session_id:
            for asked, seen in look.items():
                session.saw(asked, seen)
        return None

    def park(self) -> Deferred:
        """Wait for any of its partitions to change, as long as the client allows."""
        session, wait_ms = self._session, min(self._request.max_wait_ms, WAIT_MS_MAX)
        most = min(self._request.max_bytes, self._broker.settings.fetch_max_bytes)
        self._deferred = self._context.defer(
            max(0, min(session.bytes_max, most)), 0 if session.session_id else session.size
        )
        if not session.session_id:
            session.watch_all()
        session.parked = self
        self._forget = self._broker.waiting.park(self, (), wait_ms)
        self._deferred.lost = self._leave
        return self._deferred

    def touched(self, asked: Asked, key: Hashable) -> bool:
        """One of its partitions has changed."""
        self._fresh[asked] = None
        assert asked.watched is not None, "it could not be touched"
        return self._reader.waits_for(asked.watched, key)

    def ask(self) -> None:
        """Answer if what has changed makes it enough."""
        fresh, self._fresh = self._fresh, {}
        look = self._look(fresh)
        if self._is_enough(look):
            self._give(look)

    def try_complete(self) -> bool:
        """Nothing can have happened since it was looked at."""
        return False

    def expire(self) -> None:
        """Answer with what there is, also where the room has not told of it yet."""
        if self._session.session_id:
            self._session.hear()
        self._give({})

    def _give(self, look: Look) -> None:
        """Answer with what there is; some of it may have been looked at by now."""
        self._leave()
        stirred = self._session.stirred
        if len(look) < len(stirred):
            look = self._look(stirred)
        self._deferred.answer(self._answer(look))

    def _leave(self) -> None:
        """Wait no longer."""
        self._forget()
        self._session.parked = None
        if not self._session.session_id:
            self._session.unwatch()

    def _look(self, partitions: dict[Asked, None]) -> Look:
        """Look at each of these, as it is now."""
        look = self._reader.look
        return {
            asked: look(asked.found, asked.wanted)
            if isinstance(asked.found, Partition)
            else Refused(asked.found)
            for asked in partitions
        }

    def _is_enough(self, look: Look) -> bool:
        """Whether to answer now: enough bytes, or something that the client must hear at once."""
        # More than an answer can hold nobody has to wait for.
        enough = min(self._request.min_bytes, self._bytes_max())
        for asked, seen in look.items():
            if isinstance(seen, Refused) or seen.has_news:
                return True
            available, offset = 0, asked.wanted.fetch_offset
            if offset < seen.end and seen.is_readable:
                if enough <= 1:
                    return True
                try:
                    found = seen.log.bytes_between(offset, seen.end)
                except (StorageError, CorruptFileError):
                    return True  # the read says what is wrong
                available = min(found, asked.wanted.partition_max_bytes)
            self._available += available - asked.available
            asked.available = available
        return self._available >= enough

    def _bytes_max(self) -> int:
        """How large an answer may be, but for one larger batch."""
        settings = self._broker.settings
        return min(self._request.max_bytes, settings.fetch_max_bytes, READ_BYTES_MAX)

    def _answer(self, look: Look) -> wire.FetchResponse:
        """Read what there is. Rules: fetch.md#size-of-an-answer."""
        session = self._session
        budget = min(self._bytes_max(), self._reader.room)
        if self._broker.runtime.provoke("fetch.one-batch"):
            budget = 0  # one batch of the first partition that has any
        topics: dict[tuple[str, bytes], wire.FetchableTopicResponse] = {}
        first, is_kept = True, session.session_id != NO_SESSION
        for asked, seen in look.items():
            if isinstance(seen, Refused):
                data = _refused(asked.wanted.partition, seen)
            else:
                data = self._read(seen, asked.wanted, budget, minimum_one=first)
            if data.records:
                budget -= len(data.records)
                first = False
            if is_kept and not session.tell(asked, seen, data):
                continue
            topic = topics.get((asked.name, asked.topic_id))
            if topic is None:
                topic = topics[asked.name, asked.topic_id] = wire.FetchableTopicResponse(
                    topic=asked.name, topic_id=asked.topic_id
                )
            topic.partitions.append(data)
        response = wire.FetchResponse(
            session_id=session.session_id, responses=list(topics.values())
        )
        self._name_leaders(response)
        return response

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
        if self._context.version < FIRST_VERSION_WITH_ADDRESSES:
            return
        refused = []
        for topic in response.responses:
            for data in topic.partitions:
                if data.error_code in LED_ELSEWHERE:
                    name = topic.topic or self._broker.image.name_of(topic.topic_id)
                    refused.append((name, data.partition_index, data))
        if refused:
            nodes = name_leaders(self._broker, refused, self._context.client.listener)
            if isinstance(self._reader, ConsumerReader):
                response.node_endpoints = nodes  # brokers know each other by another listener


def handle(
    broker: Broker, context: RequestContext, request: wire.FetchRequest
) -> wire.FetchResponse | Deferred:
    """Answer at once when there is enough, else wait."""
    node, broker_epoch = hot.fetch_replica(request)
    session = _session(broker, context, request, node)
    if isinstance(session, ErrorCode):
        return wire.FetchResponse(error_code=session)
    reader: Reader = (
        ConsumerReader(broker, context, request.rack_id)
        if node < 0
        else FollowerReader(broker, context, node, broker_epoch)
    )
    session.stir_changed()
    size = session.size
    may_be_kept = True
    for topic in request.topics:
        # No topic has such a name, and sessions are bounded by their partitions.
        may_be_kept &= len(topic.topic) <= NAME_LENGTH_MAX
        for wanted in topic.partitions:
            session.ask_for(topic.topic, bytes(topic.topic_id), wanted)
    # Behind what is named, as in Apache Kafka: what is both is forgotten, where there is a session.
    for forgotten in request.forgotten_topics_data if session.session_id else ():
        for index in forgotten.partitions:
            gone = session.forget(forgotten.topic, bytes(forgotten.topic_id), index)
            if gone is not None:
                reader.leaves_out(gone)
    if reader.is_superseded or reader.broker_epoch != session.broker_epoch:
        session.broker_epoch = reader.broker_epoch
        session.stir_all()
    if session.session_id:
        if not may_be_kept or not _go_on(broker, session, size):
            broker.fetch_sessions.remove(session.session_id)
            return wire.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    elif request.session_epoch == FULL and session.size and may_be_kept:
        broker.fetch_sessions.admit(session, broker.runtime.clock.monotonic_ms())
        if session.session_id:
            session.last_fetch = LastFetch()
    _find(broker, reader, session)
    fetch = Fetch(broker, context, request, reader, session)
    return fetch.begin() or fetch.park()


def _session(
    broker: Broker, context: RequestContext, request: wire.FetchRequest, owner: int
) -> FetchSession | ErrorCode:
    """The session that a request goes on with, or a new one, be it for this request alone."""
    sessions, session_id, epoch = broker.fetch_sessions, request.session_id, request.session_epoch
    by_id = context.version >= FIRST_VERSION_WITH_IDS
    if epoch in (FULL, FINAL):
        if session_id:
            sessions.remove(session_id)
        return FetchSession(broker, owner, by_id=by_id)
    session = sessions.resume(session_id, epoch, owner, broker.runtime.clock.monotonic_ms())
    if isinstance(session, ErrorCode):
        return session
    assert isinstance(session, FetchSession), "only Fetch keeps sessions"
    if session.by_id != by_id:
        sessions.remove(session_id)
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    session.hear()
    if session.parked is not None:
        session.parked.expire()  # answers leave in the order of their requests
    return session


def _go_on(broker: Broker, session: FetchSession, size: int) -> bool:
    """Whether a session of `size` partitions may be as large as it is now; an empty one ends."""
    sessions = broker.fetch_sessions
    if session.size > size and sessions.is_crowded(session):
        return False
    if not session.size:
        sessions.remove(session.session_id)
        session.session_id = NO_SESSION
    return True


def _find(broker: Broker, reader: Reader, session: FetchSession) -> None:
    """Find each replica that is asked for, or why this reader may not use one."""
    partitions, by_id = broker.partitions, session.by_id
    name: str | None = None
    refused: ErrorCode | None = None
    for asked in session.stirred:
        index = asked.wanted.partition
        if by_id:
            found = partitions.find_by_id(asked.topic_id, index)
            asked.name = broker.image.name_of(asked.topic_id)
        else:
            found = partitions.find(asked.name, index)
        if asked.name != name:
            name = asked.name
            # Nobody may be refused an id that stands for nothing: it is unknown.
            refused = reader.refuses(name) if name or not by_id else None
        if refused is not None:
            asked.found = refused
        elif isinstance(found, Partition):
            asked.found = reader.admit(found, asked.wanted)
            if asked.watched is not found and session.session_id:
                session.watch(asked, found)
        else:
            asked.found = found


def _refused(index: int, refused: Refused) -> wire.PartitionData:
    return wire.PartitionData(
        partition_index=index,
        error_code=refused.error,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=refused.log_start,
        aborted_transactions=[] if refused.error in NOT_SOUGHT else None,
        records=NOTHING,
    )
