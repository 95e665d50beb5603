"""What was found wrong in one partition: exact counts, and evidence for the first of each kind."""

from __future__ import annotations

from collections import Counter

from holdfast.judge.history import Event
from holdfast.judge.verdict import Anomaly, Finding

FINDINGS_MAX = 20  # of each anomaly, with evidence; further ones are usually only counted


class Findings:
    """Count first; when `count` says so, tell what it was."""

    def __init__(self, topic: str, partition: int, findings_max: int = FINDINGS_MAX) -> None:
        self._topic = topic
        self._partition = partition
        self._findings_max = findings_max
        self._told: Counter[Anomaly] = Counter()
        self.counted: Counter[Anomaly] = Counter()
        self.told: list[Finding] = []

    def count(self, anomaly: Anomaly, weight: int = 1) -> bool:
        """Count an anomaly; whether its evidence is still wanted."""
        self.counted[anomaly] += weight
        self._told[anomaly] += 1
        return self._told[anomaly] <= self._findings_max

    def tell(self, anomaly: Anomaly, text: str, *events: Event | None) -> None:
        """Keep the evidence; an event that there is not is left out."""
        self.told.append(
            Finding(
                anomaly=anomaly,
                topic=self._topic,
                partition=self._partition,
                text=text,
                events=tuple(event for event in events if event is not None),
            )
        )
