"""What is true of one partition, learnt from all of its replicas, and what must hold of it.

Owns the invariants that concern logs, those of partitions and that of the metadata: one leader an
epoch; epochs never fall along a log; (epoch, offset) names one batch, and what stands before it, in
the whole cluster; the high watermark never falls, never passes the log end, and nothing below one
ever differs from what stands below another; a leader holds all that is committed. It must never
look at a node.

Rules: replication.md#invariants, quorum.md#quorum-invariants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from typing import Final

from holdfast.testing.simulation.allowances import (
    Allowances,
    Election,
    Forgiveness,
    Reason,
    allowed,
)
from holdfast.testing.simulation.chain import Chain, Entry, Name
from holdfast.testing.simulation.deletions import Deletions, Stretch
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.replica_seen import Asked, Replica

POWER_CUT: Final = "power cut"
WIPED: Final = "disk lost"
DISK_FAULT: Final = "disk fault"


class PartitionTruth:
    """All that is known of one partition."""

    def __init__(
        self,
        name: str,
        fail: Callable[[Invariant, str], None],
        counts: Counter[str],
        *,
        voters: Callable[[Replica], Iterable[int]] | None = None,
    ) -> None:
        """`voters`: of the metadata log, as a replica has them: a majority must hold it synced."""
        self.name: Final = name
        self.replicas: dict[int, Replica] = {}
        self.committed = Chain()
        self.elections: dict[int, Election] = {}
        self.leaders: dict[int, int] = {}
        self.allowances = Allowances()
        self.start_max = 0  # what lies below was deleted, and is missed by nobody
        self.copies_min: Callable[[], int] = lambda: 1  # the lowest min ISR ever in force
        self.deletions = Deletions()
        self._committed_in: dict[Name, int] = {}  # in which epoch's leadership each batch was
        # What an elected leader had lost while nothing of it was committed (see `_may_lose`).
        self._may_be_lost: dict[Name, Forgiveness] = {}
        self.commits: Callable[[Entry], None] = lambda _: None  # told once of each batch, in order
        self._fail: Final = fail
        self._counts: Final = counts
        self._voters: Final = voters
        self._known: dict[Name, tuple[Entry, Name | None]] = {}
        # What a batch says, where the leader writes it otherwise than it was sent.
        self.contents: dict[Name, int] = {}

    def __str__(self) -> str:
        lines = [
            f"{self.name}: committed until {self.committed.end}",
            *(f"  {self.replicas[node]}" for node in sorted(self.replicas)),
            *(
                f"  forgiven: before epoch {each.epoch} from offset {each.offset}: {each.reason}"
                for each in self.allowances.given
            ),
        ]
        return "\n".join(lines)

    # -- a replica's life ----------------------------------------------------------------------

    def opened(
        self,
        replica: Replica,
        entries: Iterable[Entry],
        *,
        start: int,
        high_watermark: int,
        cause: str,
    ) -> None:
        """A process has opened its log. `cause`: what may have taken some of it; "": nothing."""
        before = self.replicas.get(replica.node)
        if cause == DISK_FAULT and before is not None:
            # It may have moved, and could not say so any more.
            self._deleted(min(start, before.high_watermark))
        for entry in entries:
            for each in self._logical(replica, entry, start):
                self._link(replica, each)
                replica.chain.append(each)
        self._check_start(replica, start)
        replica.start, replica.high_watermark = start, high_watermark
        self.replicas[replica.node] = replica
        if before is not None:
            self._compare(before, replica, cause)
        if cause != DISK_FAULT and self._voters is None:
            self._check_committed(replica)

    def _check_committed(self, replica: Replica) -> None:
        """What a process found below the high watermark that it found.

        Where power took what was committed, what had been cut off there before may be back.
        """
        for entry in replica.chain.between(replica.start, replica.high_watermark):
            known = self.committed.at(entry.base)
            if known is not None and known.name in replica.lost:
                continue
            if known != entry and not self.allowances.covers(entry.epoch, entry.base):
                self._fail(
                    Invariant.SAME_BELOW_WATERMARK,
                    f"{self.name}, node {replica.node}: [{entry}] was found below its high "
                    f"watermark {replica.high_watermark}, [{known}] is committed\n{self}",
                )
                return

    def _compare(self, before: Replica, now: Replica, cause: str) -> None:
        """What a replica had before its process died, and has no more."""
        self._counts["recoveries"] += 1
        missing = [
            entry
            for entry in before.chain.entries
            if entry.last >= now.start and now.chain.at(entry.base) != entry
        ]
        gone = [entry for entry in missing if entry.last >= before.start]
        now.kept = min([before.synced, *(entry.base for entry in missing)])
        now.lost = {
            name: why
            for name, why in before.lost.items()
            if now.chain.at(name[1]) is None or now.chain.at(name[1]) != self._known[name][0]
        }
        now.lost |= {  # deleted ones, too
            entry.name: cause
            for entry in missing
            if cause and not (cause == POWER_CUT and entry.last < before.durable)
        }
        now.ghost = before.chain if gone else before.ghost
        if not gone:
            return
        if not cause:
            self._fail(
                Invariant.SURVIVES_PROCESS,
                f"{self.name}: {len(gone)} batches from [{gone[0]}] on are gone after a restart\n"
                f"before: {before}\nnow: {now}",
            )
        elif cause == POWER_CUT and gone[0].last < before.durable:
            self._fail(
                Invariant.SURVIVES_POWER_CUT,
                f"{self.name}: [{gone[0]}] was synced\nbefore: {before}\nnow: {now}",
            )
        self._counts["recoveries that lost records"] += 1

    def missed(self, node: int, cause: str) -> None:
        """A process has opened all that it found, and this replica was not there."""
        before = self.replicas.get(node)
        if before is not None:
            before.settled = True
        if before is not None and before.log is None:
            now = self.replicas[node] = Replica(node, None)
            self._compare(before, now, cause)

    def died(self, node: int) -> None:
        """Its process is dead: its log object says nothing any more."""
        replica = self.replicas.get(node)
        if replica is not None and replica.log is not None:
            replica.durable = replica.log.recovery_point
            replica.log = None

    def removed(self, replica: Replica) -> None:
        """The replica was deleted or set aside."""
        if self.replicas.get(replica.node) is replica:
            del self.replicas[replica.node]

    # -- what logs do --------------------------------------------------------------------------

    def appended(self, replica: Replica, entry: Entry, *, leads: bool) -> None:
        if leads:
            leader = self.leaders.setdefault(entry.epoch, replica.node)
            if leader != replica.node:
                self._fail(
                    Invariant.ONE_LEADER,
                    f"{self.name}: nodes {leader} and {replica.node} both write in epoch "
                    f"{entry.epoch}",
                )
        self._link(replica, entry)
        replica.chain.append(entry)
        replica.lost.pop(entry.name, None)

    def _logical(self, _replica: Replica, entry: Entry, _start: int) -> Sequence[Entry]:
        """Return what a log holds that goes on with a batch; more than that where it is compacted.

        `_start`: where the log starts.
        """
        return (entry,)

    def is_gone(self, _epoch: int, _offsets: Sequence[int]) -> bool:
        """Whether compaction has taken, somewhere, all that an epoch wrote at these offsets."""
        return False

    def _link(self, replica: Replica, entry: Entry) -> None:
        """Hold a batch that is about to stand at a chain's end against what is known of it."""
        before = replica.chain.entries[-1] if replica.chain.entries else None
        if before is not None and (entry.epoch < before.epoch or entry.base <= before.last):
            self._fail(
                Invariant.LOG_RISES,
                f"{self.name}, node {replica.node}: [{entry}] stands behind [{before}]",
            )
        # Below its start a replica may hold what its leader has deleted, and never had.
        behind = None if before is None or before.last < replica.start else before.name
        known = self._known.get(entry.name)
        if known is None:
            self._known[entry.name] = (entry, behind)
            return
        if known[0] != entry:
            self._fail(
                Invariant.ONE_BATCH,
                f"{self.name}, node {replica.node}: [{entry}] here, [{known[0]}] elsewhere\n{self}",
            )
        if known[1] is None and behind is not None:
            self._known[entry.name] = (entry, behind)
        elif behind is not None and known[1] != behind:
            self._fail(
                Invariant.LOGS_MATCH,
                f"{self.name}, node {replica.node}: [{entry}] stands behind (epoch, offset) "
                f"{behind} here, behind {known[1]} elsewhere\n{self}",
            )

    def truncated(self, replica: Replica, end: int, asked: int = 0) -> None:
        """Its log was cut to `end`; what it holds no more may lie up to where that was `asked`."""
        high_watermark = replica.high_watermark
        replica.high_watermark = min(high_watermark, end)
        replica.start = min(replica.start, end)
        replica.kept = min(replica.kept, end)
        dropped = replica.chain.truncate(end)
        self._counts["truncations of records"] += bool(dropped)
        for entry in dropped:
            below = entry.last < high_watermark or self._voters is not None
            committed = below and self.committed.at(entry.base) == entry
            if entry.last < asked and self.is_gone(entry.epoch, range(entry.base, entry.last + 1)):
                continue  # who has it sends it once again
            if committed and not self.allowances.covers(
                entry.epoch, entry.base, self._committed_in[entry.name]
            ):
                self._fail(
                    Invariant.COMMITTED_STAYS,
                    f"{self.name}, node {replica.node}: cut to {end}, high watermark "
                    f"{high_watermark}, [{entry}] was committed\n{self}",
                )
                return

    def reset(self, replica: Replica, offset: int) -> None:
        """Its log was thrown away and begins anew at `offset`."""
        self._counts["logs begun anew"] += 1
        if offset < replica.chain.end:
            self.truncated(replica, offset)
        self._check_start(replica, offset)
        replica.chain = Chain()
        replica.start = replica.high_watermark = offset
        replica.kept = min(replica.kept, offset)

    def started(self, replica: Replica, start: int) -> None:
        """Its log start moved."""
        if start < replica.start:
            return  # by truncation, which is judged there
        if start > max(replica.high_watermark, replica.start):
            self._fail(
                Invariant.COMMITTED_DELETED_ONLY,
                f"{self.name}, node {replica.node}: log start {start}\n{self}",
            )
        self._check_start(replica, start)
        replica.start = start
        self._deleted(start)

    def _deleted(self, start: int) -> None:
        """A log of what is committed begins here: what lies before is missed by nobody."""
        self.start_max = max(self.start_max, start)
        self.deletions.reached = max(self.deletions.reached, start)

    def _check_start(self, replica: Replica, start: int) -> None:
        """What lies before a log's start is missed by nobody: so it must have been asked for."""
        if start > self.deletions.bound:
            self._fail(
                Invariant.DUE_DELETED_ONLY,
                f"{self.name}, node {replica.node}: log start {start}, nothing has expired, and "
                f"nobody has asked for more, than what lies before {self.deletions.bound}\n{self}",
            )

    def expired(self, replica: Replica, gone: Stretch, *, left: int, now_ms: int) -> None:
        """A replica deletes its first segment, since it is too old or its log too large."""
        why_not = self.deletions.expire(
            gone,
            replica.chain.between(gone.first, gone.end),
            start=replica.start,
            left=left,
            now_ms=now_ms,
        )
        self._counts["segments that expired"] += not why_not
        if why_not:
            self._fail(
                Invariant.DUE_DELETED_ONLY,
                f"{self.name}, node {replica.node}, at {now_ms}: {why_not}\n{self}",
            )

    def committed_until(self, replica: Replica, offset: int, log_end: int) -> None:
        """Its high watermark was set."""
        before = replica.high_watermark
        if offset == before:
            return
        if offset > log_end:
            self._fail(
                Invariant.WATERMARK_IN_LOG,
                f"{self.name}, node {replica.node}: {offset} > {log_end}",
            )
        if offset < before:
            if not replica.settled or self._voters is not None:
                # A controller that begins, or begins anew because it leads no longer, starts with
                # what its snapshot covers. What it cuts off is judged by what is committed.
                replica.high_watermark = offset
            elif log_end >= before:
                self._fail(
                    Invariant.WATERMARK_RISES,
                    f"{self.name}, node {replica.node}: from {before} to {offset}",
                )
            return  # with the log's end, which is judged when that is told
        replica.high_watermark = offset
        below = replica.chain.between(max(before, replica.start), offset)
        new = [each for each in below if each.last < offset and self._commit(replica, each)]
        if new:
            self._count_copies(replica, new[-1])

    def _commit(self, replica: Replica, entry: Entry) -> bool:
        """Hold a batch below a high watermark against the others'. True: it is the first."""
        known = self.committed.at(entry.base)
        is_forgiven = self.allowances.given and self.allowances.covers(entry.epoch, entry.base)
        if is_forgiven and (known is not None or not self._leads_last(replica)):
            return False  # of a leader that does not know yet that it is none
        late = self._may_be_lost.get(entry.name)
        if known != entry and late is not None and replica.epoch < late.epoch:
            self.allowances.given.append(late)
            self._counts["committed by who no longer led, and lost as allowed"] += 1
            return False
        if known is None and entry.base >= self.committed.end:
            self.committed.append(entry)
            self._committed_in[entry.name] = max(replica.epoch, entry.epoch)
            self.commits(entry)
            return True
        if known is not None and known != entry:
            self._fail(
                Invariant.SAME_BELOW_WATERMARK,
                f"{self.name}, node {replica.node}: [{entry}] is committed here, [{known}] "
                f"elsewhere\n{self}",
            )
        return False

    def _leads_last(self, replica: Replica) -> bool:
        """Whether nobody has led later: then what it has of earlier epochs is not what was lost.

        Who was chosen uncleanly may have something else where that stood, which nobody had
        committed, and commits it now.
        """
        return replica.epoch >= max(self.leaders, default=0)

    def _count_copies(self, replica: Replica, entry: Entry) -> None:
        """Whoever commits first must have seen it on enough replicas."""
        if self._voters is not None:
            voters = list(self._voters(replica))
            having = [
                node
                for node in voters
                if (found := self.replicas.get(node)) is not None
                and found.synced > entry.last
                and found.holds(entry)
            ]
            if 2 * len(having) <= len(voters):
                self._fail(
                    Invariant.QUORUM_HOLDS_COMMITTED,
                    f"{self.name}: [{entry}] is committed at node {replica.node} and durable on "
                    f"{having} of {voters}\n{self}",
                )
            return
        copies = sum(each.holds(entry) for each in self.replicas.values())
        needed = self.copies_min()
        if copies < needed:
            self._fail(
                Invariant.MIN_ISR,
                f"{self.name}: [{entry}] is committed at node {replica.node} with {copies} copies, "
                f"min ISR {needed}\n{self}",
            )

    # -- elections -----------------------------------------------------------------------------

    def led(self, replica: Replica, epoch: int) -> None:
        """A node begins to lead in `epoch`, with what its log holds."""
        leader = self.leaders.setdefault(epoch, replica.node)
        if leader != replica.node:
            self._fail(
                Invariant.ONE_LEADER,
                f"{self.name}: nodes {leader} and {replica.node} both lead in epoch {epoch}",
            )
        replica.epoch = max(replica.epoch, epoch)
        lacking = self._lacking(replica, epoch)
        if self._voters is not None:
            if lacking:
                self._lacks(replica, epoch, lacking)
            return
        election = self.elections.get(epoch)
        if election is None or election.leader != replica.node:
            self._fail(
                Invariant.LEADS_BY_RECORD,
                f"{self.name}: node {replica.node} leads in epoch {epoch}, the record says "
                f"{election}",
            )
            return
        election = self._chosen_by(election, epoch)
        self.allowances.began(epoch, max(replica.chain.end, replica.start))
        if not lacking and (election.is_clean or not election.unclean_allowed):
            self._may_lose(replica, epoch, election)
            return
        promised = [entry for entry in lacking if entry.last >= self.start_max]
        reason = allowed(election, promised, replica.lost)
        if reason is None:
            self._lacks(replica, epoch, lacking, election)
            return
        offset = min(lacking[0].base, replica.chain.end) if lacking else replica.chain.end
        end = inf
        if reason is Reason.UNCLEAN:
            self.allowances.began_uncleanly(epoch, replica.chain.latest_epoch)
        else:  # what it never had is forgiven by nothing else
            ends = [self._known[name][0].last + 1 for name in replica.lost]
            end = max([offset, *ends, *(entry.last + 1 for entry in lacking)])
        self.allowances.given.append(Forgiveness(epoch, offset, reason, end))
        if promised:
            self._counts[f"elections with loss: {reason}"] += 1
            self._counts["committed batches lost as allowed"] += len(promised)
        # Also what was deleted before, and is missed by nobody: its offsets are given out again.
        if self.committed.entries and self.committed.entries[-1].epoch < epoch:
            self.committed.truncate(offset)
            self.start_max = min(self.start_max, offset)

    def _may_lose(self, replica: Replica, epoch: int, election: Election) -> None:
        """The leader before it may not know yet, and may have counted what this one has lost since.

        Had it committed that before the election, it would have been forgiven as lost with the
        power. It is when it does so afterwards, as after a pause, and not before.
        """
        reason = allowed(election, (), replica.lost)
        if reason is None:
            return
        for name in replica.lost:
            if name[0] < epoch and name[1] >= replica.chain.end:
                self._may_be_lost.setdefault(
                    name, Forgiveness(epoch, name[1], reason, self._known[name][0].last + 1)
                )

    def _chosen_by(self, election: Election, epoch: int) -> Election:
        """Which election put this leader into the ISR: it may have died before it could lead."""
        if not (election.recovering and election.is_clean):
            return election
        earlier = (self.elections.get(each) for each in range(epoch - 1, -1, -1))
        own = (one for one in earlier if one is not None and one.leader == election.leader)
        return next((one for one in own if not one.is_clean), election)

    def _lacking(self, replica: Replica, epoch: int) -> list[Entry]:
        """Committed batches from before an epoch that a replica does not have, in order.

        What later leaders have committed is no business of who learns late that it was elected,
        older batches among it too. Whoever lost what others have deleted since lacks it all the
        same: it gives the offsets out again. A voter's log begins behind a snapshot, which says
        what was before it, whatever others still have in their logs.
        """
        lacking: list[Entry] = []
        deleted = replica.start
        if self._voters is None:
            deleted = min(deleted, self.start_max)
        for entry in reversed(self.committed.entries):
            if self._committed_in[entry.name] >= epoch:
                continue
            if entry.last < deleted or replica.chain.at(entry.base) == entry:
                break
            lacking.append(entry)
        return lacking[::-1]

    def _lacks(
        self,
        replica: Replica,
        epoch: int,
        lacking: list[Entry],
        election: Election | None = None,
    ) -> None:
        self._fail(
            Invariant.LEADER_HOLDS_COMMITTED,
            f"{self.name}: node {replica.node} leads in epoch {epoch} and lacks {len(lacking)} "
            f"batches from [{lacking[0]}] on; elected by {election}\n{self}",
        )

    # -- what clients saw ----------------------------------------------------------------------

    def read(self, offset: int, epoch: int) -> None:
        """A consumer was given this record."""
        found = self.committed.at(offset)
        stands = found is not None and found.epoch == epoch
        if not stands and not self.allowances.covers(epoch, offset):
            self._fail(
                Invariant.COMMITTED_READ_ONLY,
                f"{self.name}: a consumer was given offset {offset} of epoch {epoch}; committed is "
                f"{found}\n{self}",
            )

    def committed_before(self, epoch: int, least: int) -> int:
        """Up to where earlier epochs' leaders have committed, `least` at least.

        What a later one has committed a leader that is cut off does not know.
        """
        for entry in reversed(self.committed.entries):
            if entry.last < least:
                break
            if self._committed_in[entry.name] < epoch:
                return entry.last + 1
        return least

    def offset_of(self, sent: Collection[int]) -> int | None:
        """Where one of these batches, by CRC or by content, is committed."""
        return next(
            (entry.base for entry in reversed(self.committed.entries) if self._is(entry, sent)),
            None,
        )

    def _is(self, entry: Entry, sent: Collection[int]) -> bool:
        """Whether this is one of the batches that were sent, by CRC or by content."""
        return entry.crc in sent or self.contents.get(entry.name) in sent

    def asked(self, node: int) -> Asked:
        """Note a node before it is asked to take a batch."""
        led = (epoch for epoch, leader in self.leaders.items() if leader == node)
        return Asked(self.replicas.get(node), max(led, default=-1))

    def epochs_of(
        self, node: int, offset: int, sent: Collection[int], asked: Asked | None
    ) -> tuple[int, ...]:
        """In which epochs what a node has acknowledged at this offset may have been written.

        Where it does not hold it any more: any in which it has led since it was asked.
        """
        replica = self.replicas.get(node)
        entry = None if replica is None else replica.chain.at(offset)
        if entry is not None and self._is(entry, sent):
            return (entry.epoch,)
        since = -1 if asked is None else asked.epoch
        return tuple(
            epoch for epoch, leader in self.leaders.items() if leader == node and epoch >= since
        )

    def acknowledged(
        self, node: int, offset: int, sent: Collection[int], asked: Asked | None = None
    ) -> None:
        """A node has acknowledged, with acks=all, what it holds at this offset.

        `sent`: the CRC of each batch that may be meant, for a retry has another time in it, and the
        content of them all. `asked`: the node, as it was asked.
        """
        leads_in = (
            asked.epoch
            if asked is not None and asked.still_leads(self.replicas.get(node))
            else None
        )
        found = self.committed.at(offset)
        if found is not None:
            if not self._is(found, sent) and not self._may_be_gone(leads_in, offset):
                self._fail(
                    Invariant.ACKNOWLEDGED_AS_SENT,
                    f"{self.name}: node {node} acknowledged offset {offset}, where [{found}] is "
                    f"committed; sent was {', '.join(f'{crc:08x}' for crc in sent)}\n{self}",
                )
            return
        replica = self.replicas.get(node)
        entry = None if replica is None else replica.chain.at(offset)
        epoch = leads_in if entry is None else entry.epoch  # what it never held is its own, too
        if epoch is not None and not self.allowances.covers(epoch, offset):
            holds = "not held" if entry is None else f"[{entry}]"
            self._fail(
                Invariant.ACKNOWLEDGED_COMMITTED,
                f"{self.name}: node {node} acknowledged offset {offset} in epoch {epoch}, {holds}"
                f"\n{self}",
            )

    def _may_be_gone(self, epoch: int | None, offset: int) -> bool:
        """Whether what stood at an offset may have been lost. `epoch`: whose; None: unknown."""
        if epoch is None:
            return self.allowances.reaches(offset)
        return self.allowances.covers(epoch, offset)
