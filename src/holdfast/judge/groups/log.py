"""What stands in one partition, as far as groups are held to it. Shared by all of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Protocol

from holdfast.judge.groups.ranges import Range, Ranges
from holdfast.judge.history import (
    Acknowledged,
    DeleteRecords,
    DeletionRefused,
    Delivered,
    PartitionEvent,
    ReadEnd,
    Retention,
)


class Sleeper(Protocol):
    def wake(self, at_ms: float) -> None:
        """Take notice that a record is there now."""


class GroupLog:
    """Which offsets hold records, and what may have taken the log's beginning."""

    def __init__(self) -> None:
        self.acknowledged = Ranges()
        self.last: Acknowledged | None = None  # of the highest offset
        self._readers: dict[str, Ranges] = {}
        self._whole: tuple[ReadEnd, Ranges] | None = None
        self._retention: Retention | None = None  # the first that lets anything go
        self._deletions: list[DeleteRecords] = []
        self.sleepers: list[Sleeper] = []  # who has done all that there is

    @property
    def end(self) -> int:
        return self.acknowledged.end

    def acknowledge(self, event: Acknowledged) -> None:
        if event.offset is None:
            return
        before = self.acknowledged.end
        self.acknowledged.add(event.offset)
        if event.offset < before:
            return
        self.last = event
        if self.sleepers:
            sleepers, self.sleepers = self.sleepers, []
            for each in sleepers:
                each.wake(event.at_ms)

    def deliver(self, event: Delivered) -> None:
        read = self._readers.get(event.process)
        if read is None:
            read = self._readers[event.process] = Ranges()
        read.add(event.offset)

    def note(self, event: PartitionEvent) -> None:
        if isinstance(event, ReadEnd):
            self._whole = event, self._readers.pop(event.process, Ranges())
        elif isinstance(event, Retention):
            lets_go = event.retention_ms is not None or event.retention_bytes is not None
            if lets_go and self._retention is None:
                self._retention = event
        elif isinstance(event, DeleteRecords):
            self._deletions.append(event)
        elif isinstance(event, DeletionRefused):
            asked = [
                place
                for place, each in enumerate(self._deletions)
                if (each.process, each.offset) == (event.process, event.offset)
            ]
            if asked:
                del self._deletions[asked[-1]]

    def records(self, low: int, high: int) -> Iterator[Range]:
        """Yield the offsets in [low, high) at which a record stands that must be processed.

        Within the last whole read: what it was given, whatever its producer was told. What was
        acknowledged and is not there has been lost, which is no group's doing. Outside of it, and
        without one: what was acknowledged.
        """
        if self._whole is None:
            return self.acknowledged.within(low, high)
        event, read = self._whole
        begin, end = min(max(event.begin, low), high), min(max(event.end, low), high)
        return chain(
            self.acknowledged.within(low, begin),
            read.within(begin, end),
            self.acknowledged.within(end, high),
        )

    def gone(self, by_ms: float) -> int:
        """Return below which offset records are gone, and an event before `by_ms` allows it.

        Whether age or size really allowed it for each of them is asked of the log itself.
        """
        if self._whole is None:
            return 0
        begin = self._whole[0].begin
        if self._retention is not None and self._retention.at_ms <= by_ms:
            return begin
        named = [each.offset for each in self._deletions if each.at_ms <= by_ms]
        return min(begin, max(named, default=0))
