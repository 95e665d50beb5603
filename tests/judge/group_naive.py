"""A second judge of groups, as plain as can be: lists, and loops in loops.

Written from the rules as they are said (docs/design/judge.md), not from the judge's code, and for
small histories that begin with `group_expected`. Says how many findings there are of each kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

from holdfast.judge.groups.commit_rules import LOOKS_LAG_MS
from holdfast.judge.groups.history import (
    Assigned,
    CalmBegan,
    CalmEnded,
    CommitAcknowledged,
    CommitAsked,
    CommitRefused,
    CommittedSeen,
    ConsumerFault,
    GroupExpected,
    GroupPartitionEvent,
    Joined,
    Left,
    Processed,
    Revoked,
    Started,
)
from holdfast.judge.groups.verdict import GroupAnomaly
from holdfast.judge.history import (
    Acknowledged,
    DeleteRecords,
    DeletionRefused,
    Delivered,
    Event,
    Fault,
    ReadEnd,
    Retention,
)

OUT = ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "FENCED_INSTANCE_ID")


def naive(events: Sequence[Event]) -> Counter[str]:
    """Return the findings of a history of one group, by kind, and what was excused."""
    places = sorted(
        {
            (e.topic, e.partition)
            for e in events
            if isinstance(e, GroupPartitionEvent | Acknowledged | Delivered | ReadEnd)
        }
    )
    found: Counter[str] = Counter()
    for topic, partition in places:
        mine = [
            e
            for e in events
            if (getattr(e, "topic", topic), getattr(e, "partition", partition))
            == (topic, partition)
        ]
        found += NaiveGroup(mine, events).judge()
    return +found


def begun(e: Started | Processed | CommittedSeen) -> float:
    return e.at_ms if e.begin_ms is None else min(e.begin_ms, e.at_ms)


class NaiveGroup:
    """One partition; `n` is a place in the history: what is known are the events before it."""

    def __init__(self, events: Sequence[Event], every: Sequence[Event]) -> None:
        self.events = events
        self.every = every  # of all partitions
        self.found: Counter[str] = Counter()
        expected = [e for e in events if isinstance(e, GroupExpected)]
        self.silence_ms = expected[0].silence_ms if expected else 0.0
        self.looks_may_lag = bool(expected) and expected[0].looks_may_lag
        self.lags_since: float | None = None
        self.asked = [n for n, e in enumerate(events) if isinstance(e, CommitAsked)]
        self.all_given = [n for n, e in enumerate(events) if isinstance(e, Assigned)]
        self.all_owners = self.find_owners()
        self.answers = {
            e.id: (n, e)
            for n, e in enumerate(events)
            if isinstance(e, CommitAcknowledged | CommitRefused)
        }
        self.strays = {k for k in self.asked if self.is_stray(k)}

    def judge(self) -> Counter[str]:
        for n, e in enumerate(self.events):
            if isinstance(e, Assigned):
                self.assigned(n, e)
            elif isinstance(e, Processed):
                self.processed(n, e)
            elif isinstance(e, Started):
                self.told(n, e, e.committed, GroupAnomaly.COMMIT_LOST)
            elif isinstance(e, CommittedSeen):
                self.told(n, e, e.offset, GroupAnomaly.MOVED_BACK)
            elif isinstance(e, CommitAcknowledged):
                self.acknowledged(n, e)
            elif isinstance(e, CommitRefused):
                self.refused(n, e)
        self.skipped()
        self.stuck()
        return self.found

    # -- owners --------------------------------------------------------------------------------

    def given(self, n: int, member: str | None = None) -> list[int]:
        """Places before n at which a member (or any) was assigned it."""
        return [
            k
            for k in self.all_given
            if k < n and member in {None, self.events[k].member}  # type: ignore[attr-defined]
        ]

    def find_owners(self) -> list[int]:
        """Places that made somebody the owner, not told too late."""
        found: list[int] = []
        for k in self.all_given:
            e, last = self.events[k], self.events[found[-1]] if found else None
            assert isinstance(e, Assigned)
            if isinstance(last, Assigned) and last.member != e.member and e.epoch < last.epoch:
                continue
            found.append(k)
        return found

    def owners(self, n: int) -> list[int]:
        return [k for k in self.all_owners if k < n]

    def owner(self, n: int) -> int | None:
        return next(reversed(self.owners(n)), None)

    def mine(self, n: int, member: str) -> int | None:
        return next(reversed(self.given(n, member)), None)

    def span(self, tenure: int, n: int) -> list[tuple[int, Event]]:
        """What the member of a tenure wrote in it, before n."""
        first = self.events[tenure]
        assert isinstance(first, Assigned)
        found = []
        for k in range(tenure + 1, n):
            e = self.events[k]
            if getattr(e, "member", None) == first.member:
                if isinstance(e, Assigned):
                    break
                found.append((k, e))
        return found

    def started(self, tenure: int, n: int) -> int | None:
        found = [k for k, e in self.span(tenure, n) if isinstance(e, Started)]
        return found[-1] if found else None

    def ended(self, tenure: int, n: int) -> Event | None:
        return next((e for _, e in self.span(tenure, n) if isinstance(e, Revoked | Left)), None)

    def successor(self, tenure: int, n: int) -> Event:
        """Who owned it when a tenure was told too late, or became its owner behind it."""
        owners = self.owners(n)
        if tenure in owners:
            member = self.events[tenure].member  # type: ignore[attr-defined]
            return next(
                self.events[k]
                for k in owners
                if k > tenure and self.events[k].member != member  # type: ignore[attr-defined]
            )
        before = self.owner(tenure)
        assert before is not None
        return self.events[before]

    def trouble_ms(self, n: int, process: str) -> float:
        state: set[str] = set()
        ended = -inf
        for e in self.events[:n]:
            if isinstance(e, ConsumerFault) and e.consumer == process:
                if e.action == "CONT":
                    state, ended = state - {"STOP", "SLOW"}, e.at_ms
                elif e.action == "HEAL":
                    state, ended = state - {"CUT"}, e.at_ms
                else:
                    state = state | {e.action}
            elif isinstance(e, Joined) and e.process == process and "KILL" in state:
                state, ended = set(), e.at_ms
        return inf if state else ended

    def assigned(self, n: int, e: Assigned) -> None:
        old = self.owner(n)
        if old is None:
            return
        o = self.events[old]
        assert isinstance(o, Assigned)
        if o.member == e.member or e.epoch < o.epoch:
            return
        if e.instance is not None and e.instance == o.instance:
            return
        if e.epoch == o.epoch:
            self.found[GroupAnomaly.TWO_OWNERS] += 1
            return
        if self.ended(old, n) is not None:
            return
        signs = [o.at_ms]
        place = next(k for k, x in enumerate(self.every) if x is e)
        before = self.every[:place]
        signs += [
            x.at_ms for x in before if isinstance(x, Joined | Assigned) and x.member == o.member
        ]
        names = {x.id for x in before if isinstance(x, CommitAcknowledged)}
        signs += [
            x.at_ms
            for x in before
            if isinstance(x, CommitAsked) and x.member == o.member and x.id in names
        ]
        is_expected = any(isinstance(x, GroupExpected) for x in self.events[:n])
        if self.trouble_ms(n, o.process) >= max(signs):
            return
        if is_expected and e.at_ms - max(signs) >= self.silence_ms:
            return
        self.found[GroupAnomaly.TWO_OWNERS] += 1

    def may_process(self, n: int, e: Processed) -> bool:
        tenure = self.mine(n, e.member)
        if tenure is None or self.started(tenure, n) is None:
            return False
        ended = self.ended(tenure, n)
        if ended is not None and begun(e) > ended.at_ms:
            return False
        if tenure == self.owner(n):
            return True
        successor = self.successor(tenure, n)
        for k, x in enumerate(self.events[:n]):
            if isinstance(x, CommitRefused) and begun(e) > x.at_ms:
                asked = next(j for j in self.asked if self.events[j].id == x.id)  # type: ignore[attr-defined]
                if self.tenure_of(asked) == tenure:
                    late = self.events[asked].at_ms >= successor.at_ms and self.is_behind(k, tenure)
                    if x.error in OUT or (x.error == "ILLEGAL_GENERATION" and late):
                        return False
        process = self.events[tenure].process
        limit = max(successor.at_ms, self.trouble_ms(n, process)) + self.silence_ms
        return begun(e) <= limit

    def is_behind(self, n: int, tenure: int) -> bool:
        """Whether it had a successor by then."""
        return self.owner(n) != tenure

    def next(self, tenure: int, n: int) -> int:
        start = self.started(tenure, n)
        done = [
            e.offset + 1
            for k, e in self.span(tenure, n)
            if isinstance(e, Processed) and (start is None or k > start)
        ]
        begin = -1 if start is None else self.events[start].offset  # type: ignore[attr-defined]
        return max([begin, *done])

    def done(self, n: int) -> set[int]:
        return {e.offset for e in self.events[:n] if isinstance(e, Processed)}

    def processed(self, n: int, e: Processed) -> None:
        allowed = self.may_process(n, e)
        if not allowed:
            self.found[GroupAnomaly.TWO_OWNERS] += 1
            return
        if e.offset not in self.done(n):
            return
        tenure = self.mine(n, e.member)
        assert tenure is not None
        start = self.started(tenure, n)
        assert start is not None
        if e.offset < self.next(tenure, n) or e.offset < self.floor(start):
            self.found[GroupAnomaly.PROCESSED_TWICE] += 1
        else:
            self.found["repeated"] += 1

    # -- commits -------------------------------------------------------------------------------

    def tenure_of(self, k: int) -> int | None:
        return self.mine(k, self.events[k].member)  # type: ignore[attr-defined]

    def stray(self, k: int) -> bool:
        return k in self.strays

    def is_stray(self, k: int) -> bool:
        e = self.events[k]
        assert isinstance(e, CommitAsked)
        if not e.member:
            return False
        tenure = self.tenure_of(k)
        if tenure is None or tenure != self.owner(k):
            return True
        return 0 <= e.epoch < int(self.events[tenure].epoch)  # type: ignore[attr-defined]

    def answer(self, k: int, n: int) -> Event | None:
        name = self.events[k].id  # type: ignore[attr-defined]
        place, answer = self.answers.get(name, (n, None))
        return answer if place < n else None

    def end_ms(self, k: int, n: int) -> float:
        """When a commit had taken effect for certain, as is known before n. -1: the very first."""
        if k < 0:
            return -inf
        answer = self.answer(k, n)
        found = [answer.at_ms] if isinstance(answer, CommitAcknowledged) else []
        if self.events[k].member and not self.stray(k):  # type: ignore[attr-defined]
            found += [self.events[j].at_ms for j in self.owners(n) if j > k]
        return min(found, default=inf)

    def asked_ms(self, k: int) -> float:
        return -inf if k < 0 else self.events[k].at_ms

    def offset(self, k: int) -> int | None:
        return None if k < 0 else self.events[k].offset  # type: ignore[attr-defined]

    def known(self, n: int) -> list[int]:
        """Commits that have or may have taken effect."""
        found = [-1]
        for k in self.asked:
            if k < n:
                answer = self.answer(k, n)
                if isinstance(answer, CommitAcknowledged) or (answer is None and not self.stray(k)):
                    found.append(k)
        return found

    def is_acknowledged(self, k: int, n: int) -> bool:
        return k < 0 or isinstance(self.answer(k, n), CommitAcknowledged)

    def may_stand(self, begin_ms: float, n: int) -> list[int]:
        known = self.known(n)
        found = []
        for k in known:
            over = [
                self.end_ms(j, n)
                for j in known
                if j != k and self.is_acknowledged(j, n) and self.end_ms(k, n) < self.asked_ms(j)
            ]
            if min(over, default=inf) >= begin_ms:
                found.append(k)
        return found

    def matches(self, n: int) -> list[int]:
        e = self.events[n]
        assert isinstance(e, Started | CommittedSeen)
        told = e.committed if isinstance(e, Started) else e.offset
        return [k for k in self.may_stand(begun(e), n) if self.offset(k) == told]

    def floor(self, n: int) -> int:
        e = self.events[n]
        assert isinstance(e, Started)
        if self.matches(n):
            return e.committed or 0
        return min(self.offset(k) or 0 for k in self.may_stand(begun(e), n))

    def told(
        self, n: int, e: Started | CommittedSeen, told: int | None, behind: GroupAnomaly
    ) -> None:
        if self.matches(n):
            self.lags_since = None if isinstance(e, CommittedSeen) else self.lags_since
            return
        every = [-1 if (o := self.offset(k)) is None else o for k in self.may_stand(begun(e), n)]
        is_behind = (-1 if told is None else told) < min(every)
        if is_behind and self.looks_may_lag and isinstance(e, CommittedSeen):
            if self.lags_since is None:
                self.lags_since = begun(e)
            self.lags_since = min(self.lags_since, begun(e))
            later = any(isinstance(x, CommittedSeen) for x in self.events[n + 1 :])
            if later and e.at_ms <= self.lags_since + LOOKS_LAG_MS:
                return
        if not is_behind and isinstance(e, CommittedSeen):
            self.lags_since = None
        self.found[behind if is_behind else GroupAnomaly.INVENTED] += 1

    def asked_at(self, e: CommitAcknowledged | CommitRefused) -> int:
        return next(k for k in self.asked if self.events[k].id == e.id)  # type: ignore[attr-defined]

    def acknowledged(self, n: int, e: CommitAcknowledged) -> None:
        k = self.asked_at(e)
        if self.stray(k):
            self.found[GroupAnomaly.STRAY_COMMIT] += 1
            if (self.offset(k) or 0) < self.reached(n):
                self.found[GroupAnomaly.MOVED_BACK] += 1
            return
        owner = self.owner(n)
        if not self.events[k].member or owner is None or owner == self.tenure_of(k):  # type: ignore[attr-defined]
            return
        start = self.started(owner, n)
        if start is None:
            return
        source = max((self.end_ms(j, start) for j in self.matches(start)), default=inf)
        told = self.events[start].committed  # type: ignore[attr-defined]
        if source < self.asked_ms(k) and (-1 if told is None else told) < (self.offset(k) or 0):
            self.found[GroupAnomaly.COMMIT_LOST] += 1

    def refused(self, n: int, e: CommitRefused) -> None:
        k = self.asked_at(e)
        for j, w in enumerate(self.events[:n]):
            if not isinstance(w, Started | CommittedSeen) or j < k:
                continue
            found = self.matches(j)
            if k not in found or any(self.is_acknowledged(i, j) for i in found):
                continue
            others = (i for i in self.known(n) if i != k and self.offset(i) == self.offset(k))
            if not any(self.asked_ms(i) <= w.at_ms for i in others):
                self.found[GroupAnomaly.INVENTED] += 1
            return

    def reached(self, n: int) -> int:
        """What the last acknowledged commit covers."""
        found = 0
        for e in self.events[:n]:
            if isinstance(e, CommitAcknowledged):
                asked = self.events[self.asked_at(e)]
                assert isinstance(asked, CommitAsked)
                covers = asked.offset or 0
                found = covers if asked.member else min(found, covers)
        return found

    # -- what nobody processed -----------------------------------------------------------------

    def skipped(self) -> None:
        n = len(self.events)
        starts = [(k, e) for k, e in enumerate(self.events) if isinstance(e, Started)]
        if not starts:
            return
        base = min(
            (0 if e.reset == "earliest" else e.offset)
            if e.committed is None
            else min(e.committed, e.offset)
            for _, e in starts
        )
        reached = max([self.reached(n), *(offset + 1 for offset in self.done(n))])
        missing = {o for o in self.records() if base <= o < reached} - self.done(n)
        operator: set[int] = set()
        expired: set[int] = set()
        for k, e in starts:
            matches = self.matches(k)
            before = max([self.reached(k), *(offset + 1 for offset in self.done(k))])
            if matches and all(j >= 0 and not self.events[j].member for j in matches):  # type: ignore[attr-defined]
                operator |= set(range(before, e.offset))
            low = 0 if e.committed is None and e.reset == "earliest" else e.committed
            if low is not None:
                expired |= set(range(low, min(e.offset, self.gone(e.at_ms))))
        self.found["operator"] += len(missing & operator)
        self.found["expired"] += len((missing - operator) & expired)
        self.found[GroupAnomaly.SKIPPED] += len(missing - operator - expired)

    def whole(self) -> tuple[ReadEnd | None, set[int]]:
        last = next((e for e in reversed(self.events) if isinstance(e, ReadEnd)), None)
        read: set[int] = set()
        for e in self.events:
            if last is not None and e.process == last.process:
                if isinstance(e, Delivered):
                    read.add(e.offset)
                elif isinstance(e, ReadEnd) and e is not last:
                    read.clear()
                elif e is last:
                    break
        return last, read

    def records(self) -> set[int]:
        acknowledged = {
            e.offset for e in self.events if isinstance(e, Acknowledged) and e.offset is not None
        }
        last, read = self.whole()
        if last is None:
            return acknowledged
        inside = set(range(last.begin, last.end))
        return (acknowledged - inside) | (read & inside)

    def gone(self, by_ms: float) -> int:
        last, _ = self.whole()
        if last is None:
            return 0
        named = [0]
        for e in self.events:
            if (
                e.at_ms <= by_ms
                and isinstance(e, Retention)
                and (e.retention_ms, e.retention_bytes) != (None, None)
            ):
                return last.begin
        deletions = [e for e in self.events if isinstance(e, DeleteRecords)]
        for e in self.events:
            if isinstance(e, DeletionRefused):
                same = [d for d in deletions if (d.process, d.offset) == (e.process, e.offset)]
                deletions = [d for d in deletions if not same or d is not same[-1]]
        named += [d.offset for d in deletions if d.at_ms <= by_ms]
        return min(last.begin, max(named))

    # -- stuck ---------------------------------------------------------------------------------

    def stuck(self) -> None:
        since, calm, live_ms, position, end = inf, None, inf, 0, 0
        members: dict[str, str] = {}

        def check(now: float) -> None:
            nonlocal since
            if calm is not None and now - max(since, calm.at_ms, live_ms) > calm.stuck_ms:
                self.found[GroupAnomaly.STUCK] += 1
                since = now

        for n, e in enumerate(self.events):
            if isinstance(e, Acknowledged) and e.offset is not None and e.offset >= end:
                end = e.offset + 1
                if since == inf and position < end:
                    since = e.at_ms
            elif isinstance(e, Processed):
                owner = self.owner(n)
                if owner is not None and owner == self.mine(n, e.member):
                    check(e.at_ms)
                    position = self.next(owner, n + 1)
                    since = e.at_ms if position < end else inf
            elif isinstance(e, Left | CalmBegan | CalmEnded | Fault | ConsumerFault):
                check(e.at_ms)
                if not isinstance(e, Left):
                    calm = e if isinstance(e, CalmBegan) else None
            if isinstance(e, Assigned | Started | Revoked | Left):
                place = self.place(n + 1)
                is_late = isinstance(e, Assigned) and self.owner(n + 1) != n
                if not is_late:
                    if place >= end:
                        since, position = inf, place
                    elif since == inf:
                        since = e.at_ms
            if isinstance(e, Joined):
                members[e.member] = e.process
            elif isinstance(e, Left):
                members.pop(e.member, None)
            elif isinstance(e, ConsumerFault) and e.action == "KILL":
                members = {m: p for m, p in members.items() if p != e.consumer}
            if isinstance(e, Joined | Left | ConsumerFault):
                live = any(self.trouble_ms(n + 1, p) < inf for p in members.values())
                live_ms = min(live_ms, e.at_ms) if live else inf
        check(max((e.at_ms for e in self.events), default=0.0))

    def place(self, n: int) -> int:
        """What is to be processed next."""
        owner = self.owner(n)
        if owner is not None and self.started(owner, n) is not None and not self.ended(owner, n):
            return self.next(owner, n)
        starts = [e for e in self.events[:n] if isinstance(e, Started)]
        bases = [
            (0 if e.reset == "earliest" else e.offset)
            if e.committed is None
            else min(e.committed, e.offset)
            for e in starts
        ]
        done = [offset + 1 for offset in self.done(n)]
        return max([0, min(bases, default=0), *done])
