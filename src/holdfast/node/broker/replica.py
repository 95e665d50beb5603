"""One replica that this broker holds: its log, and the role that the metadata gives it.

Owns the role: while it leads or follows there is an object that has the log and does what that role
does. Every change of state is synchronous. It knows no other broker.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping

from holdfast.config.topic import TopicSettings
from holdfast.core.metadata import image
from holdfast.core.metadata.image import PartitionKey
from holdfast.core.replica.throttle import Throttled
from holdfast.log.log import Log
from holdfast.node.broker.following_replica import FollowingReplica
from holdfast.node.broker.leading_replica import LeadingReplica, Surroundings
from holdfast.node.door.waiting_room import OffsetQueue
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

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    # -- role ----------------------------------------------------------------------------------

    def lead(self, decided: image.Partition, brokers: Mapping[int, tuple[bool, int]]) -> None:
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
            self.leading.brokers_changed(brokers)
        self.leading.say_recovered(decided)

    def follow(self, leader_id: int, leader_epoch: int) -> FollowingReplica | None:
        """Become a follower, or learn of another leader; -1: there is none at present.

        None: its directory is offline.
        """
        if leader_epoch != self.leader_epoch:
            logger.info("%s: follows %d in epoch %d", self, leader_id, leader_epoch)
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self._leave_role()
        if self.log is not None:
            waiting = self._surroundings.waiting
            self.following = FollowingReplica(self, self.log, leader_epoch, waiting)
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
        self._surroundings.waiting.wake(self.key)

    def configure(self, settings: TopicSettings) -> None:
        """Take over changed settings."""
        self.settings = settings
        self.throttled = Throttled.of(settings, self.index, self._surroundings.node)
        if self.log is not None:
            self.log.settings = settings
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
