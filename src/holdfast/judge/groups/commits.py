"""What the committed offset of one partition can have been at a moment, as its commits prove.

A commit takes effect once, between its request and its answer; without an answer at any moment
until the partition is given to another member, since later the coordinator refuses it. So it is
certainly overwritten by one that was acknowledged and asked for when the first was over.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf

from holdfast.judge.groups.history import CommitAsked, GroupPartitionEvent
from holdfast.judge.sends import HistoryTooLargeError

LIVE_MAX = 4096  # commits, none of which is certainly overwritten
OVER_MAX = 256  # that are, kept for those who asked before


@dataclass(slots=True, eq=False)
class Commit:
    """One commit, or that nothing was committed at first (without an event)."""

    event: CommitAsked | None
    offset: int | None
    asked_ms: float
    end_ms: float = inf  # it has taken effect by then, or never will
    acknowledged: bool = False
    over_ms: float = inf  # from then on another one certainly stands in its place
    is_stray: bool = False  # of who did not own the partition: it must be refused
    seen_by: GroupPartitionEvent | None = (
        None  # who was told its offset, and only commits in doubt explain it
    )

    @property
    def by_operator(self) -> bool:
        return self.event is not None and not self.event.member


class Committed:
    """The committed offset of one partition, as a set of commits that may stand."""

    def __init__(self) -> None:
        first = Commit(event=None, offset=None, asked_ms=-inf, end_ms=-inf, acknowledged=True)
        self._live: list[Commit] = [first]
        self._over: deque[Commit] = deque()
        self._forgotten_ms = -inf

    def ask(self, commit: Commit) -> None:
        if len(self._live) >= LIVE_MAX:
            raise HistoryTooLargeError(f"more than {LIVE_MAX} commits of one owner in doubt")
        self._live.append(commit)

    def acknowledge(self, commit: Commit, at_ms: float) -> None:
        commit.acknowledged = True
        if commit.end_ms < at_ms:  # it was over when the partition went to another
            for each in self._over:
                if each.end_ms < commit.asked_ms:
                    each.over_ms = min(each.over_ms, commit.end_ms)
                if each.acknowledged and commit.end_ms < each.asked_ms:
                    commit.over_ms = min(commit.over_ms, each.end_ms)
        commit.end_ms = min(commit.end_ms, at_ms)
        live: list[Commit] = []
        for each in self._live:
            if each.acknowledged and commit.end_ms < each.asked_ms:
                commit.over_ms = min(commit.over_ms, each.end_ms)
            if each.end_ms < commit.asked_ms:
                each.over_ms = min(each.over_ms, commit.end_ms)
            (self._keep if each.over_ms < inf else live.append)(each)
        if commit.over_ms < inf and commit in live:
            live.remove(commit)
            self._keep(commit)
        self._live = live

    def _keep(self, commit: Commit) -> None:
        self._over.append(commit)
        if len(self._over) > OVER_MAX:
            self._forgotten_ms = max(self._forgotten_ms, self._over.popleft().over_ms)

    def refuse(self, commit: Commit) -> None:
        if commit in self._live:
            self._live.remove(commit)

    def explains(self, offset: int | None, at_ms: float) -> bool:
        """Whether there is a commit that somebody can have been told then, had it no answer yet."""
        every = (*self._live, *self._over)
        return any(each.offset == offset and each.asked_ms <= at_ms for each in every)

    def hand_over(self, at_ms: float) -> None:
        """Bound what is in doubt: the partition is another's, and members' commits are fenced."""
        for each in self._live:
            if not each.by_operator:
                each.end_ms = min(each.end_ms, at_ms)

    def knows(self, begin_ms: float) -> bool:
        """Whether all is still known that could be told to who asked then."""
        return begin_ms > self._forgotten_ms

    def may_stand(self, begin_ms: float) -> list[Commit]:
        """Return what could be told, as far as is known now, to who began to ask then."""
        over = [each for each in self._over if each.over_ms >= begin_ms]
        return over + self._live


def lowest(commits: list[Commit]) -> Commit:
    """Return the one that goes back furthest; of those that do, the latest."""
    assert commits, "one of all commits is the last"
    return min(reversed(commits), key=lambda each: -1 if each.offset is None else each.offset)
