"""Voters of the pure state machine on a network and on disks of a seed's choosing, all in numbers.

Owns a model of everything around `core.quorum.voter`: messages that are late, lost or repeated,
disks that forget what was not synced, processes that die between two effects. Every step is checked
against the invariants (rules: quorum.md#quorum-invariants). Milliseconds are simulated; a schedule
of a minute costs some hundredths of a second, so thousands can be run.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import NamedTuple

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
from holdfast.log.epochs import EpochCache

TIMEOUTS = Timeouts(election_ms=500, fetch_ms=1000, backoff_ms_max=500)
RETRY_MS = 50
POLL_MS = 300
BEGIN_MS = 500


class Entry(NamedTuple):
    epoch: int
    value: int


class Disk:
    """What a voter has written, and how much of it survives."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.durable = 0
        self.saved = Saved()

    def epochs(self) -> EpochCache:
        cache = EpochCache()
        for offset, entry in enumerate(self.log):
            cache.assign(entry.epoch, offset)
        return cache

    @property
    def end(self) -> LogEnd:
        return LogEnd(self.log[-1].epoch if self.log else -1, len(self.log))

    def power_cut(self, draw: random.Random) -> None:
        """Some of what was not synced is there all the same."""
        kept = draw.randint(self.durable, len(self.log))
        del self.log[kept:]
        self.durable = kept  # whoever starts syncs what it finds, before anything else


class Process:
    """One start of one voter: its machine, and what it waits for."""

    def __init__(self, world: QuorumWorld, node: int) -> None:
        self.world = world
        self.node = node
        self.disk = world.disks[node]
        self.alive = True
        self.timer = 0  # number of the last one set; earlier ones are void
        self.following = 0  # number of the last Follow or Leave
        self.tokens: dict[int, Callable[[Answer], None]] = {}
        self.next_token = 0
        self.machine = Quorum(
            ReplicaKey(node, bytes([node]) * 16),
            world.voters,
            TIMEOUTS,
            saved=self.disk.saved,
            log_end=self.disk.end,
            committed=0,
        )
        self.machine.durable_end = self.disk.durable

    def expect(self, reply: Callable[[Answer], None]) -> int:
        self.next_token += 1
        self.tokens[self.next_token] = reply
        return self.next_token


class QuorumWorld:
    """Voters 0, 1, ... under a seed: `run` until a time, `heal`, `run` again, `check_live`."""

    def __init__(self, seed: int, *, voters: int = 3, loss: float = 0.0) -> None:
        self.draw = random.Random(seed)
        self.now = 0
        self.loss = loss
        self.frailty = 0.0  # how likely a voter loses power just when others rely on it
        self.voters = VoterSet.of(Voter(node, f"n{node}", 1) for node in range(voters))
        self.disks = {node: Disk() for node in range(voters)}
        self.processes: dict[int, Process] = {}
        self.cuts: set[tuple[int, int]] = set()
        self.committed: list[Entry] = []  # all that anybody was ever told is committed
        self.leaders: dict[int, int] = {}  # epoch -> who led in it
        self.votes: dict[tuple[int, int], ReplicaKey] = {}  # (voter, epoch) -> who got its vote
        self.identity: dict[tuple[int, int], int] = {}  # (epoch, offset) -> the one value
        self.counts: dict[str, int] = {}
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._value = 0
        for node in range(voters):
            self.start(node)

    # -- time and messages ---------------------------------------------------------------------

    def later(self, delay_ms: int, act: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (self.now + delay_ms, self._number, act))

    def run(self, until_ms: int) -> None:
        while self._queue and self._queue[0][0] <= until_ms:
            self.now, _, act = heapq.heappop(self._queue)
            act()
        self.now = until_ms

    def send(self, source: Process, target: int, arrive: Callable[[Process], None]) -> None:
        """Carry a message to whoever runs at `target` when it arrives; or lose it, or repeat it."""
        if (source.node, target) in self.cuts or self.draw.random() < self.loss:
            return

        def deliver() -> None:
            process = self.processes.get(target)
            if process is not None and process.alive and (source.node, target) not in self.cuts:
                arrive(process)

        self.later(self.draw.randint(1, 30), deliver)
        if self.draw.random() < self.loss / 2:
            self.later(self.draw.randint(1, 2000), deliver)

    # -- faults --------------------------------------------------------------------------------

    def start(self, node: int) -> None:
        if node in self.processes:
            return  # one process to a disk
        process = self.processes[node] = Process(self, node)
        self.perform(process, process.machine.start(self.now))

    def kill(self, node: int, *, power: bool) -> None:
        process = self.processes.pop(node, None)
        if process is not None:
            process.alive = False
            if power:
                self.disks[node].power_cut(self.draw)
            else:
                self.disks[node].durable = len(self.disks[node].log)
            self.count("power cuts" if power else "kills")

    def _fail(self, process: Process) -> None:
        """Power goes, and is soon back: what was promised is all that may be left."""
        if process.alive:
            self.kill(process.node, power=True)
            self.later(self.draw.randint(1, 300), lambda: self.start(process.node))

    def cut(self, one: int, other: int, *, both: bool) -> None:
        self.cuts.add((one, other))
        if both:
            self.cuts.add((other, one))

    def heal(self) -> None:
        self.cuts.clear()
        self.loss = 0.0
        for node in self.disks:
            if node not in self.processes:
                self.start(node)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- effects -------------------------------------------------------------------------------

    def perform(self, process: Process, effects: list[Effect]) -> None:
        """Carry effects out in order; a process that dies on the way does no more of them."""
        for effect in effects:
            if not process.alive:
                return
            self._perform(process, effect)
        self._check(process)

    def _perform(self, process: Process, effect: Effect) -> None:
        if isinstance(effect, SetTimer):
            self._set_timer(process, effect)
        elif isinstance(effect, Persist):
            self._persist(process, effect)
        elif isinstance(effect, Answer):
            process.tokens.pop(effect.token)(effect)
            if effect.granted and self.draw.random() < self.frailty:
                self.later(0, lambda: self._fail(process))
        elif isinstance(effect, Commit):
            self._commit(process, effect.offset)
        elif isinstance(effect, AskVotes):
            self._ask_votes(process, effect)
        elif isinstance(effect, Follow):
            process.following += 1
            self._fetch(process, effect, process.following)
        elif isinstance(effect, Lead):
            self._lead(process, effect)
        elif isinstance(effect, EndEpoch):
            self._end(process, effect)
        else:
            assert isinstance(effect, Leave)
            process.following += 1

    def _set_timer(self, process: Process, effect: SetTimer) -> None:
        process.timer += 1
        number = process.timer

        def come() -> None:
            if process.alive and process.timer == number:
                self.perform(process, process.machine.timed_out(self.now))

        self.later(effect.delay_ms + self.draw.randint(0, effect.jitter_ms), come)

    def _persist(self, process: Process, effect: Persist) -> None:
        def written() -> None:
            if process.alive and process.machine._durable_version < effect.version:
                self.disks[process.node].saved = effect.saved
                self.perform(process, process.machine.persisted(effect.version, self.now))

        self.later(self.draw.randint(1, 40), written)

    def _ask_votes(self, process: Process, asked: AskVotes) -> None:
        self.count("pre-votes" if asked.pre_vote else "elections")
        for voter in self.voters.others(process.node):
            self._ask_vote(process, voter.node_id, asked)

    def _ask_vote(self, process: Process, target: int, asked: AskVotes) -> None:
        if not process.alive or process.machine.round != asked.round:
            return

        def arrive(other: Process) -> None:
            def reply(answer: Answer) -> None:
                if answer.granted and not asked.pre_vote:
                    given = self.votes.setdefault((target, asked.epoch), process.machine.key)
                    assert given == process.machine.key, "two votes in one epoch"

                def answered(asker: Process) -> None:
                    if asker is process:
                        effects = asker.machine.vote_answered(
                            asked.round,
                            target,
                            answer.epoch,
                            answer.leader_id,
                            granted=answer.granted,
                            now_ms=self.now,
                        )
                        self.perform(asker, effects)

                self.send(other, process.node, answered)

            effects = other.machine.vote_requested(
                other.expect(reply),
                asked.epoch,
                process.machine.key,
                asked.log_end,
                pre_vote=asked.pre_vote,
                now_ms=self.now,
            )
            self.perform(other, effects)

        self.send(process, target, arrive)
        self.later(RETRY_MS * 4, lambda: self._ask_vote(process, target, asked))

    def _lead(self, process: Process, effect: Lead) -> None:
        self.count("leaders")
        if self.draw.random() < self.frailty:
            self.later(self.draw.randint(0, 100), lambda: self._fail(process))
        assert effect.epoch not in self.leaders, "an epoch has one leader, once"
        self.leaders[effect.epoch] = process.node
        assert self.disks[process.node].saved.leader_id == process.node, "led before that was saved"
        self.append(process)
        for voter in self.voters.others(process.node):
            self._begin(process, voter.node_id, effect.epoch)

    def _begin(self, process: Process, target: int, epoch: int) -> None:
        if not process.alive or not process.machine.leading or process.machine.epoch != epoch:
            return

        def arrive(other: Process) -> None:
            token = other.expect(lambda _: None)
            self.perform(other, other.machine.begin_requested(token, epoch, process.node, self.now))

        self.send(process, target, arrive)
        self.later(BEGIN_MS, lambda: self._begin(process, target, epoch))

    def _end(self, process: Process, effect: EndEpoch) -> None:
        self.count("resignations")
        successors = list(effect.successors)
        for target in successors:

            def arrive(other: Process) -> None:
                token = other.expect(lambda _: None)
                self.perform(
                    other,
                    other.machine.end_requested(
                        token, effect.epoch, process.node, successors, self.now
                    ),
                )

            self.send(process, target, arrive)

    # -- the log -------------------------------------------------------------------------------

    def append(self, process: Process) -> None:
        """Append one record as the leader; it is synced a while later."""
        self._value += 1
        entry = Entry(process.machine.epoch, self._value)
        self._enter(process, [entry])
        self._sync(process, lambda: None)

    def _enter(self, process: Process, entries: list[Entry]) -> None:
        for entry in entries:
            spot = entry.epoch, len(process.disk.log)
            assert self.identity.setdefault(spot, entry.value) == entry.value, f"{spot} came twice"
            process.disk.log.append(entry)
        self._log_changed(process)

    def _log_changed(self, process: Process) -> None:
        disk = process.disk
        self.perform(process, process.machine.log_changed(disk.end, disk.durable, self.now))

    def _sync(self, process: Process, then: Callable[[], None]) -> None:
        end = len(process.disk.log)

        def synced() -> None:
            if process.alive:
                process.disk.durable = max(process.disk.durable, min(end, len(process.disk.log)))
                self._log_changed(process)
                then()

        self.later(self.draw.randint(1, 60), synced)

    def _fetch(self, process: Process, follow: Follow, number: int) -> None:
        """One round of the follower's loop: sync, fetch, append."""
        if not process.alive or process.following != number:
            return
        disk = process.disk
        if disk.durable < len(disk.log):
            self._sync(process, lambda: self._fetch(process, follow, number))
            return
        offset, last = len(disk.log), max(disk.end.epoch, 0)
        answered = False

        def arrive(leader: Process) -> None:
            answer = self._serve(leader, process.machine.key, follow.epoch, offset, last)

            def come(follower: Process) -> None:
                nonlocal answered
                if follower is process and process.following == number and not answered:
                    answered = True
                    self._take(process, follow, number, answer)

            delay = POLL_MS if not answer.entries and answer.diverging is None else 0
            self.later(delay, lambda: self.send(leader, process.node, come))

        self.send(process, follow.leader_id, arrive)

        def retry() -> None:
            nonlocal answered
            if not answered:
                answered = True
                self._fetch(process, follow, number)

        self.later(POLL_MS * 2, retry)
        if follow.leader_id not in self.processes:
            self.perform(process, process.machine.leader_gone(follow.epoch, self.now))

    def _serve(
        self, leader: Process, key: ReplicaKey, epoch: int, offset: int, last: int
    ) -> Fetched:
        machine = leader.machine
        if not machine.leading or machine.epoch != epoch:
            return Fetched(machine.epoch, machine.known_leader, refused=True)
        log, epochs = leader.disk.log, leader.disk.epochs()
        if offset:
            end = epochs.end_of(last, len(log))
            if end.end < 0:
                end = end._replace(epoch=max(epochs.latest, 0), end=len(log))
            if end.epoch != last or end.end < offset:
                return Fetched(epoch, leader.node, diverging=(end.epoch, end.end))
        self.perform(leader, machine.replica_fetched(key, offset, self.now))
        return Fetched(epoch, leader.node, entries=tuple(log[offset:]), mark=machine.committed)

    def _take(self, process: Process, follow: Follow, number: int, answer: Fetched) -> None:
        machine = process.machine
        if answer.refused:
            self.perform(process, machine.heard(answer.epoch, answer.leader, self.now))
            self.later(RETRY_MS, lambda: self._fetch(process, follow, number))
            return
        if answer.diverging is not None:
            self.count("truncations")
            self._truncate(process, *answer.diverging)
        elif answer.entries:
            self._enter(process, list(answer.entries))
        mark = answer.mark if answer.diverging is None else 0
        self.perform(process, machine.fetched(follow.epoch, mark, self.now))
        self._fetch(process, follow, number)

    def _truncate(self, process: Process, epoch: int, end: int) -> None:
        disk = process.disk
        own = disk.epochs().end_of(epoch, len(disk.log))
        offset = end if own.end < 0 else min(own.end, end)
        assert offset >= process.machine.committed, "truncated below what is committed"
        del disk.log[offset:]
        disk.durable = min(disk.durable, offset)
        self._log_changed(process)

    # -- what must hold ------------------------------------------------------------------------

    def _commit(self, process: Process, offset: int) -> None:
        self.count("commits")
        log = process.disk.log
        assert offset <= len(log), "committed beyond the log's end"
        shared = min(offset, len(self.committed))
        assert log[:shared] == self.committed[:shared], "what was committed is another record here"
        if offset > len(self.committed):
            assert process.machine.role is Role.LEADER, "a follower knows more than any leader"
            self.committed.extend(log[len(self.committed) : offset])
            holders = [
                node
                for node, disk in self.disks.items()
                if disk.log[: min(offset, disk.durable)] == self.committed[:offset]
            ]
            assert len(holders) >= self.voters.majority, "committed on a minority"
            assert log[offset - 1].epoch == process.machine.epoch, "an old record was counted"

    def _check(self, process: Process) -> None:
        machine = process.machine
        saved = process.disk.saved
        assert machine.epoch >= saved.epoch, "an epoch fell"
        assert machine.committed <= len(process.disk.log), "the watermark passed the log's end"
        if machine.leading:
            assert self.leaders.get(machine.epoch) == process.node, "leads without being elected"

    def leading(self) -> Process | None:
        found = [each for each in self.processes.values() if each.machine.leading]
        return max(found, key=lambda each: each.machine.epoch, default=None)

    def check_live(self) -> None:
        """Everybody follows one leader, and all that it has is committed everywhere."""
        leader = self.leading()
        assert leader is not None, "nobody leads"
        for process in self.processes.values():
            assert process.machine.known_leader == leader.node, f"{process.node} does not follow"
            assert process.disk.log == leader.disk.log, f"{process.node} lags"
            assert process.machine.committed == len(leader.disk.log), f"{process.node} is behind"


class Fetched(NamedTuple):
    """A leader's answer to a fetch."""

    epoch: int
    leader: int = NOBODY
    refused: bool = False
    diverging: tuple[int, int] | None = None
    entries: tuple[Entry, ...] = ()
    mark: int = 0
