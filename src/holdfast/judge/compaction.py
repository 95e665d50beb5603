"""Whether a record may be gone because a later one has its key. Only events allow it.

Owns that one excuse. What compaction leaves of a key is its last record, so a record is replaced by
one that stands where it is missing, at a higher offset: in the same log, be that the one which a
reader was given or one replica's. Nothing excuses the last record of a key: of deleted keys, which
may be forgotten, histories don't tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from holdfast.judge.history import Compaction, Event
from holdfast.judge.sends import Sends

NEVER_MS = -inf


class Compactions:
    """What events say of compaction, in one partition."""

    def __init__(self) -> None:
        self._events: list[Compaction] = []

    def add(self, event: Compaction) -> None:
        self._events.append(event)

    def allowed_by(self, gone: Event) -> Compaction | None:
        """Return what allows that something is gone when this shows that it is; None: nothing."""
        allowing = [each for each in self._events if each.is_on and each.at_ms <= gone.at_ms]
        return allowing[-1] if allowing else None

    @property
    def until_ms(self) -> float:
        """Until when a record that was sent could replace another; `NEVER_MS`: at no time."""
        if not any(each.is_on for each in self._events):
            return NEVER_MS
        return inf if self._events[-1].is_on else self._events[-1].at_ms


class Survivors:
    """Where each key stands last in one log."""

    def __init__(self, sends: Sends, stands: Iterable[tuple[int, int]], until_ms: float) -> None:
        """`stands`: offset and code of what is there, in order; what was sent later counts not.

        Later than `until_ms`, that is. A code is a row, or negative where nobody sent what stands
        there: that replaces nothing.
        """
        self._sends = sends
        self._nobodys = sends.key_codes.get(None, -1)
        self._last: dict[int, int] = {}
        if until_ms == NEVER_MS:
            return
        last, keys, sent_ms = self._last, sends.keys, sends.sent_ms
        for offset, row in stands:
            if row >= 0 and sent_ms[row] <= until_ms:
                last[keys[row]] = offset

    def replace(self, row: int, offset: int) -> bool:
        """Whether what was sent in this row, and stood at this offset, was replaced by a later one.

        `row` -1: a record that nobody sent, which nothing excuses.
        """
        if row < 0:
            return False
        key = self._sends.keys[row]
        return key != self._nobodys and self._last.get(key, -1) > offset
