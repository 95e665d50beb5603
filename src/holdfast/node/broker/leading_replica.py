"""A replica that leads: what its followers and producers do to it, in one leader epoch.

Performs on the log what `core.replica.replication` decides, and tells the waiting room. One is made
for each leader epoch, and let go when that is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple, Protocol

from holdfast.config.topic import TopicSettings
from holdfast.core.metadata import image
from holdfast.core.metadata.image import PartitionKey
from holdfast.core.replica.replication import NO_SESSION, LastFetch, Leader, Proposal, Reaction
from holdfast.core.replica.throttle import Throttled
from holdfast.log.errors import StorageError
from holdfast.log.log import Log
from holdfast.node.door.waiting_room import OffsetQueue, WaitingRoom
from holdfast.runtime.ports import Clock
from holdfast.wire.errors import ErrorCode

logger = logging.getLogger("holdfast.partition")

ALL_COMMITTED = -1  # DeleteRecords: as far as the high watermark
_LAST_OFFSET_DELTA = Struct(">i")  # at byte 23 of a batch


class Appended(NamedTuple):
    """What came of one produced batch."""

    error: ErrorCode
    base_offset: int = -1
    append_time_ms: int = -1  # of a duplicate: when it was first appended
    required: int = -1  # acks=all is answered when the high watermark is here


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a broker's replicas share."""

    node: int
    lag_ms_max: int  # replica.lag.time.max.ms
    clock: Clock
    waiting: WaitingRoom
    propose: Callable[[LeadingReplica, Proposal], None]  # an ISR, to the controller


class Held(Protocol):
    """The replica that leads, as far as it matters here."""

    leading: LeadingReplica | None
    key: PartitionKey
    committed_key: Hashable
    settings: TopicSettings
    throttled: Throttled
    acknowledgements: OffsetQueue


class LeadingReplica:
    """The log of a leader, and what it knows of its followers."""

    __slots__ = ("_clock", "_held", "_surroundings", "_waiting", "key", "log", "state")

    def __init__(
        self, held: Held, surroundings: Surroundings, log: Log, decided: image.Partition
    ) -> None:
        """Begin the leader epoch that was decided."""
        # Before any append, so that two elections in a row leave a mark each (rules:
        # replication.md#new-leader).
        log.start_epoch(decided.leader_epoch)
        self.log = log
        self.state = Leader.elected(
            decided,
            min_insync=held.settings.min_insync_replicas,
            lag_ms_max=surroundings.lag_ms_max,
            log_end=log.end,
            high_watermark=log.high_watermark,
            now_ms=surroundings.clock.monotonic_ms(),
        )
        self._held = held
        self.key = held.key
        self._surroundings = surroundings
        self._clock = surroundings.clock
        self._waiting = surroundings.waiting

    def __repr__(self) -> str:
        return repr(self._held)

    def describe(self) -> str:
        """Say how it leads, for people to read."""
        state = self.state
        return (
            f"leads in epoch {state.epoch} from offset {state.epoch_start}, high watermark "
            f"{self.log.high_watermark}, ISR {','.join(map(str, state.isr))}"
        )

    @property
    def is_current(self) -> bool:
        """Whether it leads still, in this epoch, and its disk works."""
        return self._held.leading is self

    @property
    def is_throttled(self) -> bool:
        """Whether followers that are not in sync have to wait for the quota (KIP-73)."""
        return self._held.throttled.as_leader

    # -- produce -------------------------------------------------------------------------------

    def append(self, batch: memoryview, acks: int) -> Appended:
        """Append one validated batch; nothing unless the error is NONE."""
        leader, log = self.state, self.log
        if acks == -1 and not leader.has_enough_replicas:
            return Appended(ErrorCode.NOT_ENOUGH_REPLICAS)
        check = log.check_producer(batch)
        if check.error:
            return Appended(check.error)
        if check.duplicate_offset is not None:
            # Answered as the first time, and for acks=all not before it is committed.
            (last_offset_delta,) = _LAST_OFFSET_DELTA.unpack_from(batch, 23)
            first, stamp = check.duplicate_offset, check.duplicate_timestamp
            return Appended(ErrorCode.NONE, first, stamp, first + last_offset_delta + 1)
        try:
            base_offset = log.append_as_leader(batch, leader.epoch)
        except StorageError as error:
            if not error.is_offline:  # else the directory has told it, once for all its replicas
                logger.error("%s: %s", self, error)  # noqa: TRY400 - the reason is the disk's
            return Appended(ErrorCode.KAFKA_STORAGE_ERROR)
        if leader.appended(log.end, self._clock.monotonic_ms()):
            self._high_watermark_moved()
        self._waiting.wake(self._held.key)
        return Appended(ErrorCode.NONE, base_offset, -1, log.end)

    # -- deleting what is old ------------------------------------------------------------------

    def delete_before(self, offset: int) -> tuple[ErrorCode, int]:
        """Delete all before `offset`; -1: all that is committed.

        It is durable once the log's `kept_start` is there, of which who waits for the partition is
        told; `low_watermark` says how far the others are. Return an error, and the offset in force
        after -1 is resolved.
        """
        log = self.log
        policy = self._held.settings.cleanup_policy
        if "compact" in policy and "delete" not in policy:  # an empty policy allows it
            return ErrorCode.POLICY_VIOLATION, -1
        wanted = log.high_watermark if offset == ALL_COMMITTED else offset
        if not 0 <= wanted <= log.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE, -1
        try:
            log.advance_start(wanted, for_good=True)
        except StorageError as error:
            logger.error("%s: %s", self, error)  # noqa: TRY400 - the reason is the disk's
            return ErrorCode.KAFKA_STORAGE_ERROR, -1
        return ErrorCode.NONE, wanted

    @property
    def low_watermark(self) -> int:
        """Where the log starts on every replica that is alive; -1: unknown."""
        return self.state.low_watermark(self.log.start)

    # -- followers -----------------------------------------------------------------------------

    def fetched_by(
        self,
        node: int,
        offset: int,
        log_start: int,
        broker_epoch: int,
        session: LastFetch = NO_SESSION,
    ) -> None:
        """A follower has fetched, and was not told to truncate: it holds all before its offset."""
        leader, now_ms = self.state, self._clock.monotonic_ms()
        wake, committed_key = self._waiting.wake, self._held.committed_key
        follower = leader.followers[node]
        if log_start != follower.log_start:
            wake(committed_key)  # who deletes records waits for this
        if follower.session is not session and follower.session.is_open:
            # A request that came late, of another connection, say: what it tells may be of before.
            # The session in which this partition is left out has to look at it once more.
            wake(self._held.key)
        if leader.fetched(node, offset, log_start, broker_epoch, now_ms, session):
            self._high_watermark_moved()
            wake(committed_key)
        proposal = leader.propose_join(node, now_ms)
        if proposal is not None:
            self._surroundings.propose(self, proposal)
            self._isr_changed(moved=False)

    def has_news_for(self, node: int, log_start: int) -> bool:
        """Whether a follower should hear at once that the log starts later than it believes."""
        return log_start < self.log.start > self.state.followers[node].told_start

    def has_committed_for(self, node: int) -> bool:
        """Whether a follower has not been told of the high watermark as it is.

        Its consumers wait for that where they may read from followers.
        """
        return self.state.followers[node].told_high_watermark < self.state.high_watermark

    def told(self, node: int) -> None:
        """An answer to this follower is on its way."""
        follower = self.state.followers.get(node)
        if follower is not None:  # it may have been taken away since it asked
            follower.told_start = self.log.start
            follower.told_high_watermark = self.state.high_watermark

    # -- the ISR -------------------------------------------------------------------------------

    def take_over(self, decided: image.Partition, brokers: Mapping[int, image.Broker]) -> None:
        """Take over what was decided in the same leader epoch."""
        self.state.reassigned(decided)
        self.state.registered(brokers)
        self.isr_granted(decided.isr, decided.partition_epoch)

    def say_recovered(self, decided: image.Partition) -> None:
        """Propose that recovery is over if the metadata says RECOVERING.

        This leader's log is all that is left (rules: elections.md#recovery).
        """
        if (
            decided.recovery_state is image.RecoveryState.RECOVERING
            and decided.partition_epoch == self.state.partition_epoch
        ):
            proposal = self.state.propose_recovered()
            if proposal is not None:
                self._surroundings.propose(self, proposal)

    def configured(self) -> None:
        """The settings have changed."""
        self.state.set_min_insync(self._held.settings.min_insync_replicas)
        self._isr_changed(moved=self.state.advance(self._clock.monotonic_ms()))

    def shrink_if_lagging(self) -> None:
        """Ask to remove whoever is out of sync; called every half lag time."""
        now_ms = self._clock.monotonic_ms()
        proposal = self.state.propose_leave(now_ms)
        if proposal is not None:
            logger.info(
                "%s: out of sync, ISR %s should become %s",
                self, ",".join(map(str, self.state.isr)), ",".join(map(str, proposal.isr)),
            )  # fmt: skip
            self._surroundings.propose(self, proposal)
        elif self.state.advance(now_ms):  # a replica that was near may have fallen behind
            self._high_watermark_moved()
            self._waiting.wake(self._held.committed_key)

    def isr_refused(self, proposal: Proposal, error: ErrorCode) -> Reaction:
        """The controller's answer to a proposal: not so."""
        reaction = self.state.refused(proposal, error)
        if reaction is Reaction.FORGET:
            # Whoever may join asks anew with its next fetch, which may not name this partition.
            self._waiting.wake(self._held.key)
        return reaction

    def isr_granted(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller's answer to a proposal: the ISR is as given."""
        self._isr_changed(
            moved=self.state.granted(isr, partition_epoch, self._clock.monotonic_ms())
        )

    def brokers_changed(self, brokers: Mapping[int, image.Broker]) -> None:
        """Learn which brokers are alive, each with its epoch and its directories."""
        self.state.registered(brokers)
        self._isr_changed(moved=self.state.advance(self._clock.monotonic_ms()))

    def _isr_changed(self, *, moved: bool) -> None:
        if moved:
            self._high_watermark_moved()
        self._waiting.wake(self._held.key)

    def _high_watermark_moved(self) -> None:
        self.log.high_watermark = self.state.high_watermark
        if self._held.acknowledgements:
            self._held.acknowledgements.release(self.state.high_watermark)
