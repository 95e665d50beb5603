"""What members and others were told to be committed, held against the commits that there were."""

from __future__ import annotations

from math import inf

from holdfast.judge.groups.commits import Commit, Committed, lowest
from holdfast.judge.groups.history import (
    Assigned,
    CommitAcknowledged,
    CommitAsked,
    CommitEvent,
    CommitRefused,
    CommittedSeen,
    CommitUnknown,
    Started,
    began_ms,
)
from holdfast.judge.groups.tenures import NOWHERE, Tenure
from holdfast.judge.groups.verdict import GroupAnomaly, GroupCounts, GroupFindings
from holdfast.judge.history import HistoryError

LOOKS_LAG_MS = 10_000.0  # for so long looks may be told too low, where they may lag at all


class CommitRules:
    def __init__(
        self, findings: GroupFindings, counts: GroupCounts, told_ms: dict[str, float]
    ) -> None:
        """`told_ms`: when the coordinator last had to do with each member of the group."""
        self._findings = findings
        self._told_ms = told_ms
        self._counts = counts
        self._committed = Committed()
        self._pending: dict[str, tuple[Commit, Tenure | None]] = {}
        self.reached = 0  # what the last acknowledged commit covers
        self.last: CommitAcknowledged | None = None
        self.began_by_operator = False  # whoever began last, where an operator wished it
        self.undecided: list[str] = []
        # What was told too low by a look that may lag: a finding, if it is the last look, or if
        # looks have been told too low for long.
        self._behind_since_ms = inf
        self._behind: tuple[str, CommitAsked | None, Started | CommittedSeen] | None = None

    def ask(self, event: CommitAsked, tenure: Tenure | None, current: Tenure | None) -> None:
        if event.id in self._pending:
            raise HistoryError(f"two commits have one id: {event}")
        commit = Commit(event=event, offset=event.offset, asked_ms=event.at_ms)
        if event.member:
            commit.is_stray = (
                tenure is None or tenure is not current or 0 <= event.epoch < tenure.assigned.epoch
            )
        self._pending[event.id] = commit, tenure
        if not commit.is_stray:
            self._committed.ask(commit)

    def _answered(self, event: CommitEvent) -> tuple[Commit, Tenure | None]:
        found = self._pending.pop(event.id, None)
        if found is None:
            raise HistoryError(f"an answer to no commit, or a second one: {event}")
        return found

    def acknowledge(self, event: CommitAcknowledged, current: Tenure | None) -> None:
        commit, tenure = self._answered(event)
        self._counts.commits += 1
        covers = commit.offset or 0
        if commit.event is not None and commit.event.member:
            member = commit.event.member
            self._told_ms[member] = max(self._told_ms.get(member, -inf), commit.asked_ms)
        if commit.is_stray:
            self._take_stray(commit, event, current)
        elif commit.by_operator:
            self.reached = min(self.reached, covers)
        else:
            assert tenure is not None
            tenure.committed = event
            self._judge_late(commit, event, tenure, current)
        self._committed.acknowledge(commit, event.at_ms)
        if not commit.by_operator:
            self.reached, self.last = covers, event

    def _take_stray(
        self, commit: Commit, event: CommitAcknowledged, current: Tenure | None
    ) -> None:
        """Tell of a commit that had to be refused, and was not."""
        assert commit.event is not None
        owner = None if current is None else current.assigned
        text = f"offset {commit.offset} of {commit.event.member} was taken, which is not its owner"
        self._findings.find(GroupAnomaly.STRAY_COMMIT, text, owner, commit.event, event)
        if (commit.offset or 0) < self.reached:
            text = f"it went from {self.reached} back to {commit.offset}"
            self._findings.find(GroupAnomaly.MOVED_BACK, text, self.last, commit.event, event)
        self._committed.ask(commit)

    def _judge_late(
        self, commit: Commit, event: CommitAcknowledged, tenure: Tenure, current: Tenure | None
    ) -> None:
        """Hold a commit against the next owner, which had begun when its answer came.

        It had taken effect before the partition was given away: later it had been refused.
        """
        if current is None or current is tenure or current.started is None:
            return
        told = current.started.committed
        is_before = current.source_end_ms < commit.asked_ms
        if is_before and (NOWHERE if told is None else told) < (commit.offset or 0):
            text = f"{current.assigned.member} began at {told}, and {commit.offset} was committed"
            self._findings.find(
                GroupAnomaly.COMMIT_LOST, text, commit.event, event, current.started
            )

    def refuse(self, event: CommitRefused) -> None:
        commit, tenure = self._answered(event)
        self._counts.commits_refused += 1
        if tenure is not None:
            tenure.refuse(event, commit.asked_ms)
        self._committed.refuse(commit)
        witness = commit.seen_by
        if witness is not None and not self._committed.explains(commit.offset, witness.at_ms):
            text = f"{witness.process} was told {commit.offset}, and that commit was refused"
            self._findings.find(GroupAnomaly.INVENTED, text, commit.event, event, witness)

    def leave_open(self, event: CommitUnknown) -> None:
        self._answered(event)
        self._counts.commits_unknown += 1

    def hand_over(self, event: Assigned) -> None:
        self._committed.hand_over(event.at_ms)

    # -- what is told to be committed ----------------------------------------------------------

    def start(self, event: Started, tenure: Tenure) -> None:
        """Hold what a new owner begins with against the commits that may stand."""
        matches = self._told(event, event.committed, GroupAnomaly.COMMIT_LOST)
        self.began_by_operator = bool(matches) and all(each.by_operator for each in matches)
        tenure.source_end_ms = max((each.end_ms for each in matches), default=inf)
        if matches:
            tenure.floor, tenure.floor_commit = event.committed or 0, matches[-1]
        else:
            tenure.floor_commit = lowest(self._committed.may_stand(began_ms(event)))
            tenure.floor = tenure.floor_commit.offset or 0

    def see(self, event: CommittedSeen, *, may_lag: bool) -> None:
        """Hold what somebody else was told against them; where it may lag, only what lasts."""
        since_ms, self._behind, self._behind_since_ms = self._behind_since_ms, None, inf
        self._told(event, event.offset, GroupAnomaly.MOVED_BACK, may_lag=may_lag)
        if self._behind is not None:
            self._behind_since_ms = min(since_ms, began_ms(event))
            if event.at_ms - self._behind_since_ms > LOOKS_LAG_MS:
                self._find_behind()

    def _find_behind(self) -> None:
        if self._behind is not None:
            text, commit, event = self._behind
            self._findings.find(GroupAnomaly.MOVED_BACK, text, commit, event)
            self._behind = None

    def _told(
        self,
        event: Started | CommittedSeen,
        told: int | None,
        behind: GroupAnomaly,
        *,
        may_lag: bool = False,
    ) -> list[Commit]:
        """Return the commits that explain what was told; if there are none that is a finding."""
        begin_ms = began_ms(event)
        may_stand = self._committed.may_stand(begin_ms)
        matches = [each for each in may_stand if each.offset == told]
        if matches:
            if not any(each.acknowledged for each in matches):
                for each in matches:
                    each.seen_by = each.seen_by or event
            return matches
        if not self._committed.knows(begin_ms):
            self.undecided.append(
                f"{event.process} asked what is committed so long ago that it was forgotten"
            )
            return []
        first = lowest(may_stand)
        if (NOWHERE if told is None else told) < (
            NOWHERE if first.offset is None else first.offset
        ):
            text = f"{event.process} was told {told}, and {first.offset} or more was committed"
            if may_lag:
                self._behind = text, first.event, event
            else:
                self._findings.find(behind, text, first.event, event)
        else:
            text = f"{event.process} was told {told}, which nobody can have committed"
            self._findings.find(GroupAnomaly.INVENTED, text, may_stand[-1].event, event)
        return []

    def finish(self) -> None:
        self._counts.commits_unknown += len(self._pending)
        self._find_behind()
