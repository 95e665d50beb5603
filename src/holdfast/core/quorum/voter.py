"""One voter of the metadata quorum as a state machine: who leads in which epoch, what is committed.

Owns role, epoch, vote and high watermark (KIP-595, KIP-996). One event in, ordered effects out.
It reads no clock, random number or file. Time comes in as a number, and a timer goes out with the
range of its random part. An effect that depends on saved state is held back here, not by the
caller, until that state is saved. A vote or a record that is not durable must never count.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.quorum.voter_events import (
    MOVES,
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
    Progress,
    Role,
    Saved,
    SetTimer,
    Timeouts,
)
from holdfast.core.quorum.voter_set import ReplicaKey, VoterSet
from holdfast.wire.errors import ErrorCode

BACKOFF_MS: Final = 50  # after the first lost election; it doubles
BACKOFF_DOUBLINGS_MAX: Final = 10
HINT_MS: Final = 10  # after a leader's process is seen to be gone, so that the others see it too


class Quorum:
    """A replica of the metadata log in the quorum; it may be no voter, and follows then."""

    def __init__(
        self,
        key: ReplicaKey,
        voters: VoterSet,
        timeouts: Timeouts,
        *,
        saved: Saved,
        log_end: LogEnd,
        committed: int,
    ) -> None:
        """`saved` is what was found on disk, `committed` what is known to be: the log's start."""
        self.key = key
        self.voters = voters
        self.is_leaving = False  # our removal is in the log, but may not be committed yet
        self.role = Role.UNATTACHED
        self.epoch = max(saved.epoch, log_end.epoch, 0)
        self.leader_id = NOBODY  # who leads or has led this epoch: known, it gets no vote any more
        self.voted: ReplicaKey | None = None
        if saved.epoch == self.epoch:
            self.leader_id, self.voted = saved.leader_id, saved.voted
        self.log_end = log_end
        self.durable_end = log_end.offset
        self.committed = committed
        self.epoch_start = -1  # where our own epoch began in the log; -1: we don't lead
        self.replicas: dict[ReplicaKey, Progress] = {}  # the other voters, while leading
        self.round = 0  # of asking for votes
        self._timeouts = timeouts
        self._fetched = False  # from the leader of this epoch, lately
        self._granted: set[int] = set()
        self._refused: set[int] = set()
        self._losses = 0
        self._saved = saved
        self._version = 0
        self._durable_version = 0
        self._started = False  # what the role is for has begun: its epoch and vote are durable
        self._held: list[tuple[int, Effect]] = []
        self._effects: list[Effect] = []

    # -- what others may know ------------------------------------------------------------------

    @property
    def is_voter(self) -> bool:
        return self.voters.contains(self.key)

    @property
    def may_stand(self) -> bool:
        """Return whether this replica may be elected, even while it is being removed.

        Until its removal is committed, it may be the only replica that has the record of it. It
        refuses its vote to a replica without that record, which might need this vote to win. So it
        may have to lead itself (Raft's dissertation, 4.2.2). Its own vote does not count then.
        """
        return self.is_voter or self.is_leaving

    @property
    def leading(self) -> bool:
        """Return whether this replica may append: it leads, and that is durable."""
        return self.role is Role.LEADER and self._started

    @property
    def known_leader(self) -> int:
        """Return who is believed to lead now; NOBODY in doubt, as when `leader_id` led before."""
        return self.leader_id if self.role in (Role.FOLLOWER, Role.LEADER) else NOBODY

    # -- events: life --------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """Take up a role, by what was saved before (rules: quorum.md#a-restarted-leader)."""
        alone = self._alone
        if self.leader_id == self.key.node_id:
            if alone:
                self.leader_id = NOBODY  # nobody else can have heard of it
            else:
                self.role = Role.RESIGNED  # no move: it was the leader that has crashed
                self._set_election_timer()
        elif self.leader_id != NOBODY:
            self._move(Role.FOLLOWER)
            self._set_fetch_timer()
        if self.role is Role.UNATTACHED:
            if alone:
                self._stand()
            else:
                self._set_election_timer()
        return self._done(now_ms)

    def timed_out(self, now_ms: int) -> list[Effect]:
        """The one timer has come."""
        if self.role is Role.LEADER:
            self._check_quorum(now_ms)
        elif self.role is Role.RESIGNED:
            # The epoch is spent: nobody else may lead in it, and neither may we.
            self._unattach(self.epoch + 1)
        elif not self.may_stand:
            self._unattach(self.epoch)
        elif self._alone:
            self._stand()
        else:
            self._prospect()
        return self._done(now_ms)

    def persisted(self, version: int, now_ms: int) -> list[Effect]:
        """Go on with what waited until this version was saved."""
        assert self._durable_version < version <= self._version, "saved what nobody asked for"
        self._durable_version = version
        while self._held and self._held[0][0] <= version:
            self._effects.append(self._held.pop(0)[1])
        return self._done(now_ms)

    def resign(self, now_ms: int) -> list[Effect]:
        """Lead no longer: this process is about to stop."""
        if self.role is Role.LEADER:
            self._resign()
        return self._done(now_ms)

    def set_voters(self, voters: VoterSet, now_ms: int, *, is_leaving: bool) -> list[Effect]:
        """Use another set of voters from now on; its record is in the log (KIP-853).

        `is_leaving`: the set lacks us, and a cut of the log would bring us back.
        """
        self.voters = voters
        self.is_leaving = is_leaving
        if self.leading:
            for key in [key for key in self.replicas if all(key != v.key for v in voters.voters)]:
                del self.replicas[key]
            for voter in voters.voters:
                if not voter.is_replica(self.key):
                    self._progress_of(voter.key, now_ms)
            self._advance()
            self._effects.append(SetTimer(self._quorum_ms))
        return self._done(now_ms)

    # -- events: elections ---------------------------------------------------------------------

    def vote_requested(
        self,
        token: int,
        epoch: int,
        candidate: ReplicaKey,
        log_end: LogEnd,
        *,
        pre_vote: bool,
        now_ms: int,
    ) -> list[Effect]:
        """Another replica asks for our vote, or whether it would get it."""
        if epoch < self.epoch:
            # That election is over, and a later one has begun: the answer names its epoch.
            return self._refuse(token, ErrorCode.FENCED_LEADER_EPOCH, now_ms)
        if self._is_stranger(candidate):
            # It can never be a voter. Its epoch is not taken over either: it would depose a leader.
            return self._refuse(token, ErrorCode.INCONSISTENT_VOTER_SET, now_ms)
        if epoch > self.epoch:
            self._unattach(epoch)
        if pre_vote:
            granted = self._would_vote(log_end)
        else:
            granted = self._may_vote(candidate, log_end)
            if granted and self.voted is None:
                self.voted = candidate
                self._move(Role.UNATTACHED)
                self._set_election_timer()
        self._answer(token, granted=granted)
        return self._done(now_ms)

    def vote_answered(
        self,
        round_number: int,
        voter: int,
        epoch: int,
        leader_id: int,
        *,
        granted: bool,
        now_ms: int,
    ) -> list[Effect]:
        """A voter has answered what `AskVotes` asked it."""
        if not (granted and epoch == self.epoch):
            self._hear_of(epoch, leader_id)
        asking = self.role in (Role.PROSPECTIVE, Role.CANDIDATE)
        # What was asked in another round or epoch was another question.
        if asking and round_number == self.round and epoch == self.epoch:
            (self._granted if granted else self._refused).add(voter)
            self._count()
        return self._done(now_ms)

    def begin_requested(self, token: int, epoch: int, leader_id: int, now_ms: int) -> list[Effect]:
        """A leader tells of itself."""
        if epoch < self.epoch:
            # It has been replaced and does not know it yet: the answer names the later epoch.
            return self._refuse(token, ErrorCode.FENCED_LEADER_EPOCH, now_ms)
        if leader_id == self.key.node_id:
            # Nobody leads under our id but ourselves.
            return self._refuse(token, ErrorCode.INVALID_REQUEST, now_ms)
        if epoch == self.epoch and self.leader_id not in (NOBODY, leader_id):
            # An epoch has one leader, and we know another one.
            return self._refuse(token, ErrorCode.INVALID_REQUEST, now_ms)
        self._hear_of(epoch, leader_id)
        self._answer(token)
        return self._done(now_ms)

    def end_requested(
        self, token: int, epoch: int, leader_id: int, successors: list[int], now_ms: int
    ) -> list[Effect]:
        """A leader has stepped down. Its first successor need not ask whether it may stand."""
        if epoch < self.epoch:
            # Another epoch has begun since: there is nothing left to end.
            return self._refuse(token, ErrorCode.FENCED_LEADER_EPOCH, now_ms)
        if epoch > self.epoch:
            self._unattach(epoch)
            self.leader_id = leader_id
        elif self.leader_id not in (NOBODY, leader_id) or self.role is Role.LEADER:
            # Only an epoch's own leader ends it, and that is another one, or ourselves.
            return self._refuse(token, ErrorCode.INVALID_REQUEST, now_ms)
        self._fetched = False
        own = self.key.node_id
        if self.role in (Role.FOLLOWER, Role.UNATTACHED) and self.is_voter:
            position = successors.index(own) if own in successors else len(successors)
            if position == 0:
                self._stand()
            else:
                self._effects.append(SetTimer(BACKOFF_MS * position, BACKOFF_MS))
        self._answer(token)
        return self._done(now_ms)

    def heard(self, epoch: int, leader_id: int, now_ms: int) -> list[Effect]:
        """An answer named an epoch, and who leads in it; NOBODY when that is not known."""
        self._hear_of(epoch, leader_id)
        return self._done(now_ms)

    def leader_gone(self, epoch: int, now_ms: int) -> list[Effect]:
        """Shorten the wait for the time-out: the leader's process refuses connections.

        That is safe because a pre-vote comes first. A voter that still hears from the leader
        refuses it.
        """
        if self.role is Role.FOLLOWER and epoch == self.epoch and self._fetched:
            self._fetched = False
            self._effects.append(SetTimer(HINT_MS, self._timeouts.election_ms // 8))
        return self._done(now_ms)

    # -- events: the log -----------------------------------------------------------------------

    def log_changed(self, log_end: LogEnd, durable_end: int, now_ms: int) -> list[Effect]:
        """Our log was appended to, truncated or synced: where it ends, and how much is durable."""
        assert durable_end <= log_end.offset, "durable beyond the end"
        assert log_end.offset >= self.committed, "what is committed was truncated"
        self.log_end = log_end
        self.durable_end = durable_end
        if self.leading:
            self._advance()
        return self._done(now_ms)

    def log_restarted(self, log_end: LogEnd, now_ms: int) -> list[Effect]:
        """A snapshot, which is committed, has taken the place of our log."""
        assert not self.leading, "a leader never loads a snapshot"
        assert log_end.offset >= self.committed, "a snapshot older than what is committed"
        self.log_end, self.durable_end = log_end, log_end.offset
        self._commit(log_end.offset)
        return self._done(now_ms)

    def fetched(self, epoch: int, high_watermark: int, now_ms: int) -> list[Effect]:
        """The leader has answered our fetch; what it sent is in the log."""
        if self.role is Role.FOLLOWER and epoch == self.epoch:
            self._fetched = True
            self._losses = 0
            self._set_fetch_timer()
            self._commit(min(high_watermark, self.log_end.offset))
        return self._done(now_ms)

    def replica_fetched(self, key: ReplicaKey, offset: int, now_ms: int) -> list[Effect]:
        """Another voter fetches from us at `offset`: all before it is durable there."""
        assert self.leading, "fetched from one that doesn't lead"
        assert offset <= self.log_end.offset, "it has what we never had"
        assert self.voters.contains(key), "only voters acknowledge"
        assert key != self.key, "our own end is not told by a fetch"
        progress = self.replicas[self._recorded(key)]
        end = self.log_end.offset
        if offset >= end:
            progress.caught_up_ms = now_ms
        elif progress.end_then >= 0 and offset >= progress.end_then:
            progress.caught_up_ms = max(progress.caught_up_ms, progress.fetched_ms)
        progress.acknowledged = offset
        progress.fetched_ms = now_ms
        progress.end_then = end
        self._advance()
        return self._done(now_ms)

    def replica_heard(self, key: ReplicaKey, now_ms: int) -> None:
        """Note that another voter is alive: its request acknowledges no record.

        It may ask for a snapshot, for example. Without this note a leader that needs the voter for
        its majority would resign during the download, and the download would start over.
        """
        progress = self.replicas.get(self._recorded(key))
        if progress is not None:
            progress.heard_ms = now_ms

    # -- moving --------------------------------------------------------------------------------

    @property
    def _alone(self) -> bool:
        return self.is_voter and len(self.voters.voters) == 1

    def _move(self, role: Role) -> None:
        assert role in MOVES[self.role], f"{self.role} never becomes {role}"
        if self._started and self.role in (Role.FOLLOWER, Role.LEADER):
            self._effects.append(Leave(self.role, self.epoch))
        self.role = role
        self.round += 1
        self._started = False
        self._fetched = False
        self.epoch_start = -1
        self.replicas = {}

    def _enter(self, epoch: int) -> None:
        """The epoch is another one: nobody leads in it yet, and we have not voted."""
        assert epoch > self.epoch, "epochs never fall"
        self.epoch = epoch
        self.leader_id = NOBODY
        self.voted = None

    def _unattach(self, epoch: int) -> None:
        self._move(Role.UNATTACHED)
        if epoch > self.epoch:
            self._enter(epoch)
        self._set_election_timer()

    def _hear_of(self, epoch: int, leader_id: int) -> None:
        """Somebody says that this is the epoch, and perhaps who leads in it."""
        if epoch < self.epoch:
            return  # we know more than that
        if leader_id in (NOBODY, self.key.node_id):
            # A report that names us can't make us lead. We lead already, have resigned, or have
            # forgotten that we led.
            if epoch > self.epoch:
                self._unattach(epoch)
            return
        if epoch == self.epoch:
            if self.role in (Role.FOLLOWER, Role.LEADER, Role.RESIGNED):
                return  # who leads this epoch is known here
            if self.leader_id not in (NOBODY, leader_id):
                return  # an epoch has one leader: somebody is wrong
        self._move(Role.FOLLOWER)
        if epoch > self.epoch:
            self._enter(epoch)
        self.leader_id = leader_id
        self._set_fetch_timer()

    def _prospect(self) -> None:
        """Ask whether we would be elected; the epoch stays, so nobody is disturbed."""
        self._move(Role.PROSPECTIVE)
        self._granted, self._refused = {self.key.node_id}, set()
        self._set_election_timer()

    def _stand(self) -> None:
        """Stand for election in the next epoch, voting for ourselves."""
        assert self.may_stand, "only voters stand"
        self._move(Role.CANDIDATE)
        self._enter(self.epoch + 1)
        self.voted = self.key
        self._granted, self._refused = set(), set()
        if self._alone:
            self._granted.add(self.key.node_id)
            self._win()
        else:
            self._set_election_timer()

    def _win(self) -> None:
        assert self.voters.is_majority(self._granted), "elected by a minority"
        self._move(Role.LEADER)
        self.leader_id = self.key.node_id
        self._losses = 0

    def _resign(self) -> None:
        """Stop leading; the voter that has most of the log should stand first.

        Rules: quorum.md#handing-over.
        """
        ranked = sorted(
            self.voters.others(self.key.node_id),
            key=lambda voter: (-self._acknowledged(voter.key), voter.node_id),
        )
        successors = tuple(voter.node_id for voter in ranked)
        epoch = self.epoch
        self._move(Role.RESIGNED)
        self._effects.append(EndEpoch(epoch, successors))
        self._set_election_timer()

    def _check_quorum(self, now_ms: int) -> None:
        """Step down when a majority was not heard for 1.5 x the fetch time-out.

        Rules: quorum.md#check-quorum.
        """
        limit_ms = self._quorum_ms
        if not self._started:
            self._effects.append(SetTimer(limit_ms))
            return
        heard = [
            now_ms if voter.is_replica(self.key) else self._last_heard(voter.key)
            for voter in self.voters.voters
        ]
        silent_ms = now_ms - self.voters.majority_value(heard)
        if silent_ms >= limit_ms:
            self._resign()
        else:
            self._effects.append(SetTimer(limit_ms - silent_ms))

    # -- deciding on votes ---------------------------------------------------------------------

    def _is_stranger(self, candidate: ReplicaKey) -> bool:
        """Return whether a replica can't be a voter.

        Only a fixed list proves that: where the log holds the voters, its log may have a later set.
        """
        voters = self.voters
        fixed = bool(voters.voters) and not voters.knows_directories
        return fixed and voters.find(candidate.node_id) is None

    def _would_vote(self, log_end: LogEnd) -> bool:
        """Return whether a replica whose log ends there would be voted for.

        Rules: quorum.md#pre-votes.
        """
        if self.role is Role.LEADER or (self.role is Role.FOLLOWER and self._fetched):
            # The leader is there: who does not hear it is cut off, and would only disturb it.
            return False
        # A log that is behind ours may lack what is committed.
        return log_end >= self.log_end

    def _may_vote(self, candidate: ReplicaKey, log_end: LogEnd) -> bool:
        """Return whether a candidate of our epoch gets our vote (rules: quorum.md#votes)."""
        if self.leader_id != NOBODY:
            # This epoch has its leader, and can have no second one.
            return False
        if self.voted is not None:
            # One vote an epoch. Who has it already is told again: the answer may have been lost.
            return self.voted == candidate
        # A log that is behind ours may lack what is committed.
        return log_end >= self.log_end

    def _count(self) -> None:
        """Count the votes of this round."""
        if self.voters.is_majority(self._granted):
            if self.role is Role.PROSPECTIVE:
                self._stand()
            else:
                self._win()
            return
        left = [each for each in self.voters.ids if each not in self._refused]
        if self.role is Role.CANDIDATE and len(left) < self.voters.majority:
            self._granted.clear()  # lost: late votes of this round change nothing
            self._refused = set(self.voters.ids)
            self._losses = min(self._losses + 1, BACKOFF_DOUBLINGS_MAX)
            backoff_ms = min(self._timeouts.backoff_ms_max, BACKOFF_MS << self._losses)
            self._effects.append(SetTimer(1, backoff_ms))

    # -- leading -------------------------------------------------------------------------------

    @property
    def _quorum_ms(self) -> int:
        return max(1, self._timeouts.fetch_ms * 3 // 2)

    def _progress_of(self, key: ReplicaKey, now_ms: int) -> Progress:
        progress = self.replicas.get(key)
        if progress is None:
            progress = self.replicas[key] = Progress(fetched_ms=now_ms)
        return progress

    def _recorded(self, key: ReplicaKey) -> ReplicaKey:
        """Return the key under which the voters have it: a fixed list knows no directories."""
        return key if key in self.replicas else ReplicaKey(key.node_id)

    def _last_heard(self, key: ReplicaKey) -> int:
        progress = self.replicas[key]
        return max(progress.fetched_ms, progress.heard_ms)

    def _acknowledged(self, key: ReplicaKey) -> int:
        progress = self.replicas.get(key)
        return progress.acknowledged if progress is not None else 0

    def _advance(self) -> None:
        """Commit what a majority has durably, once that includes a record of our own epoch.

        Rules: quorum.md#commits.
        """
        ends = [
            self.durable_end if voter.is_replica(self.key) else self._acknowledged(voter.key)
            for voter in self.voters.voters
        ]
        if ends:
            offset = self.voters.majority_value(ends)
            if offset > self.epoch_start:
                self._commit(offset)

    def _commit(self, offset: int) -> None:
        assert offset <= self.log_end.offset, "committed beyond the log's end"
        if offset > self.committed:
            self.committed = offset
            self._effects.append(Commit(offset))

    # -- effects -------------------------------------------------------------------------------

    def _set_election_timer(self) -> None:
        delay_ms = max(1, self._timeouts.election_ms)
        self._effects.append(SetTimer(delay_ms, delay_ms))

    def _set_fetch_timer(self) -> None:
        delay_ms = max(1, self._timeouts.fetch_ms)
        self._effects.append(SetTimer(delay_ms, delay_ms // 8))

    def _answer(
        self, token: int, error: ErrorCode = ErrorCode.NONE, *, granted: bool = False
    ) -> None:
        """Answer once all that we know now is saved."""
        self._save()
        answer = Answer(token, self.epoch, self.known_leader, error, granted)
        if self._durable_version < self._version:
            self._held.append((self._version, answer))
        else:
            self._effects.append(answer)

    def _refuse(self, token: int, error: ErrorCode, now_ms: int) -> list[Effect]:
        """End an event that is a request with a refusal of it."""
        self._answer(token, error)
        return self._done(now_ms)

    def _save(self) -> None:
        saved = Saved(self.epoch, self.leader_id, self.voted)
        if saved != self._saved:
            self._saved = saved
            self._version += 1
            self._effects.append(Persist(self._version, saved))

    def _done(self, now_ms: int) -> list[Effect]:
        """End an event: save what changed, and begin what the role is for once that is durable."""
        self._save()
        if not self._started and self._durable_version == self._version:
            self._started = True
            self._begin(now_ms)
        effects, self._effects = self._effects, []
        return effects

    def _begin(self, now_ms: int) -> None:
        if self.role is Role.FOLLOWER:
            self._effects.append(Follow(self.leader_id, self.epoch))
        elif self.role is Role.PROSPECTIVE:
            self._effects.append(AskVotes(self.round, self.epoch, True, self.log_end))
        elif self.role is Role.CANDIDATE:
            self._granted.add(self.key.node_id)
            self._effects.append(AskVotes(self.round, self.epoch, False, self.log_end))
        elif self.role is Role.LEADER:
            self.epoch_start = self.log_end.offset
            for voter in self.voters.voters:
                if not voter.is_replica(self.key):
                    self._progress_of(voter.key, now_ms)
            self._effects.append(Lead(self.epoch, tuple(sorted(self._granted))))
            if not self._alone:
                self._effects.append(SetTimer(self._quorum_ms))
