"""What was found wrong, of a log and of groups alike: evidence, exact counts, and their sums.

`verdict` and `groups.verdict` name the anomalies, and say what else is told beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Generic, Protocol, TypeVar

from holdfast.judge.history import Event

FINDINGS_MAX = 20  # of each anomaly, with evidence; further ones are usually only counted

AnomalyT = TypeVar("AnomalyT", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyFinding(Generic[AnomalyT]):
    """One anomaly with the events that prove it."""

    anomaly: AnomalyT
    topic: str
    partition: int
    text: str
    events: tuple[Event, ...]


FindingT = TypeVar("FindingT", bound=AnyFinding)  # type: ignore[type-arg] # of whichever kind
Make = Callable[[AnomalyT, str, tuple[Event, ...]], FindingT]


class Findings(Generic[AnomalyT, FindingT]):
    """Of one partition. Count first; when `count` says so, tell what it was."""

    def __init__(self, make: Make[AnomalyT, FindingT], findings_max: int = FINDINGS_MAX) -> None:
        """`make`: a finding of this partition, of an anomaly, a text and events."""
        self._make = make
        self._findings_max = findings_max
        self._told: Counter[AnomalyT] = Counter()
        self.counted: Counter[AnomalyT] = Counter()
        self.told: list[FindingT] = []

    def count(self, anomaly: AnomalyT, weight: int = 1) -> bool:
        """Count an anomaly; whether its evidence is still wanted."""
        self.counted[anomaly] += weight
        self._told[anomaly] += 1
        return self._told[anomaly] <= self._findings_max

    def tell(self, anomaly: AnomalyT, text: str, *events: Event | None) -> None:
        """Keep the evidence; an event that there is not is left out."""
        there = tuple(event for event in events if event is not None)
        self.told.append(self._make(anomaly, text, there))

    def find(self, anomaly: AnomalyT, text: str, *events: Event | None, weight: int = 1) -> None:
        """Count an anomaly, and keep its evidence while that is wanted."""
        if self.count(anomaly, weight):
            self.tell(anomaly, text, *events)


FoundT_co = TypeVar("FoundT_co", covariant=True, bound=AnyFinding)  # type: ignore[type-arg] # as above


class _Partition(Protocol[AnomalyT, FoundT_co]):
    @property
    def anomalies(self) -> Mapping[AnomalyT, int]: ...

    @property
    def findings(self) -> tuple[FoundT_co, ...]: ...


class Judged(Generic[AnomalyT, FindingT]):
    """What was found in all partitions together."""

    __slots__ = ()
    ANOMALIES: ClassVar[type[StrEnum]]  # the gravest first
    partitions: Sequence[_Partition[AnomalyT, FindingT]]

    @property
    def findings(self) -> tuple[FindingT, ...]:
        """The gravest first: in the order of the enumeration, then of the partitions."""
        graveness = {anomaly: place for place, anomaly in enumerate(self.ANOMALIES)}
        found = (finding for each in self.partitions for finding in each.findings)
        return tuple(sorted(found, key=lambda finding: graveness[finding.anomaly]))

    def count(self, anomaly: AnomalyT) -> int:
        return sum(each.anomalies.get(anomaly, 0) for each in self.partitions)

    def broken(self, forbidden: Iterable[AnomalyT]) -> tuple[AnomalyT, ...]:
        """Those of `forbidden` that were seen, in the order of the enumeration."""
        graveness = {anomaly: place for place, anomaly in enumerate(self.ANOMALIES)}
        return tuple(sorted(filter(self.count, set(forbidden)), key=lambda each: graveness[each]))
