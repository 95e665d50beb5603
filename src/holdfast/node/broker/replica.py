"""One replica that this broker holds: its log, and the role that the metadata gives it.

Owns the role: while it leads or follows there is an object that has the log and does what that role
does. One is made for each leader epoch, and let go when that is over: a follower's stands here. Of
a leader's answers it knows what they do to the log, not how they travel. Every change of state is
synchronous. It knows no other broker.

Rules: replication.md#following.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping

from holdfast.config.topic import TopicSettings
from holdfast.core.metadata import image
from holdfast.core.metadata.image import PartitionKey
from holdfast.core.replica.throttle import Throttled
from holdfast.log.log import Log
from holdfast.node.broker.leading_replica import LeadingReplica, Surroundings
from holdfast.node.door.waiting_room import OffsetQueue, WaitingRoom
from holdfast.wire.batch_header import HEADER_SIZE, read_header
from holdfast.wire.errors import ErrorCode

logger = logging.getLogger("holdfast.partition")


class Partition:
    """A replica. Without a log its directory is offline, and it answers KAFKA_STORAGE_ERROR."""

    def __init__(
        self,
        surroundings: Surroundings,
        decided: image.Partition,
        log: Log | None,
        settings: TopicSettings,
    ) -> None:
        """Of what was decided the names count: the role comes with `lead` or `follow`."""
        self.topic = decided.topic
        self.topic_id = decided.topic_id
        self.index = decided.index
        self.key: PartitionKey = decided.key
        # Woken when only the high watermark, or a follower's log start, has moved. Consumers,
        # rack-aware followers and DeleteRecords wait for it; other followers don't.
        self.committed_key: Hashable = ("committed", *decided.key)
        self.log = log
        self.settings = settings
        self.throttled = Throttled.of(settings, decided.index, surroundings.node)
        self.leading: LeadingReplica | None = None
        self.following: FollowingReplica | None = None
        self.held = True
        self.leader_id = image.NO_LEADER
        self.leader_epoch = -1
        # True once we lead, or a leader has compared our log. Before that our high watermark may
        # lie above records that had been cut off and that a power cut has brought back.
        self.is_compared = False
        self.acknowledgements = OffsetQueue()
        self._surroundings = surroundings
        if log is not None:
            log.start_moved = self._woken

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    def describe(self) -> str:
        """Say which role it has, for people to read."""
        if self.leading is not None:
            return f"{self} {self.leading.describe()}"
        leader = "nobody" if self.leader_id == image.NO_LEADER else str(self.leader_id)
        return f"{self} follows {leader} in epoch {self.leader_epoch}"

    # -- role ----------------------------------------------------------------------------------

    def lead(self, decided: image.Partition, brokers: Mapping[int, image.Broker]) -> None:
        """Become the leader in a new epoch, or take over a change within the same one."""
        if self.leading is not None and self.leader_epoch == decided.leader_epoch:
            self.leading.take_over(decided, brokers)
        elif self.log is None:  # offline, perhaps only since the election: just note who leads
            self.leader_id, self.leader_epoch = decided.leader, decided.leader_epoch
            return
        else:
            assert decided.leader_epoch > self.leader_epoch, f"{self}: a leader epoch came twice"
            self.leader_id, self.leader_epoch = decided.leader, decided.leader_epoch
            self.is_compared = True
            self.following = None
            self.leading = LeadingReplica(self, self._surroundings, self.log, decided)
            self.leading.brokers_changed(brokers)  # which wakes who asked in an older epoch
        self.leading.say_recovered(decided)

    def follow(self, leader_id: int, leader_epoch: int) -> FollowingReplica | None:
        """Become a follower, or learn of another leader; -1: there is none at present.

        None: its directory is offline.
        """
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self._leave_role()
        if self.log is not None:
            self.following = FollowingReplica(
                self, self.log, leader_epoch, self._surroundings.waiting
            )
        return self.following

    def stop(self) -> None:
        """Hold the partition no longer: whoever waits is told to look elsewhere.

        From now on its log may be closed or gone.
        """
        self.held = False
        self.leader_id = image.NO_LEADER
        self._leave_role()

    def fail(self) -> None:
        """The log directory went offline: the log is not touched again."""
        self.log = None
        self._leave_role()

    def _leave_role(self) -> None:
        """Whoever waits for something of the role has to look again."""
        self.leading = self.following = None
        self.acknowledgements.release_all()
        self._woken()

    def _woken(self) -> None:
        self._surroundings.waiting.wake(self.key)

    def configure(self, settings: TopicSettings) -> None:
        """Take over changed settings."""
        self.settings = settings
        self.throttled = Throttled.of(settings, self.index, self._surroundings.node)
        if self.log is not None:
            self.log.configure(settings)
        if self.leading is not None:
            self.leading.configured()

    # -- who may use it ------------------------------------------------------------------------

    def as_leader(self, leader_epoch: int = -1) -> LeadingReplica | ErrorCode:
        """Return what leads here, or why this replica may not be used as the leader.

        Rules: fetch.md#epoch-check.
        """
        leading = self.leading
        if leading is None or leader_epoch not in (-1, self.leader_epoch):
            return self._refusal(leader_epoch)
        return leading

    def as_nearest(self, leader_epoch: int = -1) -> Log | ErrorCode:
        """Return the log for a consumer to read what is committed, whoever leads; or why not.

        A follower serves once it has heard from a leader. Rules: fetch.md#nearest-replica.
        """
        log, serves = self.log, self.held and self.is_compared
        if log is None or not serves or leader_epoch not in (-1, self.leader_epoch):
            return self._refusal(leader_epoch)
        return log

    def _refusal(self, leader_epoch: int) -> ErrorCode:
        """Why it does not serve: another epoch is meant, its disk is offline, or by its role."""
        if leader_epoch not in (-1, self.leader_epoch):
            older = leader_epoch < self.leader_epoch
            return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        if self.held and self.log is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark if self.log is not None else -1

    def acknowledgement(self, required: int) -> ErrorCode | None:
        """Answer an acks=all append that ends before `required`; None: it has to wait."""
        if self.leading is None:
            # It may survive in the new leader's log: the client has to look (rules:
            # errors.md#ambiguous-outcomes).
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.leading.state.acknowledgement(required)


class FollowingReplica:
    """The log of a follower."""

    __slots__ = ("_waiting", "held", "key", "leader_epoch", "log")

    def __init__(self, held: Partition, log: Log, leader_epoch: int, waiting: WaitingRoom) -> None:
        self.held = held
        self.key = held.key
        self.log = log
        self.leader_epoch = leader_epoch
        self._waiting = waiting

    def __repr__(self) -> str:
        return repr(self.held)

    @property
    def is_current(self) -> bool:
        """Whether it follows still, in this epoch, and its disk works."""
        return self.held.following is self

    def append_fetched(
        self, records: memoryview, leader_high_watermark: int, leader_log_start: int
    ) -> ErrorCode:
        """Append what the leader sent for our log end, and learn how far it is committed.

        Rules: replication.md#what-an-answer-brings.
        """
        assert self.is_current, "its epoch is over"
        log = self.log
        if log.start < log.end == leader_log_start:
            self._let_go_of_deleted()
        if len(records):
            self._make_room_for(records)
            error = log.append_as_follower(records)
            if error:
                return error
        committed = min(leader_high_watermark, log.end)
        log.high_watermark = max(log.high_watermark, committed)
        if leader_log_start > log.start:
            log.advance_start(leader_log_start)
        self.held.is_compared = True
        self._waiting.wake(self.held.key)
        return ErrorCode.NONE

    def _let_go_of_deleted(self) -> None:
        """Delete all our records: the leader's log begins where ours ends.

        The leader has no epochs from before its start, so it can't tell whether our records match.
        Records may differ if they are neither known to be committed nor of this leader's epoch.
        They must not come back after a crash, so the log is reset. Otherwise only the log start
        moves, which keeps what the log says of producers. It is made durable unless our last epoch
        is the leader's: what an unclean election took back must not be below our high watermark
        once more.
        """
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
        """Move an empty log back to the base offset of a batch that contains its start.

        DeleteRecords counts records, so the leader's log may start within a batch. A follower that
        starts over there is sent the whole batch.
        """
        if self.log.start == self.log.end and len(records) >= HEADER_SIZE:
            first = read_header(records)
            if first.base_offset < self.log.end <= first.last_offset:
                self.log.reset_to(first.base_offset)

    def truncate_for(self, epoch: int, end: int) -> None:
        """The leader's log has `epoch` until `end`: drop what differs.

        Rules: replication.md#truncation.
        """
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
        assert self.is_current, "its epoch is over"
        if offset < self.log.high_watermark:
            # Only an unclean election asks for this: what was committed is lost.
            logger.error(
                "%s: truncating to %d, below the high watermark %d: an unclean election",
                self, offset, self.log.high_watermark,
            )  # fmt: skip
        if offset < self.log.end:
            logger.info("%s: truncating from %d to %d", self, self.log.end, offset)
        # Call this even at the log's end: an epoch that we led without writing anything may begin
        # there. While our fetches name that epoch, the leader finds that we diverge.
        self.log.truncate_to(offset)
        self.log.high_watermark = min(self.log.high_watermark, self.log.end)
        self._waiting.wake(self.held.key)

    def reset_to(self, offset: int) -> None:
        """Drop everything and go on at `offset`, where the leader's log starts."""
        logger.warning("%s: the leader starts at %d: starting over there", self, offset)
        self.log.reset_to(offset)
        self.log.high_watermark = self.log.start
        self._waiting.wake(self.held.key)
