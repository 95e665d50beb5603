"""What was passed over: records below what is committed or was processed, that nobody processed.

Counted at the end, from ranges. On the way only places are kept where somebody went on behind
what may be a record, so that a finding has its events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.judge.groups.history import CommitAcknowledged, Started
from holdfast.judge.groups.log import GroupLog
from holdfast.judge.groups.ranges import Range, Ranges, without
from holdfast.judge.groups.verdict import GroupAnomaly, GroupCounts, GroupFindings
from holdfast.judge.history import Event

SUSPECTS_MAX = 1024


class Suspect(NamedTuple):
    """Offsets [begin, end) that somebody went past, and the events of it."""

    begin: int
    end: int
    before: Event | None
    event: Event


class Gaps:
    def __init__(
        self, log: GroupLog, done: Ranges, findings: GroupFindings, counts: GroupCounts
    ) -> None:
        self._log = log
        self._done = done
        self._findings = findings
        self._counts = counts
        self.base: int | None = None  # from here on the group was to read; None: nobody began
        self._suspects: list[Suspect] = []
        self._suspects_most = 64
        self._resets: list[Suspect] = []  # over what the log no longer has, as is said
        self._by_operator: list[Range] = []

    def suspect(self, begin: int, end: int, before: Event | None, event: Event) -> None:
        """Remember who went on behind [begin, end), of which nothing was processed by it."""
        if self._suspects_most <= len(self._suspects):
            kept = [
                each
                for each in self._suspects
                if any(without([(each.begin, each.end)], self._done))
            ]
            # Half of them go, or each further one would be held against all that stay.
            self._suspects = kept[: SUSPECTS_MAX // 2]
            self._suspects_most = min(SUSPECTS_MAX, max(64, 2 * len(self._suspects)))
        self._suspects.append(Suspect(begin, end, before, event))

    def start(self, event: Started, reached: int, *, by_operator: bool) -> None:
        """Take in where an owner begins; `reached` is what was committed or processed until now."""
        committed, offset = event.committed, event.offset
        if committed is None:
            low = 0 if event.reset == "earliest" else offset
        else:
            low = min(committed, offset)
            if committed < offset:
                self._resets.append(Suspect(committed, offset, None, event))
        if committed is None and low < offset:
            self._resets.append(Suspect(low, offset, None, event))
        begin = low if self.base is None else reached
        if begin < offset:
            self.suspect(begin, offset, None, event)
        if by_operator and reached < offset:
            self._by_operator.append((reached, offset))
        self.base = low if self.base is None else min(self.base, low)

    def judge(self, reached: int, committed: CommitAcknowledged | None) -> None:
        """Count what nobody processed of what the group went past."""
        if self.base is None:
            return
        missing = list(without(self._log.records(self.base, reached), self._done))
        left = list(outside(missing, self._by_operator))
        self._counts.skipped_by_operator = count(missing) - count(left)
        gone = (
            (each.begin, min(each.end, self._log.gone(each.event.at_ms))) for each in self._resets
        )
        skipped = list(outside(left, gone))
        self._counts.expired = count(left) - count(skipped)
        for begin, end in skipped:
            if not self._findings.count(GroupAnomaly.SKIPPED, end - begin):
                continue  # what is only counted needs no evidence to be looked for
            by = self._evidence(begin, end)
            span = f"offset {begin}" if end == begin + 1 else f"offsets {begin} to {end - 1}"
            self._findings.tell(
                GroupAnomaly.SKIPPED,
                f"nobody processed {span}, and {reached} is reached",
                *((committed,) if by is None else (by.before, by.event)),
            )

    def _evidence(self, begin: int, end: int) -> Suspect | None:
        found = (each for each in self._suspects if each.begin < end and begin < each.end)
        return next(found, None)


def outside(ranges: Iterable[Range], holes: Iterable[Range]) -> Iterator[Range]:
    """Yield what of these ranges lies in none of the holes."""
    left = list(ranges)
    for low, high in holes:
        if low >= high:
            continue
        pieces = (
            piece
            for begin, end in left
            for piece in ((begin, min(end, low)), (max(begin, high), end))
        )
        left = [(begin, end) for begin, end in pieces if begin < end]
    yield from left


def count(ranges: Iterable[Range]) -> int:
    return sum(end - begin for begin, end in ranges)
