"""One replica that this broker holds: its log joined with its role.

Performs on the log what `core.replication` decides, and tells the waiting room. Every change of
state is synchronous. It knows no other broker, and nothing of how records travel.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from struct import Struct
from typing import NamedTuple

from holdfast.config.topic import TopicSettings
from holdfast.core import image
from holdfast.core.replication import Leader, Proposal
from holdfast.core.throttle import is_throttled
from holdfast.log.errors import StorageError
from holdfast.log.log import Log
from holdfast.node.waiting import OffsetQueue, WaitingRoom
from holdfast.runtime.ports import Clock
from holdfast.wire.batch_header import HEADER_SIZE, read_header
from holdfast.wire.errors import ErrorCode

logger = logging.getLogger("holdfast.partition")

ALL_COMMITTED = -1  # DeleteRecords: as far as the high watermark
_LAST_OFFSET_DELTA = Struct(">i")  # at byte 23 of a batch

PartitionKey = tuple[bytes, int]  # topic id, partition number


class Appended(NamedTuple):
    """What came of one produced batch."""

    error: ErrorCode
    base_offset: int = -1
    append_time_ms: int = -1  # of a duplicate: when it was first appended
    required: int = -1  # acks=all is answered when the high watermark is here


class FollowerFetch(NamedTuple):
    """Who fetches as a follower, and what its request says about its log."""

    node: int
    offset: int
    log_start: int
    broker_epoch: int


class Throttled(NamedTuple):
    """Whether this replica's part in replication is throttled, in each role."""

    as_leader: bool
    as_follower: bool


def _throttled(settings: TopicSettings, index: int, node: int) -> Throttled:
    return Throttled(
        is_throttled(settings.leader_replication_throttled_replicas, index, node),
        is_throttled(settings.follower_replication_throttled_replicas, index, node),
    )


class Partition:
    """A replica. Without a log its directory is offline, and it answers KAFKA_STORAGE_ERROR."""

    def __init__(
        self,
        *,
        node: int,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log | None,
        settings: TopicSettings,
        lag_ms_max: int,
        clock: Clock,
        waiting: WaitingRoom,
        propose: Callable[[Partition, Proposal], None],
    ) -> None:
        self.node = node
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.key: PartitionKey = (topic_id, index)
        # Woken when nothing but the high watermark has moved, which no follower waits for.
        self.committed_key = ("committed", topic_id, index)
        self.log = log
        self.settings = settings
        self.throttled = _throttled(settings, index, node)
        self.lag_ms_max = lag_ms_max
        self.leader: Leader | None = None  # what this broker knows while it leads
        self.held = True
        self.leader_id = image.NO_LEADER
        self.leader_epoch = -1
        # Whether our high watermark is that of what we hold. What we find may lie above what was
        # cut off and is back since a power cut, until a leader has compared it.
        self.is_compared = False
        self.acknowledgements = OffsetQueue()
        self._clock = clock
        self._waiting = waiting
        self._propose = propose

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    # -- role ----------------------------------------------------------------------------------

    def lead(self, decided: image.Partition, brokers: Mapping[int, tuple[bool, int]]) -> None:
        """Become the leader in a new epoch, or take over a change within the same one."""
        now_ms = self._clock.monotonic_ms()
        if self.leader is not None and self.leader.epoch == decided.leader_epoch:
            self.leader.reassigned(decided.replicas)
            self.leader.registered(brokers)
            moved = self.leader.granted(decided.isr, decided.partition_epoch, now_ms)
            self._isr_changed(moved=moved)
            self._say_recovered(decided)  # the last word of it may have been overtaken
            return
        if self.log is None:  # perhaps since it was elected: what changes here is not for it
            self.leader_id, self.leader_epoch = self.node, decided.leader_epoch
            return
        assert decided.leader_epoch > self.leader_epoch, f"{self}: a leader epoch came twice"
        self.leader_id = self.node
        self.leader_epoch = decided.leader_epoch
        self.is_compared = True
        # Before any append, so that two elections in a row leave a mark each (rules:
        # replication.md#new-leader).
        self.log.start_epoch(decided.leader_epoch)
        self.leader = Leader.elected(
            node=self.node,
            epoch=decided.leader_epoch,
            partition_epoch=decided.partition_epoch,
            replicas=decided.replicas,
            isr=decided.isr,
            min_insync=self.settings.min_insync_replicas,
            lag_ms_max=self.lag_ms_max,
            log_end=self.log.end,
            high_watermark=self.log.high_watermark,
            now_ms=now_ms,
        )
        self.leader.registered(brokers)
        logger.info(
            "%s: leads in epoch %d from offset %d, high watermark %d, ISR %s",
            self, decided.leader_epoch, self.log.end, self.log.high_watermark,
            ",".join(map(str, decided.isr)),
        )  # fmt: skip
        self._isr_changed(moved=self.leader.advance(now_ms))
        self._say_recovered(decided)

    def _say_recovered(self, decided: image.Partition) -> None:
        """What this leader has is what there is (rules: elections.md#recovery)."""
        assert self.leader is not None, "only a leader recovers"
        recovering = decided.recovery_state is image.RecoveryState.RECOVERING
        if recovering and decided.partition_epoch == self.leader.partition_epoch:
            proposal = self.leader.propose_recovered()
            if proposal is not None:
                self._propose(self, proposal)

    def follow(self, leader_id: int, leader_epoch: int) -> None:
        """Become a follower, or learn of another leader; -1: there is none at present."""
        if self.leader is not None:
            self.leader = None
            self.acknowledgements.release_all()
        if leader_epoch != self.leader_epoch:
            logger.info("%s: follows %d in epoch %d", self, leader_id, leader_epoch)
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self._waiting.wake(self.key)

    def stop(self) -> None:
        """Hold the partition no longer: whoever waits is told to look elsewhere.

        From now on its log may be closed or gone.
        """
        self.held = False
        self.leader = None
        self.leader_id = image.NO_LEADER
        self.acknowledgements.release_all()
        self._waiting.wake(self.key)

    def fail(self) -> None:
        """The log directory went offline: the log is not touched again."""
        self.log = None
        self.leader = None
        self.acknowledgements.release_all()
        self._waiting.wake(self.key)

    def configure(self, settings: TopicSettings) -> None:
        """Take over changed settings."""
        self.settings = settings
        self.throttled = _throttled(settings, self.index, self.node)
        if self.log is not None:
            self.log.settings = settings
        if self.leader is not None:
            self.leader.set_min_insync(settings.min_insync_replicas)
            self._isr_changed(moved=self.leader.advance(self._clock.monotonic_ms()))

    def refusal(self, leader_epoch: int = -1, *, follower_serves: bool = False) -> ErrorCode:
        """Why this replica may not be used as the leader: NONE when it may.

        With `follower_serves` a follower may be used as well, to read what is committed, once it
        has heard from a leader. Rules: fetch.md#epoch-check, fetch.md#nearest-replica.
        """
        if leader_epoch not in {-1, self.leader_epoch}:
            older = leader_epoch < self.leader_epoch
            return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        if not self.held:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        serves = self.leader is not None or (follower_serves and self.is_compared)
        return ErrorCode.NONE if serves else ErrorCode.NOT_LEADER_OR_FOLLOWER

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark if self.log is not None else -1

    # -- produce -------------------------------------------------------------------------------

    def append(self, batch: memoryview, acks: int) -> Appended:
        """Append one validated batch as the leader; nothing unless the error is NONE."""
        leader, log = self.leader, self.log
        if leader is None or log is None:
            return Appended(self.refusal())
        if acks == -1 and not leader.has_enough_replicas:
            return Appended(ErrorCode.NOT_ENOUGH_REPLICAS)
        check = log.check_producer(batch)
        if check.error is not ErrorCode.NONE:
            return Appended(check.error)
        if check.duplicate_offset is not None:
            # Answered as the first time, and for acks=all not before it is committed.
            (last_offset_delta,) = _LAST_OFFSET_DELTA.unpack_from(batch, 23)
            first, stamp = check.duplicate_offset, check.duplicate_timestamp
            return Appended(ErrorCode.NONE, first, stamp, first + last_offset_delta + 1)
        try:
            base_offset = log.append_as_leader(batch, leader.epoch)
        except StorageError as error:
            logger.error("%s: %s", self, error)  # noqa: TRY400 - the reason is the disk's
            return Appended(ErrorCode.KAFKA_STORAGE_ERROR)
        if leader.appended(log.end, self._clock.monotonic_ms()):
            self._high_watermark_moved()
        self._waiting.wake(self.key)
        return Appended(ErrorCode.NONE, base_offset, -1, log.end)

    def acknowledgement(self, required: int) -> ErrorCode | None:
        """Answer an acks=all append that ends before `required`; None: it has to wait."""
        if self.leader is None:
            # It may survive in the new leader's log: the client has to look (rules:
            # errors.md#ambiguous-outcomes).
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.leader.acknowledgement(required)

    # -- deleting what is old ------------------------------------------------------------------

    def delete_before(self, offset: int) -> tuple[ErrorCode, int]:
        """Forget all before `offset` as the leader; -1: all that is committed.

        Durable on this disk when it returns; `low_watermark` says how far the others are. Returns
        the offset that is meant, too.
        """
        leader, log = self.leader, self.log
        if leader is None or log is None:
            return self.refusal(), -1
        policy = self.settings.cleanup_policy
        if "compact" in policy and "delete" not in policy:  # an empty one keeps nothing from going
            return ErrorCode.POLICY_VIOLATION, -1
        wanted = log.high_watermark if offset == ALL_COMMITTED else offset
        if not 0 <= wanted <= log.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE, -1
        try:
            if log.advance_start(wanted):
                log.keep_start()
                logger.info("%s: what is before offset %d is deleted", self, wanted)
        except StorageError as error:
            logger.error("%s: %s", self, error)  # noqa: TRY400 - the reason is the disk's
            return ErrorCode.KAFKA_STORAGE_ERROR, -1
        self._waiting.wake(self.key)  # followers hear of it at once
        return ErrorCode.NONE, wanted

    @property
    def low_watermark(self) -> int:
        """Where the log starts on every replica that is alive; -1: unknown, or not the leader."""
        if self.leader is None or self.log is None:
            return -1
        return self.leader.low_watermark(self.log.start)

    # -- followers, as their leader ------------------------------------------------------------

    def fetched_by(self, fetch: FollowerFetch) -> None:
        """A follower has fetched, and was not told to truncate: it holds all before its offset."""
        leader = self.leader
        assert leader is not None, "only a leader is fetched from"
        now_ms = self._clock.monotonic_ms()
        if fetch.log_start != leader.followers[fetch.node].log_start:
            self._waiting.wake(self.committed_key)  # who deletes records waits for this
        if leader.fetched(fetch.node, fetch.offset, fetch.log_start, fetch.broker_epoch, now_ms):
            self._high_watermark_moved()
            self._waiting.wake(self.committed_key)
        proposal = leader.propose_join(fetch.node, now_ms)
        if proposal is not None:
            self._propose(self, proposal)
            self._isr_changed(moved=False)

    def has_news_for(self, node: int, log_start: int) -> bool:
        """Whether a follower should hear at once that the log starts later than it believes."""
        if self.leader is None or self.log is None or log_start >= self.log.start:
            return False
        return self.leader.followers[node].told_start < self.log.start

    def has_committed_for(self, node: int) -> bool:
        """Whether a follower has not been told of the high watermark as it is.

        Its consumers wait for that where they may read from followers.
        """
        if self.leader is None:
            return False
        return self.leader.followers[node].told_high_watermark < self.leader.high_watermark

    def told(self, node: int) -> None:
        """An answer to this follower is on its way."""
        assert self.leader is not None, "only a leader answers followers"
        assert self.log is not None
        follower = self.leader.followers[node]
        follower.told_start = self.log.start
        follower.told_high_watermark = self.leader.high_watermark

    def shrink_if_lagging(self) -> None:
        """Ask to remove whoever is out of sync; called every half lag time."""
        if self.leader is None:
            return
        now_ms = self._clock.monotonic_ms()
        proposal = self.leader.propose_leave(now_ms)
        if proposal is not None:
            logger.info(
                "%s: out of sync, ISR %s should become %s",
                self, ",".join(map(str, self.leader.isr)), ",".join(map(str, proposal.isr)),
            )  # fmt: skip
            self._propose(self, proposal)
        elif self.leader.advance(now_ms):  # a replica that was near may have fallen behind
            self._high_watermark_moved()
            self._waiting.wake(self.committed_key)

    def isr_granted(self, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller's answer to a proposal: the ISR is as given."""
        leader = self.leader
        if leader is None or leader.epoch != leader_epoch:
            return
        moved = leader.granted(isr, partition_epoch, self._clock.monotonic_ms())
        self._isr_changed(moved=moved)

    def brokers_changed(self, brokers: Mapping[int, tuple[bool, int]]) -> None:
        """Learn which brokers are alive, each with its epoch."""
        if self.leader is not None:
            self.leader.registered(brokers)
            self._isr_changed(moved=self.leader.advance(self._clock.monotonic_ms()))

    def _isr_changed(self, *, moved: bool) -> None:
        if moved:
            self._high_watermark_moved()
        self._waiting.wake(self.key)

    def _high_watermark_moved(self) -> None:
        assert self.leader is not None
        assert self.log is not None
        self.log.high_watermark = self.leader.high_watermark
        if self.acknowledgements:
            self.acknowledgements.release(self.leader.high_watermark)

    # -- following -----------------------------------------------------------------------------

    def append_fetched(
        self, records: memoryview, leader_high_watermark: int, leader_log_start: int
    ) -> ErrorCode:
        """Append what the leader sent for our log end, and learn how far it is committed.

        Rules: replication.md#what-an-answer-brings.
        """
        assert self.leader is None, "a leader does not follow"
        assert self.log is not None
        if self.log.start < self.log.end == leader_log_start:
            self._let_go_of_deleted()
        if len(records):
            self._make_room_for(records)
            error = self.log.append_as_follower(records)
            if error is not ErrorCode.NONE:
                return error
        committed = min(leader_high_watermark, self.log.end)
        self.log.high_watermark = max(self.log.high_watermark, committed)
        if leader_log_start > self.log.start:
            self.log.advance_start(leader_log_start)
        self.is_compared = True
        self._waiting.wake(self.key)
        return ErrorCode.NONE

    def _let_go_of_deleted(self) -> None:
        """The leader's log begins where ours ends: all of ours is deleted there.

        Its epochs before that are gone as well, so it could not tell whether ours is the same. What
        is neither known to be committed nor from this very leader may differ, and must not be back
        after a crash. All else stays, for what it says of producers; but what an unclean election
        took back must not be below our high watermark once more.
        """
        assert self.log is not None
        end = self.log.end
        is_leaders = self.log.latest_epoch == self.leader_epoch
        if self.log.high_watermark < end and not is_leaders:
            self.reset_to(end)
            return
        self.log.high_watermark = end  # what is deleted was committed
        self.log.advance_start(end)
        if not is_leaders:
            self.log.keep_start()

    def _make_room_for(self, records: memoryview) -> None:
        """Begin an empty log anew where a batch begins that contains its start.

        The leader's log may start within a batch, since DeleteRecords counts records: who starts
        over there is sent all of that batch.
        """
        assert self.log is not None
        if self.log.start == self.log.end and len(records) >= HEADER_SIZE:
            first = read_header(records)
            if first.base_offset < self.log.end <= first.last_offset:
                self.log.reset_to(first.base_offset)

    def truncate_for(self, epoch: int, end: int) -> None:
        """The leader's log has `epoch` until `end`: drop what differs.

        Rules: replication.md#truncation.
        """
        assert self.leader is None, "a leader does not truncate"
        assert self.log is not None
        own = self.log.epoch_end(epoch)
        if own.end == -1:
            target = end
        elif own.epoch == epoch:
            target = min(own.end, end)
        else:
            target = own.end  # an epoch that the leader lacks: ask again from there
        self.truncate_to(min(target, self.log.end))

    def truncate_to(self, offset: int) -> None:
        """Drop everything from `offset` on."""
        assert self.log is not None
        if offset < self.log.high_watermark:
            # Only an unclean election asks for this: what was committed is lost.
            logger.error(
                "%s: truncating to %d, below the high watermark %d: an unclean election",
                self, offset, self.log.high_watermark,
            )  # fmt: skip
        if offset < self.log.end:
            logger.info("%s: truncating from %d to %d", self, self.log.end, offset)
        # Even at the end: an epoch that we led without writing anything begins there, and as long
        # as we ask with it, the leader finds that we diverge.
        self.log.truncate_to(offset)
        self.log.high_watermark = min(self.log.high_watermark, self.log.end)

    def reset_to(self, offset: int) -> None:
        """Drop everything and go on at `offset`, where the leader's log starts."""
        assert self.log is not None
        logger.warning("%s: the leader starts at %d: starting over there", self, offset)
        self.log.reset_to(offset)
        self.log.high_watermark = self.log.start
