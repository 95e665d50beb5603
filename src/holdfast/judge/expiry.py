"""Whether a record may be gone with its log's beginning. Only events allow it, never the broker.

Owns the three excuses: DeleteRecords by offset, retention by time, retention by size. Each is
weighed against the moment at which the record was found gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nextafter

from holdfast.judge.history import (
    Compaction,
    DeleteRecords,
    DeletionRefused,
    Event,
    HistoryError,
    Position,
    Retention,
)
from holdfast.judge.replicas import ReplicaFiles
from holdfast.judge.sends import Sends
from holdfast.judge.sizes import BATCH_OVERHEAD, Sizes
from holdfast.judge.verdict import Excuse

Allowed = tuple[Excuse, Retention | DeleteRecords | Compaction]


@dataclass(slots=True)
class Sized:
    """A policy by size, and how far it reaches. Bytes are those behind the log's beginning."""

    policy: Retention
    limit: int
    until_ms: float  # only what was sent before that counts
    certain: int
    possible: int
    allowed_below: float = -inf  # offsets that had the limit behind them for certain
    open_below: float = -inf  # offsets that had it behind them at most

    def reached(self, offset: float) -> None:
        """Take note that all offsets below this one had so many bytes behind them."""
        if self.allowed_below < 0 and self.certain >= self.limit:
            self.allowed_below = offset
        if self.open_below < 0 and self.possible >= self.limit:
            self.open_below = offset


class Cover:
    """What may be gone, for whoever found at one moment that it is."""

    def __init__(
        self, sends: Sends, deletion: DeleteRecords | None, aged: list[tuple[Retention, int]]
    ) -> None:
        """`aged`: policies and until when, on the wall's clock, each was in force at most."""
        self._sends = sends
        self._deletion = deletion
        self._aged = aged
        self._sized: Sequence[Sized] = ()

    def allows(self, row: int, offset: int) -> Allowed | None:
        """Say what allows that a record is gone. None: nothing does for certain.

        `row` -1: a record that nobody sent, which no age excuses.
        """
        due = self.due(row, offset)
        if due is not None:
            return due
        for sized in self._sized:
            if offset < sized.allowed_below:
                return Excuse.SIZE, sized.policy
        return None

    def leaves_open(self, offset: int) -> bool:
        """Whether nobody can say if retention by size allowed that a record is gone."""
        return any(offset < sized.open_below for sized in self._sized)

    def due(self, row: int, offset: int) -> Allowed | None:
        """Say what allows it beside retention by size."""
        if self._deletion is not None and offset < self._deletion.offset:
            return Excuse.DELETED, self._deletion
        if row >= 0:
            own_ms = self._sends.own_time_ms(row)
            for policy, until_ms in self._aged:
                if own_ms + (policy.retention_ms or 0) < until_ms:
                    return Excuse.TIME, policy
        return None

    def weigh(self, sized: Sequence[Sized], begin: int) -> None:
        """Find out how far policies by size reach: behind a record stood also what is gone since.

        Size may have taken a record first, and age later what stood behind it. So what is gone for
        another reason counts for what stood before it. What is gone for none counts for nothing.
        """
        self._sized = sized
        for each in sized:
            each.reached(inf)
        if any(each.allowed_below == inf for each in sized):
            return
        sends = self._sends
        gone = [
            (offset, row)
            for row, offset in enumerate(sends.offsets)
            if 0 <= offset < begin and self.due(row, offset) is not None
        ]
        for offset, row in sorted(gone, reverse=True):
            for each in sized:
                if sends.sent_ms[row] < each.until_ms:
                    each.certain += sends.sizes[row]
                    each.possible += sends.sizes[row] + BATCH_OVERHEAD
                    each.reached(offset)


class Expiries:
    """What events say may go, in one partition."""

    def __init__(self, sends: Sends) -> None:
        self._sends = sends
        self._deletions: list[DeleteRecords] = []
        self._policies: list[Retention] = []

    def add(self, event: Retention | DeleteRecords | DeletionRefused) -> None:
        """Take an event in. HistoryError: what was refused was never asked for."""
        if isinstance(event, Retention):
            self._policies.append(event)
        elif isinstance(event, DeleteRecords):
            self._deletions.append(event)
        else:
            self._refuse(event)

    def _refuse(self, event: DeletionRefused) -> None:
        for index in reversed(range(len(self._deletions))):
            asked = self._deletions[index]
            if (asked.process, asked.offset) == (event.process, event.offset):
                del self._deletions[index]
                return
        raise HistoryError(f"{event.process} was refused a deletion that it never asked for")

    def cover(
        self, gone: Event, begin: int, replicas: Sequence[ReplicaFiles], sizes: Sizes
    ) -> Cover:
        """Say what may be gone when `gone` shows that a log begins at `begin`.

        What stands in the largest of these replicas stands behind all that is gone, if it had been
        sent by then: a reader is told long before the files are looked at.
        """
        now_ms = nextafter(gone.at_ms, inf) if isinstance(gone, Position) else inf
        deletions = [each for each in self._deletions if each.at_ms <= gone.at_ms]
        policies = [each for each in self._policies if each.at_ms <= gone.at_ms]
        ages, limits = [], []
        for number, policy in enumerate(policies):
            next_one = policies[number + 1] if number + 1 < len(policies) else None
            if policy.retention_ms is not None:
                ages.append((policy, (next_one or gone).wall_ms))
            if policy.retention_bytes is not None:
                until_ms = next_one.at_ms if next_one else now_ms
                limits.append((policy, policy.retention_bytes, until_ms))
        deletion = max(deletions, key=lambda each: each.offset, default=None)
        cover = Cover(self._sends, deletion, ages)
        sized = []
        for policy, limit, until_ms in reversed(limits):  # of two that allow it the later is told
            certain, possible = sizes.in_files(replicas, begin, until_ms)
            if certain < limit:
                possible += sizes.in_doubt(
                    begin, until_ms, lambda row: cover.due(row, begin - 1) is not None
                )
            sized.append(Sized(policy, limit, until_ms, certain, possible))
        if sized:
            cover.weigh(sized, begin)
        return cover
