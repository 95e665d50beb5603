"""What the judge says of groups: the kinds of anomaly, findings, counts, and what was promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, TypeAlias

from holdfast.judge.findings import AnyFinding, Findings, Judged
from holdfast.judge.history import Event
from holdfast.judge.promise import AnyPromise
from holdfast.judge.verdict import Observed


class GroupAnomaly(StrEnum):
    SKIPPED = "skipped"
    COMMIT_LOST = "commit lost"
    MOVED_BACK = "offset moved back"
    INVENTED = "offset nobody committed"
    PROCESSED_TWICE = "processed twice"
    TWO_OWNERS = "two owners"
    STRAY_COMMIT = "stray commit"
    STUCK = "stuck"


GROUP_MEANING: Mapping[GroupAnomaly, str] = {
    GroupAnomaly.SKIPPED: "in the log, behind it was committed or processed, and nobody did it",
    GroupAnomaly.COMMIT_LOST: "a new owner began before a commit that had been acknowledged",
    GroupAnomaly.MOVED_BACK: "the committed offset went back, and its owner had not asked for it",
    GroupAnomaly.INVENTED: "the committed offset is one that nobody can have committed",
    GroupAnomaly.PROCESSED_TWICE: "processed again, and a commit that covers it was acknowledged",
    GroupAnomaly.TWO_OWNERS: "a partition was processed, or given away, while it was another's",
    GroupAnomaly.STRAY_COMMIT: "a commit was taken from a member that did not own the partition",
    GroupAnomaly.STUCK: "records wait in calm, and nobody processes them",
}
assert GROUP_MEANING.keys() == set(GroupAnomaly), "every anomaly is explained"


class Commits(StrEnum):
    """When members commit what they process."""

    AFTER = "after processing"
    BEFORE = "before processing"  # the control
    AUTOMATIC = "by themselves, now and then"

    @property
    def flag(self) -> str:
        """Return it as a member is told it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPromise(AnyPromise[GroupAnomaly]):
    """What is promised of groups."""


def group_promise_for(commits: Commits) -> GroupPromise:
    """State what a group is promised whose members commit so, over a log that loses nothing."""
    every = frozenset(GroupAnomaly)
    if commits is Commits.AFTER:
        return GroupPromise(
            text="Nothing is skipped; only what was not committed is processed again.",
            forbids=every,
        )
    return GroupPromise(
        text=f"Members commit {commits}: what they had not processed when they died is skipped, "
        "and counted; only what was not committed is processed again.",
        forbids=every - {GroupAnomaly.SKIPPED},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFinding(AnyFinding[GroupAnomaly]):
    """One anomaly of a group, with the events that prove it."""

    group: str


GroupFindings: TypeAlias = Findings[GroupAnomaly, GroupFinding]


def group_findings(group: str, topic: str, partition: int, findings_max: int) -> GroupFindings:
    """Return where findings of this partition of a group are kept."""

    def make(anomaly: GroupAnomaly, text: str, events: tuple[Event, ...]) -> GroupFinding:
        return GroupFinding(
            anomaly=anomaly, group=group, topic=topic, partition=partition, text=text, events=events
        )

    return Findings(make, findings_max)


@dataclass(slots=True, kw_only=True)
class GroupCounts:
    processed: int = 0  # in all, repeats included
    repeated: int = 0  # of these, as was allowed
    repeated_after_release: int = 0  # of these: the owner before had given it up by itself
    skipped_by_operator: int = 0
    expired: int = 0  # not processed, gone with the log's beginning, and an event allows it
    commits: int = 0  # acknowledged
    commits_refused: int = 0
    commits_unknown: int = 0  # or never answered
    commits_ahead: int = 0  # of what their owner had not processed
    owners: int = 0  # how often a partition was given to a member
    longest_wait_ms: float = 0.0  # from a record or the last one processed to the next

    def __add__(self, other: GroupCounts) -> GroupCounts:
        return GroupCounts(
            processed=self.processed + other.processed,
            repeated=self.repeated + other.repeated,
            repeated_after_release=self.repeated_after_release + other.repeated_after_release,
            skipped_by_operator=self.skipped_by_operator + other.skipped_by_operator,
            expired=self.expired + other.expired,
            commits=self.commits + other.commits,
            commits_refused=self.commits_refused + other.commits_refused,
            commits_unknown=self.commits_unknown + other.commits_unknown,
            commits_ahead=self.commits_ahead + other.commits_ahead,
            owners=self.owners + other.owners,
            longest_wait_ms=max(self.longest_wait_ms, other.longest_wait_ms),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartitionJudgement:
    group: str
    topic: str
    partition: int
    counts: GroupCounts
    anomalies: Mapping[GroupAnomaly, int]  # exact; only those seen
    findings: tuple[GroupFinding, ...]  # a bounded number of each anomaly
    undecided: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupJudgement(Judged[GroupAnomaly, GroupFinding]):
    """The verdict on all groups of a history. Without any group it is empty, and decided."""

    ANOMALIES: ClassVar = GroupAnomaly
    partitions: tuple[GroupPartitionJudgement, ...] = ()
    unknown_groups: tuple[str, ...] = field(default=())  # of which not even a topic is known

    @property
    def undecided(self) -> tuple[str, ...]:
        """Why nothing can be said for certain, partition by partition."""
        reasons = (
            f"{each.group}: {each.topic}-{each.partition}: {reason}"
            for each in self.partitions
            for reason in each.undecided
        )
        idle = (f"{name}: its members processed nothing" for name in self._idle())
        return (*self.unknown_groups, *idle, *reasons)

    def _idle(self) -> list[str]:
        """Return the groups of which no member has processed anything, and nothing else is said."""
        said: Counter[str] = Counter()
        for each in self.partitions:
            said[each.group] += each.counts.processed + len(each.undecided)
        return sorted(name for name, count in said.items() if not count)

    @property
    def decided(self) -> bool:
        return not self.undecided

    @property
    def observed(self) -> Observed:
        """What the records went through in the hands of members: allowed repeats count, too."""
        if not self.decided:
            return Observed.UNDECIDED
        skipped = self.count(GroupAnomaly.SKIPPED)
        again = self.counts.repeated or self.count(GroupAnomaly.PROCESSED_TWICE)
        if skipped and again:
            return Observed.NEITHER
        if skipped:
            return Observed.AT_MOST_ONCE
        return Observed.AT_LEAST_ONCE if again else Observed.EXACTLY_ONCE

    @property
    def counts(self) -> GroupCounts:
        return sum((each.counts for each in self.partitions), GroupCounts())
