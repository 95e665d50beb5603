"""The fold of one partition of one group: who owns it, what is committed, what was processed.

Owns what is kept of each event, and in which order the rules are asked. What is kept is bounded by
the members that there were and by the holes between offsets, not by the records.
"""

from __future__ import annotations

from holdfast.judge.findings import FINDINGS_MAX
from holdfast.judge.groups.commit_rules import CommitRules
from holdfast.judge.groups.gaps import Gaps
from holdfast.judge.groups.history import (
    Assigned,
    CommitAcknowledged,
    CommitAsked,
    CommitRefused,
    CommittedSeen,
    CommitUnknown,
    GroupPartitionEvent,
    Left,
    Processed,
    Revoked,
    Started,
)
from holdfast.judge.groups.log import GroupLog
from holdfast.judge.groups.members import Group, Process
from holdfast.judge.groups.owner_rules import OwnerRules
from holdfast.judge.groups.ranges import Ranges
from holdfast.judge.groups.tenures import Tenure
from holdfast.judge.groups.verdict import (
    GroupAnomaly,
    GroupCounts,
    GroupPartitionJudgement,
    group_findings,
)
from holdfast.judge.groups.waiting import Waiting
from holdfast.judge.history import HistoryError


class GroupPartitionFold:
    """Feed it the events of one partition of a group in order, then `finish`."""

    def __init__(
        self,
        group: Group,
        where: tuple[str, int],
        log: GroupLog,
        processes: dict[str, Process],
        findings_max: int = FINDINGS_MAX,
    ) -> None:
        self._group, self._where, self._log = group, where, log
        self._findings = group_findings(group.name, *where, findings_max)
        self._counts = GroupCounts()
        self._tenures: dict[str, Tenure] = {}  # the latest of each member
        self._current: Tenure | None = None
        self._done = Ranges()
        self._owners = OwnerRules(self._findings, group, processes)
        self._commits = CommitRules(self._findings, self._counts, group.told_ms)
        self._gaps = Gaps(log, self._done, self._findings, self._counts)
        self._waiting = Waiting(self._findings, group, log)

    # -- events, as they come ------------------------------------------------------------------

    def process(self, event: Processed) -> None:
        """Take in that a record was processed. The busiest line of all."""
        offset, tenure = event.offset, self._tenures.get(event.member)
        is_current = tenure is not None and tenure is self._current
        is_allowed = True
        if not is_current or tenure.ended is not None or tenure.started is None:  # type: ignore[union-attr]
            is_allowed = self._owners.may_process(event, tenure, self._current)
        self._counts.processed += 1
        is_new = self._done.add(offset)
        if tenure is None:
            return
        if not is_new and is_allowed:
            self._repeat(event, tenure)
        if offset == tenure.next:
            tenure.next = offset + 1
        elif offset > tenure.next:
            if tenure.started is not None:
                self._gaps.suspect(tenure.next, offset, tenure.last or tenure.started, event)
            tenure.next = offset + 1
        tenure.last = event
        if is_current:
            self._waiting.progress(event, tenure.next)

    def _repeat(self, event: Processed, tenure: Tenure) -> None:
        """Tell whether what was processed before may be processed again."""
        if event.offset < tenure.next:
            text = f"{event.member} went back to offset {event.offset}, and had been past it"
            self._findings.find(
                GroupAnomaly.PROCESSED_TWICE, text, tenure.started, tenure.last, event
            )
        elif tenure.floor is not None and event.offset < tenure.floor:
            text = (
                f"{event.member} processed offset {event.offset} again; "
                f"{tenure.floor} was committed when it began"
            )
            covering = None if tenure.floor_commit is None else tenure.floor_commit.event
            self._findings.find(GroupAnomaly.PROCESSED_TWICE, text, covering, tenure.started, event)
        else:
            self._counts.repeated += 1
            self._counts.repeated_after_release += tenure.predecessor_released

    def note(self, event: GroupPartitionEvent) -> None:
        """Take in what is rarer than records."""
        if isinstance(event, CommitAsked):
            self._ask(event)
        elif isinstance(event, CommitAcknowledged):
            self._commits.acknowledge(event, self._current)
        elif isinstance(event, CommitRefused):
            self._commits.refuse(event)
        elif isinstance(event, CommitUnknown):
            self._commits.leave_open(event)
        elif isinstance(event, Assigned):
            self._assign(event)
        elif isinstance(event, Started):
            self._start(event)
        elif isinstance(event, Revoked):
            self._end(event.member, event)
        elif isinstance(event, CommittedSeen):
            self._commits.see(event, may_lag=self._group.looks_may_lag)

    def leave(self, event: Left) -> None:
        self._end(event.member, event)

    def _ask(self, event: CommitAsked) -> None:
        tenure = self._tenures.get(event.member)
        self._commits.ask(event, tenure, self._current)
        ahead = event.offset is not None and tenure is not None and tenure.started is not None
        if ahead and event.offset > tenure.next:  # type: ignore[operator, union-attr]
            self._counts.commits_ahead += 1
            self._gaps.suspect(tenure.next, event.offset, tenure.last, event)  # type: ignore[arg-type, union-attr]

    def _assign(self, event: Assigned) -> None:
        self._counts.owners += 1
        before, mine = self._current, self._tenures.get(event.member)
        tenure = Tenure(
            assigned=event,
            predecessor_released=before is not None and before.is_released,
        )
        self._tenures[event.member] = tenure
        self._group.told_ms[event.member] = event.at_ms
        if mine is before or before is None:
            pass  # to the same one again
        elif event.epoch < before.assigned.epoch:
            tenure.successor = before.assigned  # it is told late, and has lost it already
            return
        else:
            self._owners.hand_over(before, event)
            before.successor = event
        self._commits.hand_over(event)
        self._current = tenure
        self._waiting.look(event.at_ms, self._position)

    def _start(self, event: Started) -> None:
        tenure = self._tenures.get(event.member)
        if tenure is None:
            raise HistoryError(f"{event.member} began with what it was not given: {event}")
        reached = max(self._done.end, self._commits.reached)
        self._commits.start(event, tenure)
        tenure.started, tenure.next = event, event.offset
        self._gaps.start(event, reached, by_operator=self._commits.began_by_operator)
        self._waiting.look(event.at_ms, self._position)

    def _end(self, member: str, event: Revoked | Left) -> None:
        tenure = self._tenures.get(member)
        if tenure is not None and tenure.ended is None:
            tenure.ended = event
        self._waiting.look(event.at_ms, self._position)

    @property
    def _position(self) -> int:
        """Return what is to be processed next."""
        tenure = self._current
        if tenure is not None and tenure.started is not None and tenure.ended is None:
            return tenure.next
        return max(self._done.end, self._gaps.base or 0)

    def check(self, at_ms: float) -> None:
        """Hold the partition against its group's calm, before that ends."""
        self._waiting.check(at_ms, self._current)

    # -- the verdict ---------------------------------------------------------------------------

    def finish(self) -> GroupPartitionJudgement:
        reached = max(self._done.end, self._commits.reached)
        self._gaps.judge(reached, self._commits.last)
        self._commits.finish()
        self._counts.longest_wait_ms = self._waiting.longest_ms
        undecided = list(self._commits.undecided)
        if self._gaps.base is None:
            undecided.append("nobody began to read it")
        elif not self._waiting.was_seen:
            undecided.append("it was never left in peace for so long that one sees if it is stuck")
        topic, partition = self._where
        return GroupPartitionJudgement(
            group=self._group.name,
            topic=topic,
            partition=partition,
            counts=self._counts,
            anomalies=dict(self._findings.counted),
            findings=tuple(self._findings.told),
            undecided=tuple(undecided),
        )
