"""What a fetcher knows of one partition that it follows, in one leader epoch.

Owns the state of following (being asked for, looked up, set aside, or over), and who is put off
until when. It sends nothing.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from holdfast.core.replica.follower_session import Position
from holdfast.node.broker.replica import FollowingReplica


class State(Enum):
    FETCHING = auto()
    LOOKING = auto()  # our offset is not in the leader's log: asking where it begins and ends
    FENCED = auto()  # the leader epoch is over: only new metadata helps
    FAILED = auto()  # our disk failed


@dataclass(slots=True, eq=False)
class Following:
    """One partition that is fetched, in one leader epoch."""

    replica: FollowingReplica
    state: State = State.FETCHING
    retry_at: float = 0.0  # loop time, seconds; not asked for before
    in_sync: bool = False  # as the last answer showed: its high watermark is not beyond our end
    too_early: int = 0  # how often the leader had not yet heard that it leads
    trouble: str = ""  # why it is set aside, asked for alone and apart; empty: it is not
    attempts: int = 0  # how often that has failed

    def __repr__(self) -> str:
        return repr(self.replica)

    @property
    def position(self) -> Position:
        """What a fetch says of our log."""
        replica = self.replica
        log = replica.log
        return Position(replica.leader_epoch, log.end, log.latest_epoch, log.start)


class Pauses:
    """Who is asked for again later, by time; `due` is called for each when it is time."""

    __slots__ = ("_count", "_due", "_heap", "_timer")

    def __init__(self, due: Callable[[Following], None]) -> None:
        self._due = due
        self._heap: list[tuple[float, int, Following]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, following: Following, wait_ms: int) -> None:
        """Put one off; what it was put off to before counts no more."""
        following.retry_at = asyncio.get_running_loop().time() + wait_ms / 1000
        self._count += 1
        heapq.heappush(self._heap, (following.retry_at, self._count, following))
        self._arm()

    def close(self) -> None:
        """Forget everything."""
        self._heap.clear()
        self._arm()

    def _arm(self) -> None:
        """Have one timer, for the first of them."""
        when = self._heap[0][0] if self._heap else None
        if self._timer is not None:
            if self._timer.when() == when:
                return
            self._timer.cancel()
            self._timer = None
        if when is not None:
            self._timer = asyncio.get_running_loop().call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._heap and self._heap[0][0] <= now:
            when, _, following = heapq.heappop(self._heap)
            if following.retry_at == when:
                self._due(following)
        self._arm()
