"""Leader-side replication of one partition: the ISR, the high watermark, and what to ask for.

Owns what the leader knows in one leader epoch and every rule about it. Numbers in, values out:
it never touches a log, a socket, a clock or the metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from holdfast.core.metadata.image import UNASSIGNED_DIRECTORY, Broker, Partition
from holdfast.wire.errors import ErrorCode

NEVER_MS = -(1 << 62)  # a monotonic time before every other
UNKNOWN_BROKER_EPOCH = -1


@dataclass(slots=True, eq=False)
class LastFetch:
    """When the last request of a fetch session came, which says the same of all that it left out.

    Whoever keeps the session looks at each partition that has changed since its last request. So
    at that moment, of those that it did not look at, nothing was other than before.
    """

    at_ms: int = NEVER_MS
    is_open: bool = True  # more may come


NO_SESSION = LastFetch(is_open=False)


@dataclass(slots=True)
class Follower:
    """What the leader knows of one other replica. Times are monotonic milliseconds."""

    log_end: int = -1  # -1: unknown in this epoch
    log_start: int = -1
    told_start: int = -1  # leader's log start as of the last answer to this follower
    told_high_watermark: int = -1  # leader's high watermark as of the last answer to this follower
    fetched_ms: int = NEVER_MS  # when a fetch last named it
    leader_end_at_fetch: int = 0  # the leader's log end at that moment
    caught_up_ms: int = NEVER_MS  # as of that moment
    session: LastFetch = NO_SESSION  # in which it need not be named
    directory: bytes = UNASSIGNED_DIRECTORY  # where it lies on its broker, as the metadata has it
    # Its broker is registered, unfenced, not shutting down and has that directory.
    eligible: bool = True
    broker_epoch: int = UNKNOWN_BROKER_EPOCH  # as its last fetch claimed
    registered_epoch: int = UNKNOWN_BROKER_EPOCH  # as the metadata has it

    @property
    def last_fetch_ms(self) -> int:
        """When it last fetched, by name or not."""
        return max(self.fetched_ms, self.session.at_ms)

    @property
    def last_caught_up_ms(self) -> int:
        """When it last had all that there was: it still had at each fetch that left it out."""
        if self.log_end >= self.leader_end_at_fetch:
            return max(self.caught_up_ms, self.session.at_ms)
        return self.caught_up_ms

    def settle(self) -> None:
        """Write down what its session says so far."""
        self.caught_up_ms, self.fetched_ms = self.last_caught_up_ms, self.last_fetch_ms

    @property
    def may_count(self) -> bool:
        """Return whether the ISR may hold this follower.

        It must not be fenced (KIP-841). Its broker epoch must be the registered one or unknown
        (KIP-903).
        """
        return self.eligible and (
            self.broker_epoch in (UNKNOWN_BROKER_EPOCH, self.registered_epoch)
        )


class Change(Enum):
    EXPAND = auto()
    SHRINK = auto()
    RECOVER = auto()  # the same ISR, of a leader that has recovered from an unclean election


@dataclass(frozen=True, slots=True)
class Proposal:
    """An ISR that the controller has been asked for and has not yet granted."""

    change: Change
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int  # the one that it would replace


class Reaction(Enum):
    """What to do after the controller refused an ISR (rules: replication.md#a-refused-isr)."""

    FORGET = auto()  # nothing was applied: go back to the committed ISR
    AWAIT_METADATA = auto()  # the controller has newer state: stay pending until metadata comes
    RETRY = auto()  # the outcome is unknown: send the same request again


_FORGET = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
_AWAIT = (
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)


@dataclass(slots=True, kw_only=True)
class Leader:
    """The leader of one partition in one leader epoch."""

    node: int
    epoch: int
    epoch_start: int  # the log end when this epoch began
    partition_epoch: int
    replicas: tuple[int, ...]  # assignment, in preference order, this node included
    isr: tuple[int, ...]  # committed by the controller, this node included
    min_insync: int  # effective: at most the number of replicas
    lag_ms_max: int
    log_end: int
    high_watermark: int
    min_insync_configured: int
    pending: Proposal | None = None
    followers: dict[int, Follower] = field(default_factory=dict)

    @classmethod
    def elected(
        cls,
        decided: Partition,
        *,
        min_insync: int,
        lag_ms_max: int,
        log_end: int,
        high_watermark: int,
        now_ms: int,
    ) -> Leader:
        """Begin a leader epoch: nothing that was known of the followers counts any more.

        Rules: replication.md#new-leader.
        """
        node, replicas, isr = decided.leader, decided.replicas, decided.isr
        assert node in isr, "a leader is in its own ISR"
        assert high_watermark <= log_end, "the high watermark never passes the log end"
        leader = cls(
            node=node,
            epoch=decided.leader_epoch,
            epoch_start=log_end,
            partition_epoch=decided.partition_epoch,
            replicas=replicas,
            isr=isr,
            min_insync=min(min_insync, len(replicas)),
            min_insync_configured=min_insync,
            lag_ms_max=lag_ms_max,
            log_end=log_end,
            high_watermark=high_watermark,
        )
        for other in replicas:
            if other != node:
                caught_up_ms = now_ms if other in isr else NEVER_MS
                leader.followers[other] = Follower(
                    caught_up_ms=caught_up_ms, directory=decided.directory_of(other)
                )
        return leader

    # -- what has happened ---------------------------------------------------------------------

    def appended(self, log_end: int, now_ms: int) -> bool:
        """Note the new log end. True when the high watermark moved."""
        assert log_end >= self.log_end, "a leader's log only grows"
        self.log_end = log_end
        return self.advance(now_ms)

    def fetched(
        self,
        node: int,
        offset: int,
        log_start: int,
        broker_epoch: int,
        now_ms: int,
        session: LastFetch = NO_SESSION,
    ) -> bool:
        """Note a fetch by a follower: it holds all before `offset`. True when the HW moved.

        Called once the fetch is known to agree with our log, and never for one that is answered
        with a diverging epoch.
        Rules: replication.md#a-fetch-acknowledges, replication.md#caught-up.
        """
        follower = self.followers[node]
        if follower.session.at_ms > follower.fetched_ms:
            follower.settle()
        if offset >= self.log_end:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif offset >= follower.leader_end_at_fetch and follower.fetched_ms != NEVER_MS:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.log_end = offset
        follower.log_start = log_start
        follower.fetched_ms = now_ms
        follower.leader_end_at_fetch = self.log_end
        follower.broker_epoch = broker_epoch
        follower.session = session
        return self.advance(now_ms)

    def left_out(self, node: int) -> None:
        """Note that this follower's session goes on without this partition.

        From here on its fetches say nothing of it: else one that has set this partition aside
        would be taken for caught up for as long as it fetches others.
        """
        follower = self.followers.get(node)
        if follower is not None:
            follower.settle()
            follower.session = NO_SESSION

    def advance(self, now_ms: int) -> bool:
        """Raise the high watermark to the least log end of those that it waits for. True: it moved.

        Those are this leader, the committed ISR, a pending joiner, and each replica outside of the
        ISR that may join and was caught up within the lag time: the controller may have granted its
        joining, and this leader not know that yet. It stands still while the ISR is smaller than
        min ISR (KIP-966): what acks=1 wrote meanwhile stays invisible.
        Rules: replication.md#high-watermark.
        """
        if len(self.isr) < self.min_insync:
            return False
        candidate = self.log_end
        for node, follower in self.followers.items():
            if follower.log_end < candidate and (
                self.is_counted(node)
                or (follower.may_count and now_ms - follower.last_caught_up_ms <= self.lag_ms_max)
            ):
                candidate = follower.log_end
        assert candidate <= self.log_end
        if candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True

    def low_watermark(self, log_start: int) -> int:
        """The least log start of this leader and of all replicas that are alive.

        -1 while one of them has not fetched in this epoch. Rules: log.md#deleting-records.
        """
        starts = [each.log_start for each in self.followers.values() if each.eligible]
        return min(log_start, *starts) if starts else log_start

    # -- what may be asked ---------------------------------------------------------------------

    def is_counted(self, node: int) -> bool:
        """Whether `node` is in the maximal ISR: the committed one, and who is about to join."""
        return node in self.isr or (self.pending is not None and node in self.pending.isr)

    @property
    def maximal_isr_size(self) -> int:
        """The number of replicas that acknowledged records are on, a granted joiner included."""
        if self.pending is None or self.pending.change is Change.SHRINK:
            return len(self.isr)
        return len(self.pending.isr)

    @property
    def has_enough_replicas(self) -> bool:
        """Whether acks=all may be accepted: the committed ISR has at least min ISR members.

        Rules: produce.md#too-few-replicas.
        """
        return len(self.isr) >= self.min_insync

    def acknowledgement(self, required: int) -> ErrorCode | None:
        """Answer an acks=all append whose records end before `required`; None: not yet.

        Rules: produce.md#acknowledgement.
        """
        if self.high_watermark < required:
            return None
        if self.maximal_isr_size >= self.min_insync:
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def is_caught_up(self, node: int, now_ms: int) -> bool:
        """Whether a follower is in sync by Kafka's rule: at the log end, or there recently."""
        follower = self.followers[node]
        lag_ms = now_ms - follower.last_caught_up_ms
        return follower.log_end == self.log_end or lag_ms <= self.lag_ms_max

    def may_join(self, node: int, now_ms: int) -> bool:
        """Return whether a follower may be proposed for the ISR.

        It must reach the high watermark and the start of this leader epoch. Below min ISR the high
        watermark stands still, so a laggard could join and be thrown out again (KAFKA-19996). The
        follower must be caught up as well then. Rules: replication.md#joining-the-isr.
        """
        follower = self.followers[node]
        if self.pending is not None or node in self.isr or not follower.may_count:
            return False
        if follower.log_end < max(self.high_watermark, self.epoch_start):
            return False
        return self.has_enough_replicas or self.is_caught_up(node, now_ms)

    def propose_join(self, node: int, now_ms: int) -> Proposal | None:
        """The expansion by one follower, for the controller; None when it may not join."""
        if not self.may_join(node, now_ms):
            return None
        return self._propose(Change.EXPAND, (*self.isr, node))

    def propose_leave(self, now_ms: int) -> Proposal | None:
        """The shrinking by all who are out of sync; None when there are none or one is pending.

        Rules: replication.md#leaving-the-isr.
        """
        if self.pending is not None:
            return None
        kept = tuple(n for n in self.isr if n == self.node or self.is_caught_up(n, now_ms))
        return None if len(kept) == len(self.isr) else self._propose(Change.SHRINK, kept)

    def propose_recovered(self) -> Proposal | None:
        """Propose to the controller that recovery is over; None while a proposal is pending.

        This leader's log is all that is left, so there is nothing to recover from (rules:
        elections.md#recovery).
        """
        return None if self.pending is not None else self._propose(Change.RECOVER, self.isr)

    def _propose(self, change: Change, isr: tuple[int, ...]) -> Proposal:
        assert self.pending is None, "one proposal at a time"
        assert self.node in isr, "a leader never removes itself"
        self.pending = Proposal(change, isr, self.epoch, self.partition_epoch)
        return self.pending

    # -- what the controller said --------------------------------------------------------------

    def granted(self, isr: Iterable[int], partition_epoch: int, now_ms: int) -> bool:
        """Take over a committed ISR, from an answer or from the metadata, whichever is newer.

        True when the high watermark moved. An equal or older partition epoch changes nothing.
        Rules: replication.md#a-granted-isr.
        """
        if partition_epoch <= self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self.isr = tuple(isr)
        assert self.node in self.isr, "a leader is in its own ISR"
        self.pending = None
        return self.advance(now_ms)

    def refused(self, proposal: Proposal, error: ErrorCode) -> Reaction:
        """Say what a refusal means for `proposal`."""
        if self.pending is not proposal:
            return Reaction.AWAIT_METADATA  # overtaken by the metadata: nothing is left to do
        if error in _FORGET:
            self.pending = None
            return Reaction.FORGET
        return Reaction.AWAIT_METADATA if error in _AWAIT else Reaction.RETRY

    def reassigned(self, decided: Partition) -> None:
        """Take over a changed assignment, or other directories, in the same leader epoch."""
        replicas = decided.replicas
        assert self.node in replicas, "a leader is one of its replicas"
        self.replicas = replicas
        self.min_insync = min(self.min_insync_configured, len(replicas))
        for node in [n for n in self.followers if n not in replicas]:
            del self.followers[node]
        for node in replicas:
            if node != self.node:
                follower = self.followers.setdefault(node, Follower())
                follower.directory = decided.directory_of(node)

    def set_min_insync(self, min_insync: int) -> None:
        """Take over a changed min.insync.replicas."""
        self.min_insync = min(min_insync, len(self.replicas))
        self.min_insync_configured = min_insync

    def registered(self, brokers: Mapping[int, Broker]) -> None:
        """Note which followers are alive, by what is registered, and have their directory."""
        for node, follower in self.followers.items():
            broker = brokers.get(node)
            follower.registered_epoch = UNKNOWN_BROKER_EPOCH if broker is None else broker.epoch
            follower.eligible = (
                broker is not None and broker.active and broker.has_directory(follower.directory)
            )
