"""Which logs are to be looked at, and which of those that are due is compacted next. Pure.

Owns the order. A log is looked at when something of it has changed, when it is synced and
committed as far as it was told to wait for, or when its time has come; a log that none of this
concerns costs nothing. Of those that are due the dirtiest is next, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from itertools import count, islice
from typing import Generic, TypeVar

LogT = TypeVar("LogT", bound=Hashable)


class CleanerQueue(Generic[LogT]):
    """A log is in one place at most, or waits for an offset and a time, whichever comes first."""

    def __init__(self) -> None:
        self._changed: dict[LogT, None] = {}
        self._behind: dict[LogT, int] = {}  # has to reach this offset
        self._later: dict[LogT, int] = {}  # ms since 1970
        self._due: dict[LogT, float] = {}  # how dirty it is
        # Both heaps may hold what is not so any more.
        self._times: list[tuple[int, int, LogT]] = []
        self._dirtiest: list[tuple[float, int, LogT]] = []
        self._number = count()

    @property
    def has_changed(self) -> bool:
        """Whether logs wait to be looked at."""
        return bool(self._changed)

    @property
    def is_behind(self) -> bool:
        """Whether logs wait for their high watermarks or recovery points."""
        return bool(self._behind)

    @property
    def next_ms(self) -> int | None:
        """When the time of the next log has come; None: of none it ever does."""
        while self._times and self._later.get(self._times[0][2]) != self._times[0][0]:
            heappop(self._times)
        return self._times[0][0] if self._times else None

    def changed(self, log: LogT) -> None:
        """Have a log looked at, whatever is known of it."""
        self.forget(log)
        self._changed[log] = None

    def forget(self, log: LogT) -> None:
        for place in (self._changed, self._behind, self._later, self._due):
            place.pop(log, None)

    def look_later(self, log: LogT, *, offset: int | None, at_ms: int | None) -> None:
        """Have it looked at once it has reached an offset, or at a time. None: never by that."""
        self.forget(log)
        if offset is not None:
            self._behind[log] = offset
        if at_ms is not None:
            self._later[log] = at_ms
            heappush(self._times, (at_ms, next(self._number), log))

    def due(self, log: LogT, dirtiness: float) -> None:
        self.forget(log)
        self._due[log] = dirtiness
        heappush(self._dirtiest, (-dirtiness, next(self._number), log))

    def time_is(self, now_ms: int, reached: Callable[[LogT], int]) -> None:
        """Have all those looked at whose time has come, or that have reached their offset."""
        while (at_ms := self.next_ms) is not None and at_ms <= now_ms:
            self.changed(heappop(self._times)[2])
        for log in [log for log, offset in self._behind.items() if reached(log) >= offset]:
            self.changed(log)

    def take_changed(self, most: int) -> list[LogT]:
        """Return some logs to be looked at; whoever does says what comes of it."""
        taken = list(islice(self._changed, most))
        for log in taken:
            del self._changed[log]
        return taken

    def take_dirtiest(self) -> LogT | None:
        """Return the log that is compacted next; None: none is due."""
        while self._dirtiest:
            dirtiness, _, log = heappop(self._dirtiest)
            if self._due.get(log) == -dirtiness:
                del self._due[log]
                return log
        return None
