"""Where anomalies stand in the charts: time, partition, words. From the judge's findings alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.judge.history import Acknowledged, Refused, Unknown
from holdfast.judge.timeline import TopicPartition
from holdfast.judge.verdict import Anomaly, Finding, Judgement

NEAR_SHARE = 0.02  # of the whole time: findings as near as that are one mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Findings of one kind, in one partition, close to each other in time."""

    anomaly: Anomaly
    partition: TopicPartition
    begin_ms: float
    end_ms: float
    count: int
    total: int  # of this kind in this partition, as the judge counts them
    forbidden: bool

    @property
    def at_ms(self) -> float:
        return (self.begin_ms + self.end_ms) / 2

    def words(self, place: str) -> str:
        many = (
            f"{self.count:,}" if self.count == self.total else f"{self.count:,} of {self.total:,}"
        )
        return f"{many} {self.anomaly.value}, {place}"


def moment_of(finding: Finding) -> float | None:
    """When it happened, as far as events say: an outcome if there is one, else the first event.

    What was lost was acknowledged then; what vanished was read then.
    """
    for event in finding.events:
        if isinstance(event, Acknowledged | Refused | Unknown):
            return event.at_ms
    return finding.events[0].at_ms if finding.events else None


def marks_of(judgement: Judgement, total_ms: float, forbidden: Iterable[str]) -> list[Mark]:
    """All findings as marks, in the order of time."""
    wanted = frozenset(forbidden)
    moments: dict[tuple[Anomaly, TopicPartition], list[float]] = {}
    for finding in judgement.findings:
        at_ms = moment_of(finding)
        if at_ms is not None:
            place = (finding.topic, finding.partition)
            moments.setdefault((finding.anomaly, place), []).append(at_ms)
    totals = {
        (anomaly, (each.topic, each.partition)): count
        for each in judgement.partitions
        for anomaly, count in each.anomalies.items()
    }
    marks = []
    for (anomaly, place), times in moments.items():
        marks += [
            Mark(
                anomaly=anomaly,
                partition=place,
                begin_ms=group[0],
                end_ms=group[-1],
                count=len(group),
                total=totals.get((anomaly, place), len(times)),
                forbidden=anomaly.value in wanted,
            )
            for group in _groups(sorted(times), total_ms * NEAR_SHARE)
        ]
    return sorted(marks, key=lambda mark: mark.at_ms)


def not_marked(judgement: Judgement) -> dict[Anomaly, int]:
    """How many of each anomaly are counted, and have no evidence that could be marked."""
    told = Counter(finding.anomaly for finding in judgement.findings)
    return {
        anomaly: more
        for anomaly in Anomaly
        if (more := judgement.count(anomaly) - told[anomaly]) > 0
    }


def _groups(times: list[float], near_ms: float) -> Iterable[list[float]]:
    group: list[float] = []
    for at_ms in times:
        if group and at_ms - group[-1] > near_ms:
            yield group
            group = []
        group.append(at_ms)
    if group:
        yield group
