"""What the judge says: the kinds of anomaly, a finding with its evidence, counts, availability.

Values only. What a finding means and when it is made is in `partition`; what was promised, and so
whether a finding breaks anything, is in `promise`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, TypeAlias

from holdfast.judge.findings import AnyFinding, Findings, Judged
from holdfast.judge.history import Compaction, DeleteRecords, Event, Retention


class Anomaly(StrEnum):
    LOST = "lost"
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    DIVERGED = "diverged"
    PHANTOM = "phantom"
    RESURRECTED = "resurrected"
    VANISHED = "vanished"
    UNCOMMITTED = "uncommitted read"
    SKIPPED = "skipped"


MEANING: Mapping[Anomaly, str] = {
    Anomaly.LOST: "acknowledged, and not in the log after healing",
    Anomaly.DUPLICATED: "in the log more than once",
    Anomaly.REORDERED: "not in the order in which its producer sent, or a reader went back",
    Anomaly.DIVERGED: "two witnesses disagree about one offset: replicas, readers, acknowledgement",
    Anomaly.PHANTOM: "in the log, and nobody sent it there, or not with these bytes",
    Anomaly.RESURRECTED: "refused for certain, and yet in the log",
    Anomaly.VANISHED: "read by a consumer, and then gone",
    Anomaly.UNCOMMITTED: "handed to a consumer at or past the high watermark",
    Anomaly.SKIPPED: "in the log, and passed over by a consumer",
}
assert MEANING.keys() == set(Anomaly), "every anomaly is explained"


class Observed(StrEnum):
    """What the acknowledged records of a run went through."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"
    AT_MOST_ONCE = "at most once"
    NEITHER = "neither: lost and duplicated"
    UNDECIDED = "undecided"


class Excuse(StrEnum):
    """What may take a record out of a log. Each needs an event that allows it."""

    TIME = "retention.ms"
    SIZE = "retention.bytes"
    DELETED = "DeleteRecords"
    REPLACED = "cleanup.policy=compact"  # by a later record of its key, which stands


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(AnyFinding[Anomaly]):
    """One anomaly of a log, with the events that prove it."""


LogFindings: TypeAlias = Findings[Anomaly, Finding]


def log_findings(topic: str, partition: int, findings_max: int) -> LogFindings:
    """Return where findings of this partition are kept."""

    def make(anomaly: Anomaly, text: str, events: tuple[Event, ...]) -> Finding:
        return Finding(anomaly=anomaly, topic=topic, partition=partition, text=text, events=events)

    return Findings(make, findings_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """Acknowledged records that are gone because one event allowed it."""

    excuse: Excuse
    count: int
    event: Retention | DeleteRecords | Compaction

    @property
    def text(self) -> str:
        if isinstance(self.event, Compaction):
            return self.excuse.value
        if isinstance(self.event, DeleteRecords):
            return f"{self.excuse.value} before offset {self.event.offset:,}"
        limit = self.event.retention_ms if self.excuse is Excuse.TIME else None
        return f"{self.excuse.value}={self.event.retention_bytes if limit is None else limit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Sends by outcome, and what stands in the log. `unanswered`: the producer died first."""

    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0
    unanswered: int = 0
    unknown_in_log: int = 0  # of `unknown` and `unanswered`
    in_log: int = 0  # records in the last whole read
    delivered: int = 0  # to readers other than that one
    expired: int = 0  # acknowledged, gone from the log, and an event allows it

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            sent=self.sent + other.sent,
            acknowledged=self.acknowledged + other.acknowledged,
            refused=self.refused + other.refused,
            unknown=self.unknown + other.unknown,
            unanswered=self.unanswered + other.unanswered,
            unknown_in_log=self.unknown_in_log + other.unknown_in_log,
            in_log=self.in_log + other.in_log,
            delivered=self.delivered + other.delivered,
            expired=self.expired + other.expired,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Longest gap: the longest time for which records waited and none was acknowledged."""

    sent: int = 0
    acknowledged: int = 0
    gap_ms_longest: float = 0.0
    gap_at_ms: float = 0.0  # where that gap begins, monotonic
    latency_ms_p50: float = 0.0
    latency_ms_p99: float = 0.0
    latency_ms_max: float = 0.0

    @property
    def share(self) -> float:
        """Acknowledged of sent, 0 to 1; 1 where nothing was sent."""
        return self.acknowledged / self.sent if self.sent else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionJudgement:
    topic: str
    partition: int
    counts: Counts
    anomalies: Mapping[Anomaly, int]  # exact; only those seen
    findings: tuple[Finding, ...]  # a bounded number of each anomaly, with evidence
    availability: Availability
    whole_read: bool  # somebody read it to its end after healing
    expiries: tuple[Expiry, ...] = ()  # why `counts.expired` was allowed
    undecided: tuple[str, ...] = ()  # why nothing can be said for certain; none: it is decided


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement(Judged[Anomaly, Finding]):
    """The verdict on a whole history, partition by partition."""

    ANOMALIES: ClassVar = Anomaly
    partitions: tuple[PartitionJudgement, ...]
    availability: Availability
    events: int
    notes: tuple[str, ...] = field(default=())

    @property
    def counts(self) -> Counts:
        return sum((partition.counts for partition in self.partitions), Counts())

    @property
    def undecided(self) -> tuple[str, ...]:
        """Why nothing can be said for certain about loss, partition by partition."""
        if not self.partitions:
            return ("the history speaks of no partition",)
        return tuple(
            f"{each.topic}-{each.partition}: {reason}"
            for each in self.partitions
            for reason in each.undecided
        )

    @property
    def decided(self) -> bool:
        """Every partition was read to its end, and nothing was left open."""
        return not self.undecided

    @property
    def expired(self) -> dict[str, int]:
        """How many acknowledged records expired, by what allowed it."""
        reasons: dict[str, int] = {}
        for partition in self.partitions:
            for expiry in partition.expiries:
                reasons[expiry.text] = reasons.get(expiry.text, 0) + expiry.count
        return reasons

    @property
    def expired_text(self) -> str:
        """How many acknowledged records expired and why that was allowed; empty: none did."""
        reasons = self.expired
        if not reasons:
            return ""
        total = sum(reasons.values())
        words = ", ".join(f"{count:,} by {text}" for text, count in reasons.items())
        return f"{total:,} expired as allowed ({words})"

    @property
    def observed(self) -> Observed:
        if not self.decided:
            return Observed.UNDECIDED
        lost, doubled = self.count(Anomaly.LOST), self.count(Anomaly.DUPLICATED)
        if lost and doubled:
            return Observed.NEITHER
        if lost:
            return Observed.AT_MOST_ONCE
        return Observed.AT_LEAST_ONCE if doubled else Observed.EXACTLY_ONCE
