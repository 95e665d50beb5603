"""Whether records wait: since when one is there that its owner has not processed, and how long."""

from __future__ import annotations

from math import inf

from holdfast.judge.groups.history import Processed
from holdfast.judge.groups.log import GroupLog
from holdfast.judge.groups.members import Group
from holdfast.judge.groups.tenures import Tenure
from holdfast.judge.groups.verdict import GroupAnomaly, GroupFindings

NOTHING_WAITS = inf


class Waiting:
    """The clock of one partition. It runs while acknowledged records are not processed."""

    def __init__(self, findings: GroupFindings, group: Group, log: GroupLog) -> None:
        self._findings = findings
        self._group = group
        self._log = log
        self._position = 0
        self._is_listed = False
        self._since_ms = -inf  # since ever, as far as anybody knows
        self.longest_ms = 0.0
        self.was_seen = False  # in peace, moving or with nothing to do, or for long enough
        if not log.end:
            self._rest(0)

    def progress(self, event: Processed, position: int) -> None:
        """Take in that its owner has processed a record, and goes on at `position`."""
        at_ms, since_ms = event.at_ms, self._since_ms
        if self.longest_ms < at_ms - since_ms < inf:
            self.longest_ms = at_ms - since_ms
        calm = self._group.calm
        if calm is not None:
            self.was_seen |= at_ms >= self._group.peace_ms
            if at_ms - since_ms > calm.stuck_ms:
                self.check(at_ms, None, event)
        if position < self._log.end:
            self._since_ms = at_ms
        else:
            self._rest(position)

    def _rest(self, position: int) -> None:
        self._position = position
        self._since_ms = NOTHING_WAITS
        if not self._is_listed:
            self._is_listed = True
            self._log.sleepers.append(self)

    def wake(self, at_ms: float) -> None:
        """Take notice that a record was acknowledged behind all others."""
        self._is_listed = False
        if self._since_ms < NOTHING_WAITS:
            return
        if self._log.end > self._position:
            self._since_ms = at_ms
        else:  # it was processed before its producer was told
            self._rest(self._position)

    def look(self, at_ms: float, position: int) -> None:
        """Take notice that the partition goes on at `position`, or with another owner."""
        if position >= self._log.end:
            self._rest(position)
        elif self._since_ms == NOTHING_WAITS:
            self._since_ms = at_ms

    def check(self, at_ms: float, owner: Tenure | None, event: Processed | None = None) -> None:
        """Tell if records have waited for too long by now, in peace."""
        group, calm = self._group, self._group.calm
        begin_ms = max(self._since_ms, group.peace_ms)
        if calm is None:
            return
        is_long = at_ms - group.peace_ms > calm.stuck_ms
        self.was_seen |= is_long or self._since_ms == NOTHING_WAITS
        if at_ms - begin_ms <= calm.stuck_ms:
            return
        given = None if owner is None else owner.assigned
        before = None if owner is None else owner.last
        text = f"nothing was processed for {at_ms - begin_ms:.0f} ms, and records wait"
        self._findings.find(GroupAnomaly.STUCK, text, calm, self._log.last, given, before, event)
        self._since_ms = at_ms
