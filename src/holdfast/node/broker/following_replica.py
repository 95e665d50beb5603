"""A replica that follows: what a leader's answers do to its log, in one leader epoch.

Every change is synchronous. It knows nothing of how records travel; one is made for each leader
epoch, and let go when that is over.

Rules: replication.md#following.
"""

from __future__ import annotations

import logging
from typing import Protocol

from holdfast.core.metadata.image import PartitionKey
from holdfast.core.replica.throttle import Throttled
from holdfast.log.log import Log
from holdfast.node.door.waiting_room import WaitingRoom
from holdfast.wire.batch_header import HEADER_SIZE, read_header
from holdfast.wire.errors import ErrorCode

logger = logging.getLogger("holdfast.partition")


class Held(Protocol):
    """The replica that follows, as far as it matters here."""

    topic: str
    topic_id: bytes
    index: int
    key: PartitionKey
    throttled: Throttled
    is_compared: bool
    following: FollowingReplica | None


class FollowingReplica:
    """The log of a follower."""

    __slots__ = ("_waiting", "held", "key", "leader_epoch", "log")

    def __init__(self, held: Held, log: Log, leader_epoch: int, waiting: WaitingRoom) -> None:
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

    def reset_to(self, offset: int) -> None:
        """Drop everything and go on at `offset`, where the leader's log starts."""
        logger.warning("%s: the leader starts at %d: starting over there", self, offset)
        self.log.reset_to(offset)
        self.log.high_watermark = self.log.start
