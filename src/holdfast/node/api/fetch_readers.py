"""What a partition has for whoever fetches from it: a consumer, or a follower. Not an API.

Owns what each of the two may see, must hear at once, and has to wait for. A look at a partition is
a value: the answer is made of it, and it is thrown away when the request looks again.

Rules: fetch.md#readable-end, fetch.md#out-of-range, replication.md#diverging-logs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from holdfast.config.node_keys import RACK_AWARE
from holdfast.core.replica.read_replica import preferred_read_replica
from holdfast.core.replica.replication import NO_SESSION, LastFetch
from holdfast.log.log import Log
from holdfast.node.broker.broker import Broker
from holdfast.node.broker.leading_replica import LeadingReplica
from holdfast.node.broker.replica import Partition
from holdfast.node.door.api_table import CLUSTER_ACTION
from holdfast.node.door.ledger import UNLIMITED
from holdfast.node.door.request_context import CLUSTER_NAME, RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import fetch as wire

FIRST_VERSION_WITH_RACKS = 11
FIRST_VERSION_WITH_DIVERGENCE = 12
UNKNOWN_EPOCH = wire.EpochEndOffset()


@dataclass(slots=True, eq=False)
class Asked:
    """One partition of a request: the replica here, or why there is none for this reader."""

    name: str
    topic_id: bytes
    wanted: wire.FetchPartition
    found: Partition | ErrorCode
    available: int = 0  # bytes that were there for it at the last look
    # High watermark and log start as its last answer said them; None: nothing yet, or an error.
    told: tuple[int, int] | None = None
    watched: Partition | None = None  # the replica whose changes are watched


class Refused(NamedTuple):
    """Why nothing can be read; -1: the log's start is not told."""

    error: ErrorCode
    log_start: int = -1


@dataclass(slots=True)
class Seen:
    """What a partition has for a consumer at this moment."""

    log: Log
    end: int  # of what it may see
    diverging: wire.EpochEndOffset | None
    preferred: int | None  # the follower that it should ask instead

    @property
    def has_news(self) -> bool:
        """Whether the reader must hear something at once that is no record."""
        return self.diverging is not None or self.preferred is not None

    @property
    def is_readable(self) -> bool:
        """Whether records may be given to it now."""
        return self.diverging is None and self.preferred is None

    def has_more(self, offset: int) -> bool:
        """Whether there is anything for who reads from `offset`, if it may have it or not."""
        return offset < self.end or self.diverging is not None or self.preferred is not None

    def answered(self, size: int) -> None:
        """An answer with so many bytes of records is on its way."""


@dataclass(slots=True)
class SeenByFollower(Seen):
    """What a partition has for a follower at this moment."""

    leading: LeadingReplica
    wanted: wire.FetchPartition
    reader: FollowerReader

    @property
    def has_news(self) -> bool:
        node, leading = self.reader.node, self.leading
        return (
            self.diverging is not None
            or leading.has_news_for(node, self.wanted.log_start_offset)
            or (self.reader.is_rack_aware and leading.has_committed_for(node))
        )

    @property
    def is_readable(self) -> bool:
        """Whether it is not throttled for now; one that is in sync never is (KIP-73)."""
        if self.diverging is not None:
            return False
        reader = self.reader
        return (
            not self.leading.is_throttled
            or reader.node in self.leading.state.isr
            or not reader.broker.leader_quota.is_exceeded(reader.now_ms())
        )

    def acknowledge(self, session: LastFetch) -> None:
        """It holds all before its offset, also when it then has to wait.

        Rules: replication.md#a-fetch-acknowledges.
        """
        wanted, reader = self.wanted, self.reader
        self.leading.fetched_by(
            reader.node,
            wanted.fetch_offset,
            wanted.log_start_offset,
            reader.broker_epoch,
            session,
        )

    def answered(self, size: int) -> None:
        if self.diverging is None:
            self.leading.told(self.reader.node)
        if self.leading.is_throttled:
            self.reader.broker.leader_quota.record(size, self.reader.now_ms())


Look: TypeAlias = Mapping[Asked, Seen | Refused]  # at partitions that were asked for


class ConsumerReader:
    """A consumer: it sees what is committed, also on a follower where its version allows that."""

    __slots__ = ("_broker", "_context", "_rack", "_rack_of")
    broker_epoch = -1
    is_superseded = False

    def __init__(self, broker: Broker, context: RequestContext, rack: str) -> None:
        self._broker = broker
        self._context = context
        self._rack = rack
        self._rack_of: dict[int, str | None] | None = None  # of whom this client can reach

    @property
    def room(self) -> int:
        """How many bytes it may be given, by what is held for clients; a first batch always."""
        client = self._context.client
        return self._broker.budgets.of(client.listener).answers.room(client.host)

    def refuses(self, topic: str) -> ErrorCode | None:
        """Return why it may not read this topic; None: it may."""
        refused = refusal(self._context, topic)
        return None if refused is None else refused.code

    def admit(self, found: Partition, _wanted: wire.FetchPartition) -> Partition | ErrorCode:
        """Any partition of the topic is as good as another."""
        return found

    def begin(self, look: Look, session: LastFetch) -> None:
        """What a consumer asks for says nothing of any replica."""

    def leaves_out(self, asked: Asked) -> None:
        """Nor does what it asks for no longer."""

    def waits_for(self, _partition: Partition, _key: Hashable) -> bool:
        """Whether this change is one to answer for: it sees what is committed."""
        return True

    def look(self, partition: Partition, wanted: wire.FetchPartition) -> Seen | Refused:
        """Look at a partition."""
        epoch, version = wanted.current_leader_epoch, self._context.version
        if version >= FIRST_VERSION_WITH_RACKS:
            log = partition.as_nearest(epoch)
        else:
            leading = partition.as_leader(epoch)
            log = leading.log if isinstance(leading, LeadingReplica) else leading
        if not isinstance(log, Log):
            return Refused(log)
        place = compare(log, wanted, version)
        if isinstance(place, Refused):
            return place
        preferred = self._preferred(partition, wanted) if self._rack and place is None else None
        return Seen(log, log.high_watermark, place, preferred)

    def _preferred(self, partition: Partition, wanted: wire.FetchPartition) -> int | None:
        """Which follower this consumer should ask instead, if any."""
        selector = self._broker.settings.replica_selector_class
        if selector != RACK_AWARE or partition.leading is None:
            return None
        if self._rack_of is None:
            self._rack_of = {
                broker.broker_id: broker.rack
                for broker in self._broker.image.alive_brokers()
                if broker.endpoint(self._context.client.listener) is not None
            }
        return preferred_read_replica(
            partition.leading.state, wanted.fetch_offset, self._rack, self._rack_of.get
        )


class FollowerReader:
    """A follower: it sees all that its leader has, and its fetch acknowledges."""

    __slots__ = (
        "_context",
        "_refusal",
        "broker",
        "broker_epoch",
        "is_rack_aware",
        "is_superseded",
        "node",
    )
    room = UNLIMITED  # what clients leave unread must not hold replication up

    def __init__(
        self, broker: Broker, context: RequestContext, node: int, broker_epoch: int
    ) -> None:
        self.broker = broker
        self.node = node
        self.broker_epoch = broker_epoch
        self.is_rack_aware = broker.settings.replica_selector_class == RACK_AWARE
        registered = broker.image.brokers.get(node)
        # Whether it was sent before the broker came back (KIP-903).
        self.is_superseded = (
            broker_epoch != -1 and registered is not None and broker_epoch < registered.epoch
        )
        self._context = context
        # Kafka says so of each partition, too.
        follows = refusal(context, CLUSTER_NAME, CLUSTER_ACTION) is None
        self._refusal = None if follows else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def now_ms(self) -> int:
        return self.broker.runtime.clock.monotonic_ms()

    def refuses(self, _topic: str) -> ErrorCode | None:
        """A broker follows whatever topic it holds, and nobody else follows any."""
        return self._refusal

    def admit(self, found: Partition, wanted: wire.FetchPartition) -> Partition | ErrorCode:
        """Return the partition, or why this broker may not follow there, as it is registered.

        Rules: replication.md#who-may-follow.
        """
        if found.leading is None:
            return found  # what is the matter, the partition itself says
        if self.node not in found.leading.state.followers:
            return _unknown_follower(wanted)
        if self.is_superseded:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return found

    def begin(self, look: Look, session: LastFetch) -> None:
        """Its fetch has come, and is taken for what it says, once."""
        for asked, seen in look.items():
            if isinstance(seen, SeenByFollower) and seen.diverging is None:
                seen.acknowledge(session)
            else:
                self.leaves_out(asked)
        if session is not NO_SESSION:
            session.at_ms = self.now_ms()

    def leaves_out(self, asked: Asked) -> None:
        """Its fetches say nothing any more of how far it is here."""
        if asked.watched is not None and asked.watched.leading is not None:
            asked.watched.leading.state.left_out(self.node)

    def waits_for(self, partition: Partition, key: Hashable) -> bool:
        """Whether this change is one to answer for.

        How far it is committed is only if its own consumers wait for that.
        """
        return self.is_rack_aware or key == partition.key

    def look(self, partition: Partition, wanted: wire.FetchPartition) -> SeenByFollower | Refused:
        """Look at a partition."""
        leading = partition.as_leader(wanted.current_leader_epoch)
        if not isinstance(leading, LeadingReplica):
            return Refused(leading)
        if self.node not in leading.state.followers:  # taken away while its fetch was parked
            return Refused(_unknown_follower(wanted))
        log = leading.log
        place = compare(log, wanted, self._context.version)
        if isinstance(place, Refused):
            return place
        return SeenByFollower(log, log.end, place, None, leading, wanted, self)


def _unknown_follower(wanted: wire.FetchPartition) -> ErrorCode:
    """Our metadata may simply be behind: with an epoch that matches, let it try again."""
    unknown = wanted.current_leader_epoch == -1
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if unknown else ErrorCode.UNKNOWN_LEADER_EPOCH


def compare(
    log: Log, wanted: wire.FetchPartition, version: int
) -> Refused | wire.EpochEndOffset | None:
    """Return where the reader's log parts from this one, None: nowhere; or the refusal.

    An offset that is not in the log is refused with where it starts.
    """
    diverging = parting(log, wanted) if version >= FIRST_VERSION_WITH_DIVERGENCE else None
    offset = wanted.fetch_offset
    is_beyond = diverging is None and offset > log.end
    if offset < log.start or is_beyond or diverging is UNKNOWN_EPOCH:
        return Refused(ErrorCode.OFFSET_OUT_OF_RANGE, log.start)
    return diverging


def parting(log: Log, wanted: wire.FetchPartition) -> wire.EpochEndOffset | None:
    """Where the reader's log parts from this one; None: nowhere.

    UNKNOWN_EPOCH when its last epoch is one that this log has never heard of.
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
