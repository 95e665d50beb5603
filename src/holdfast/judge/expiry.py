"""Whether a record may be gone with its log's beginning. Only events allow it, never the broker.

Owns the three excuses: DeleteRecords by offset, retention by time, retention by size. Each is
weighed against the moment at which the record was found gone.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from holdfast.judge.history import DeleteRecords, Event, Retention
from holdfast.judge.sends import Sends
from holdfast.judge.verdict import Excuse

Allowed = tuple[Excuse, Retention | DeleteRecords]


class Cover:
    """What may be gone, for whoever found at one moment that it is."""

    def __init__(
        self,
        sends: Sends,
        deletion: DeleteRecords | None,
        aged: list[tuple[Retention, int]],
        sized: Retention | None,
    ) -> None:
        """`aged`: policies and until when, on the wall's clock, each was in force at most."""
        self._sends = sends
        self._deletion = deletion
        self._aged = aged
        self._sized = sized

    def allows(self, row: int, offset: int) -> Allowed | None:
        """Say what allows that a record is gone. None: nothing does.

        `row` -1: a record that nobody sent, which no age excuses.
        """
        if self._deletion is not None and offset < self._deletion.offset:
            return Excuse.DELETED, self._deletion
        if row >= 0:
            own_ms = self._sends.own_time_ms(row)
            for policy, until_ms in self._aged:
                if own_ms + (policy.retention_ms or 0) < until_ms:
                    return Excuse.TIME, policy
        return None if self._sized is None else (Excuse.SIZE, self._sized)


class Expiries:
    """What events say may go, in one partition."""

    def __init__(self, sends: Sends) -> None:
        self._sends = sends
        self._deletions: list[DeleteRecords] = []
        self._policies: list[Retention] = []

    def add(self, event: Retention | DeleteRecords) -> None:
        if isinstance(event, DeleteRecords):
            self._deletions.append(event)
        else:
            self._policies.append(event)

    def cover(self, gone: Event, bytes_behind: Callable[[float], int]) -> Cover:
        """Say what may be gone when `gone` shows that something is.

        `bytes_behind`: how much, at least, was sent before a moment and stands where the log goes
        on. All that is gone had so much behind it, or more.
        """
        deletions = [each for each in self._deletions if each.at_ms <= gone.at_ms]
        policies = [each for each in self._policies if each.at_ms <= gone.at_ms]
        ages, sized = [], None
        for number, policy in enumerate(policies):
            next_one = policies[number + 1] if number + 1 < len(policies) else None
            if policy.retention_ms is not None:
                ages.append((policy, (next_one or gone).wall_ms))
            least, until_ms = policy.retention_bytes, next_one.at_ms if next_one else inf
            if least is not None and least <= bytes_behind(until_ms):
                sized = policy
        return Cover(
            self._sends,
            max(deletions, key=lambda each: each.offset, default=None),
            ages,
            sized,
        )
