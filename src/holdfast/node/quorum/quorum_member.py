"""A controller's place in the quorum: performs what `core.quorum.voter` decides.

Owns the timers, the file quorum-state, the syncs of the metadata log and the order in which effects
are carried out. It decides nothing about votes or leaders. It tells its listener, the controller,
what is committed and when this node begins or ceases to lead. The listener acts on that at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, assert_never

from holdfast.core.metadata.image import MetadataImage
from holdfast.core.quorum.voter import Quorum
from holdfast.core.quorum.voter_events import (
    NOBODY,
    Answer,
    AskVotes,
    Commit,
    Effect,
    EndEpoch,
    Follow,
    Lead,
    Leave,
    LogEnd,
    Persist,
    Role,
    Saved,
    SetTimer,
    Timeouts,
)
from holdfast.core.quorum.voter_set import ReplicaKey, Voter, VoterSet
from holdfast.log.errors import TOO_MUCH, StorageError
from holdfast.node.metadata.metadata_log import MetadataLogError
from holdfast.node.metadata.metadata_snapshots import LoadedSnapshot
from holdfast.node.quorum.controller_addresses import ControllerAddresses
from holdfast.node.quorum.discovery import Discovery
from holdfast.node.quorum.quorum_replica import QuorumReplica
from holdfast.node.quorum.quorum_state import FILE_NAME, QuorumStateError, format_state, read_state
from holdfast.node.quorum.voter_fetcher import VoterFetcher
from holdfast.node.quorum.voter_peers import Peers
from holdfast.runtime.ports import WorkerFullError
from holdfast.runtime.tasks import report_bug

logger = logging.getLogger("holdfast.quorum")

Reply = Callable[[Answer], None]


class QuorumListener(Protocol):
    """The one that acts on the metadata log. Each call comes at once, between two effects."""

    def committed(self) -> None:
        """More of the log is committed: `MetadataLog.committed` says how much."""

    def leading(self, epoch: int) -> None:
        """This node leads; the LeaderChange record is appended and not committed yet."""

    def snapshot_loaded(self, image: MetadataImage) -> None:
        """The log now begins and ends where this image does; it is committed."""

    def stopped_leading(self) -> None:
        """Forget what was appended and is not committed: it may be gone."""

    def wake_observers(self) -> None:
        """The log has grown, or the quorum has changed: look at fetches that wait."""

    def fail(self, error: BaseException) -> None:
        """The disk can't be written: nothing that depends on it may be answered."""


class QuorumMember:
    """This node's replica of the metadata log in the quorum."""

    def __init__(self, replica: QuorumReplica, listener: QuorumListener) -> None:
        """Read what was saved. MetadataLogError: it is damaged, or gone while the log is there."""
        settings, voters, log = replica.settings, replica.voter_log, replica.log
        self.replica: Final = replica
        self.log: Final = log
        self.key: Final = replica.key
        self.listener: Final = listener
        self._home = log.replica.home
        self.state: Final = Quorum(
            replica.key,
            voters.history.latest,
            Timeouts(
                settings.controller_quorum_election_timeout_ms,
                settings.controller_quorum_fetch_timeout_ms,
                settings.controller_quorum_election_backoff_max_ms,
            ),
            saved=_read_saved(replica),
            log_end=LogEnd(log.last_epoch, log.end),
            committed=log.committed,
        )
        self.state.is_leaving = voters.history.may_return(replica.key)
        self.addresses: Final = ControllerAddresses(replica, self.state)
        self._fetcher = VoterFetcher(replica, self)
        self._peers = Peers(replica, self.state, self.addresses, self)
        self._discovery = Discovery(replica, self.state, self.addresses, self)
        self._following: Follow | None = None
        self._effects: deque[Effect] = deque()
        self._performing = False
        self._timer: asyncio.TimerHandle | None = None
        self._syncing = False
        self._to_save: Persist | None = None
        self._saving = False
        self._replies: dict[int, Reply] = {}
        self._next_token = 0
        self._started = False
        self._closed = False

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Take part, once all that is on the disk is synced.

        A killed process may have left records in the log that it never synced. The first fetch
        would acknowledge them. The sync also makes the directory's own name durable. Without that
        no vote saved in the directory would be durable.
        """
        self.log.sync().add_done_callback(self._begin)

    def _begin(self, done: asyncio.Future[None]) -> None:
        if not self._is_synced(done):
            return
        self._started = True
        self._discovery.start()
        self.feed(self.state.log_changed(self._log_end(), self.log.durable_end, self.now_ms()))
        self.feed(self.state.start(self.now_ms()))

    def close(self) -> None:
        """Take part no more. Nobody is told; `shut_down` first, to leave politely."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._fetcher.stop()
        self._discovery.close()
        self._peers.close()
        self._replies.clear()

    async def shut_down(self, *, timeout_ms: int) -> None:
        """Hand leadership over: others elect at once instead of waiting for a time-out."""
        if self._closed or self.state.role is not Role.LEADER:
            return
        self.feed(self.state.resign(self.now_ms()))
        await self._peers.finish(timeout_ms / 1000)

    # -- what others may know ------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def leading(self) -> bool:
        """Return whether this node may append now."""
        return self.state.leading and not self._closed

    @property
    def leader_id(self) -> int:
        """Return the id of the node that is believed to lead; -1 when that is not known."""
        return NOBODY if self._closed else self.state.known_leader

    @property
    def voters(self) -> VoterSet:
        return self.state.voters

    def now_ms(self) -> int:
        return self.replica.runtime.clock.monotonic_ms()

    # -- what the controller reports -----------------------------------------------------------

    def appended(self) -> None:
        """Something was appended to the log: it is counted, and synced soon."""
        if self._look_at_log():
            self._start_sync()
            self.listener.wake_observers()

    def log_changed(self) -> None:
        """The log was appended to, or cut: let the state machine know.

        A set of voters counts from the moment its record is in the log.
        """
        if self.replica.voter_log.follow():
            self.set_voters(self.replica.voter_log.history.latest)
        self.feed(self.state.log_changed(self._log_end(), self.log.durable_end, self.now_ms()))

    def set_voters(self, voters: VoterSet) -> None:
        """Another set of voters is in force from now on (KIP-853)."""
        # Should this set be rolled back, one that it lacks may turn out to lead.
        self.addresses.learn(self.state.voters.voters)
        self._peers.stop()
        leaving = self.replica.voter_log.history.may_return(self.key)
        self.feed(self.state.set_voters(voters, self.now_ms(), is_leaving=leaving))
        if self.leading:
            self._peers.begin_epoch(self.epoch)
        else:
            self._tell_address()

    def replica_fetched(self, key: ReplicaKey, offset: int) -> None:
        """A replica's fetch has come, and its log agrees with ours below `offset`."""
        self.feed(self.state.replica_fetched(key, offset, self.now_ms()))

    def replica_heard(self, key: ReplicaKey) -> None:
        """A replica has asked for something else than what follows its own log."""
        self.state.replica_heard(key, self.now_ms())

    # -- requests ------------------------------------------------------------------------------

    def vote_requested(
        self, epoch: int, candidate: ReplicaKey, end: LogEnd, *, pre_vote: bool, reply: Reply
    ) -> None:
        self.feed(
            self.state.vote_requested(
                self._expect(reply),
                epoch,
                candidate,
                end,
                pre_vote=pre_vote,
                now_ms=self.now_ms(),
            )
        )

    def begin_requested(
        self, epoch: int, leader_id: int, reply: Reply, address: tuple[str, int] | None = None
    ) -> None:
        """`address` is where the leader says that it listens."""
        if address is not None and epoch >= self.epoch:
            self.addresses.leader_says(epoch, Voter(leader_id, *address))
        self.feed(self.state.begin_requested(self._expect(reply), epoch, leader_id, self.now_ms()))
        self.follow_again()

    def end_requested(
        self, epoch: int, leader_id: int, successors: list[int], reply: Reply
    ) -> None:
        self.feed(
            self.state.end_requested(
                self._expect(reply), epoch, leader_id, successors, self.now_ms()
            )
        )

    @property
    def serving(self) -> bool:
        """Return whether requests of other voters can be answered: it has begun, and not ended."""
        return self._started and not self._closed

    def _expect(self, reply: Reply) -> int:
        self._next_token += 1
        self._replies[self._next_token] = reply
        return self._next_token

    # -- effects -------------------------------------------------------------------------------

    def feed(self, effects: list[Effect]) -> None:
        """Perform effects in order; events that come of them wait until those are done."""
        self._effects.extend(effects)
        if self._performing:
            return
        self._performing = True
        try:
            while self._effects and not self._closed:
                self._perform(self._effects.popleft())
        except (StorageError, MetadataLogError) as error:
            self.listener.fail(error)
        finally:
            self._performing = False
        if self._closed:
            self._effects.clear()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SetTimer():
                self._set_timer(effect)
            case Persist():
                self._to_save = effect
                self._save()
            case Commit():
                self.log.commit(effect.offset)
                self.replica.voter_log.history.committed(effect.offset)
                self.state.is_leaving = self.replica.voter_log.history.may_return(self.key)
                self.listener.committed()
                self._leave_if_removed()
            case Answer():
                self._replies.pop(effect.token)(effect)
            case AskVotes():
                self._peers.ask_votes(effect)
            case Follow():
                self._follow(effect)
            case Lead():
                self._lead(effect)
            case EndEpoch():
                self._peers.end_epoch(effect)
            case Leave():
                self._leave(effect)
            case _:
                assert_never(effect)

    def _leave_if_removed(self) -> None:
        """Resign if this leader is no voter any more and its removal is committed."""
        history = self.replica.voter_log.history
        if self.leading and not self.state.is_voter and history.latest_offset < self.log.committed:
            logger.info("node %d is no voter any more", self.key.node_id)
            self.feed(self.state.resign(self.now_ms()))

    def _set_timer(self, effect: SetTimer) -> None:
        if self._timer is not None:
            self._timer.cancel()
        jitter_ms = self.replica.runtime.random.below(effect.jitter_ms + 1)
        delay = (effect.delay_ms + jitter_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        if not self._closed:
            self.feed(self.state.timed_out(self.now_ms()))

    def _follow(self, effect: Follow) -> None:
        self._following = effect
        self._peers.stop()
        leader = self.addresses.find(effect.leader_id)
        if leader is None:
            return  # nobody has said yet where it is
        logger.info(
            "node %d follows %d in epoch %d", self.key.node_id, effect.leader_id, effect.epoch
        )
        self._fetcher.start(leader, effect.epoch)
        self._tell_address()

    def _tell_address(self) -> None:
        """Tell the leader our address if it has changed; the leader records it (KIP-853)."""
        if self._following is not None and self.addresses.moved:
            leader = self.addresses.find(self._following.leader_id)
            if leader is not None:
                self._peers.tell_address(leader, self._following.epoch)

    def _lead(self, effect: Lead) -> None:
        logger.info("node %d leads the quorum in epoch %d", self.key.node_id, effect.epoch)
        self.log.begin_epoch(effect.epoch, self.key.node_id, self.state.voters, effect.granting)
        beginning = self.replica.voter_log.beginning()
        if beginning:
            self.log.append_control(beginning, effect.epoch)
        self.listener.leading(effect.epoch)
        self._peers.begin_epoch(effect.epoch)
        self.appended()

    def _leave(self, effect: Leave) -> None:
        if effect.role is Role.LEADER:
            logger.info("node %d no longer leads in epoch %d", self.key.node_id, effect.epoch)
            self._peers.stop()
            self.listener.stopped_leading()
        else:
            self._following = None
            self._fetcher.stop()
        self.listener.wake_observers()

    def _log_end(self) -> LogEnd:
        return LogEnd(self.log.last_epoch, self.log.end)

    # -- durability ----------------------------------------------------------------------------

    def _start_sync(self) -> None:
        """Sync what was appended, unless a sync is under way: what comes meanwhile shares one."""
        if self._syncing or self._closed or self.log.durable_end == self.log.end:
            return
        self._syncing = True
        try:
            self.log.sync().add_done_callback(self._synced)
        except StorageError as error:  # the directory is offline: somebody else met its disk
            self.listener.fail(error)

    def _synced(self, done: asyncio.Future[None]) -> None:
        self._syncing = False
        if self._is_synced(done) and self._look_at_log():
            self._start_sync()

    def _is_synced(self, done: asyncio.Future[None]) -> bool:
        """Return whether a sync has succeeded and anybody waits for it; report one that failed."""
        error = None if done.cancelled() else done.exception()
        if self._closed or done.cancelled():
            return False
        if error is not None:
            self.listener.fail(error)
        return error is None

    def _look_at_log(self) -> bool:
        """Do as `log_changed`, but report a disk that fails; False: it has failed."""
        try:
            self.log_changed()
        except (StorageError, MetadataLogError) as error:
            self.listener.fail(error)
            return False
        return True

    def _save(self) -> None:
        """Write quorum-state, the newest that there is; one write at a time."""
        if self._saving or self._to_save is None or self._closed:
            return
        effect, self._to_save = self._to_save, None
        self._saving = True
        disk, path = self.replica.runtime.disk, f"{self.log.replica.directory}/{FILE_NAME}"
        data = format_state(effect.saved)
        self._home.submit(lambda: disk.write_atomic(path, data)).add_done_callback(
            lambda done: self._was_saved(effect.version, done)
        )

    def _was_saved(self, version: int, done: asyncio.Future[None]) -> None:
        self._saving = False
        error = None if done.cancelled() else done.exception()
        if self._closed or done.cancelled():
            return
        match error:
            case None:
                self.feed(self.state.persisted(version, self.now_ms()))
                self._save()
            case WorkerFullError():
                self.listener.fail(StorageError(self._home.path, TOO_MUCH, is_offline=False))
            case OSError():
                self.listener.fail(self._home.fail(error))
            case _:
                raise error

    # -- what fetcher, peers and discovery report ----------------------------------------------

    def fail(self, error: BaseException) -> None:
        self.listener.fail(error)

    def loop_ended(self, task: asyncio.Task[None]) -> None:
        """Handle the end of one of the quorum's loops. If a bug ended it, this controller fails.

        Otherwise the controller would look alive, and neither follow nor be followed.
        """
        report_bug(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None and not self._closed:
            self.listener.fail(failure)

    def heard(self, epoch: int, leader_id: int, endpoints: Sequence[Any]) -> None:
        """An answer named the leader of an epoch; `endpoints` have node_id, host and port."""
        self.addresses.learn(endpoints)
        self.feed(self.state.heard(epoch, leader_id, self.now_ms()))

    def leader_gone(self, epoch: int) -> None:
        self.feed(self.state.leader_gone(epoch, self.now_ms()))

    def follow_again(self) -> None:
        """Follow the leader again if a new address of it was learnt.

        Only a leader that this node follows counts. The epoch of a leader that was merely heard of
        must be on the disk first.
        """
        if self._following is None:
            return
        leader = self.addresses.find(self._following.leader_id)
        if leader is not None and self._fetcher.address != (leader.host, leader.port):
            self.feed([self._following])

    def fetched(self, epoch: int, high_watermark: int) -> None:
        self.feed(self.state.fetched(epoch, high_watermark, self.now_ms()))

    def snapshot_loaded(self, loaded: LoadedSnapshot) -> None:
        """A snapshot was fetched and is durable: it takes the log's place."""
        identity = loaded.identity
        self.log.restart_at(identity.end_offset, identity.epoch)
        self.replica.voter_log.restart(loaded)
        self.listener.snapshot_loaded(loaded.image)
        if self.state.voters != self.replica.voter_log.history.latest:
            self.set_voters(self.replica.voter_log.history.latest)
        self.feed(
            self.state.log_restarted(LogEnd(identity.epoch, identity.end_offset), self.now_ms())
        )

    def vote_answered(
        self, asked: AskVotes, voter: int, epoch: int, leader_id: int, *, granted: bool
    ) -> None:
        self.feed(
            self.state.vote_answered(
                asked.round, voter, epoch, leader_id, granted=granted, now_ms=self.now_ms()
            )
        )


def _read_saved(replica: QuorumReplica) -> Saved:
    log = replica.log.replica
    try:
        saved = read_state(replica.runtime.disk, log.directory)
    except QuorumStateError as error:
        raise MetadataLogError(str(error)) from error
    except OSError as error:
        raise log.home.fail(error) from error
    if saved is None and log.end > 0:
        raise MetadataLogError(
            f"{log.directory}/{FILE_NAME} is missing, and the metadata log beside it is not empty: "
            "without it this voter could vote twice in one epoch. Restore the directory from a "
            "copy. Emptying it forgets the votes as well: only while no other voter is down."
        )
    return saved or Saved()
