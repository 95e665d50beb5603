"""A second judge, as plain as can be: lists, and loops in loops.

Written from the rules as they are said (docs/design/judge.md), not from the judge's code, and for
small histories of one partition that was read to its end. It says how many findings there are, and
whether anything is left undecided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise, zip_longest

from holdfast.judge.history import (
    NO_TIMESTAMP,
    Acknowledged,
    DeleteRecords,
    DeletionRefused,
    Delivered,
    Event,
    LeaderChange,
    Position,
    ReadEnd,
    Refused,
    Replica,
    ReplicaBatch,
    Retention,
    Send,
    Unknown,
)
from holdfast.judge.verdict import Anomaly

BATCH_OVERHEAD = 128  # bytes, at most, that a record of its own batch takes beside its value


class Weight(IntEnum):
    """Whether something may be gone."""

    NO = 0
    OPEN = 1  # nobody can say
    YES = 2


class Naive:
    """One history; `judge` fills `found` and `open`."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.found: Counter[Anomaly] = Counter()
        self.open = False
        self.sends = {e.id: e for e in events if isinstance(e, Send)}
        self.order = list(self.sends)
        self.outcomes = {e.id: e for e in events if isinstance(e, Acknowledged | Refused | Unknown)}
        self.acks = {e.id: e for e in events if isinstance(e, Acknowledged)}
        self.given = [e for e in events if isinstance(e, Delivered)]
        readers = (e for e in events if isinstance(e, Delivered | Position | ReadEnd))
        self.processes = sorted({e.process for e in readers})
        ends = [e for e in events if isinstance(e, ReadEnd)]
        self.end = max(ends, key=lambda e: (e.at_ms, e.process))
        self.whole, self.asked_ms = self.read_of(self.end)
        self.log = {d.offset: d for d in self.whole if self.end.begin <= d.offset < self.end.end}
        self.deletions: list[DeleteRecords] = []
        for e in events:
            if isinstance(e, DeleteRecords):
                self.deletions.append(e)
            elif isinstance(e, DeletionRefused):
                mine = [d for d in self.deletions if (d.process, d.offset) == (e.process, e.offset)]
                self.deletions = [d for d in self.deletions if d is not mine[-1]]
        self.batches: dict[int, list[ReplicaBatch]] = {}
        self.extents: dict[int, Replica] = {}
        for e in events:
            if isinstance(e, Replica):
                self.extents[e.node], self.batches[e.node] = e, []
            elif isinstance(e, ReplicaBatch):
                self.batches.setdefault(e.node, []).append(e)
        self.told = set(self.extents)
        for node in self.batches.keys() - self.told:  # an old history
            first, last = self.batches[node][0], self.batches[node][-1]
            self.extents[node] = Replica(
                at_ms=first.at_ms, wall_ms=first.wall_ms, process=first.process,
                topic=first.topic, partition=first.partition,
                node=node, begin=first.offset, end=last.last_offset + 1,
            )  # fmt: skip

    def of(self, process: str) -> list[Event]:
        kinds = Delivered | Position | ReadEnd
        return [e for e in self.events if e.process == process and isinstance(e, kinds)]

    def read_of(self, end: ReadEnd) -> tuple[list[Delivered], float]:
        """Return what one whole read was given, and when it knew its end."""
        events = self.of(end.process)
        at = next(n for n, e in enumerate(events) if e is end)
        first = max((n + 1 for n in range(at) if isinstance(events[n], ReadEnd)), default=0)
        began = [
            n
            for n in range(first, at)
            if isinstance(e := events[n], Position) and e.offset <= end.begin
        ]
        read = [e for e in events[began[-1] if began else first : at] if isinstance(e, Delivered)]
        asked = [events[n] for n in began[-1:]] or read or [end]
        return read, asked[0].at_ms if end.asked_ms is None else end.asked_ms

    def judge(self) -> Counter[Anomaly]:
        self.records()
        self.acknowledged()
        self.standing()
        for process in self.processes:
            self.reader(process)
        self.agreement()
        self.replicas()
        self.holes()
        self.leaders()
        return +self.found

    # -- what may be gone ----------------------------------------------------------------------

    def weigh(self, name: str | None, offset: int, gone: Event, begin: int) -> Weight:
        """Whether an event allows that the record is gone, as `gone` shows it to be.

        The log, or the replica if it is one that shows it, begins at `begin` there.
        """
        if self.is_due(name, offset, gone):
            return Weight.YES
        return max(
            (self.by_size(offset, *each, begin) for each in self.policies(gone)), default=Weight.NO
        )

    def policies(self, gone: Event) -> list[tuple[Event, Retention, Event | None]]:
        """Return the policies before `gone`, each with the next one, if there is one."""
        found = [e for e in self.events if isinstance(e, Retention) and e.at_ms <= gone.at_ms]
        return [(gone, each, following) for each, following in zip_longest(found, found[1:])]

    def is_due(self, name: str | None, offset: int, gone: Event) -> bool:
        """Whether it may be gone for another reason than the size of the log."""
        if any(e.at_ms <= gone.at_ms and offset < e.offset for e in self.deletions):
            return True
        for _, policy, following in self.policies(gone):
            if policy.retention_ms is not None and name in self.sends:
                send = self.sends[name]
                stamp = send.wall_ms if send.timestamp in {None, NO_TIMESTAMP} else send.timestamp
                if stamp + policy.retention_ms < (following or gone).wall_ms:
                    return True
        return False

    def by_size(
        self, offset: int, gone: Event, policy: Retention, following: Event | None, begin: int
    ) -> Weight:
        """Whether so much stood behind an offset: from `begin` on, and before it, since gone."""
        limit = policy.retention_bytes
        if limit is None:
            return Weight.NO
        certain, most = self.in_files(begin, following, gone)
        most += self.in_doubt(begin, following, gone)
        for name, ack in self.acks.items():
            at, send = ack.offset, self.sends[name]
            early = in_time(send.at_ms, gone, following)
            if at is not None and offset < at < begin and early and self.is_due(name, at, gone):
                certain += send.size
                most += send.size + BATCH_OVERHEAD
        return Weight.YES if certain >= limit else Weight.OPEN if most >= limit else Weight.NO

    def in_files(self, begin: int, following: Event | None, gone: Event) -> tuple[int, int]:
        """Return how much stands from `begin` on, of what was sent before the next policy."""
        own = gone.node if isinstance(gone, Replica) else None
        certain, most = [0], [0]
        for batches in [b for node, b in self.batches.items() if own in {None, node}]:
            here = [batch for batch in batches if batch.last_offset >= begin]
            times = [self.batch_ms(batch) for batch in here]
            is_early = [in_time(ms, gone, following) for ms in times]
            certain.append(sum(b.size for b, early in zip(here, is_early, strict=True) if early))
            most.append(
                sum(b.size for b, early in zip(here, is_early, strict=True) if early is not False)
            )
        return max(certain), max(most)

    def batch_ms(self, batch: ReplicaBatch) -> float | None:
        """When the first record of a batch that anything is known of was sent; None: of none."""
        for offset in range(batch.offset, batch.last_offset + 1):
            if offset in self.log and self.is_sent(self.log[offset]):
                return self.sent_ms(self.log[offset])
        return None

    def in_doubt(self, begin: int, following: Event | None, gone: Event) -> int:
        """Return how much may have stood there besides, never committed, and later truncated."""
        total = 0
        stands = {d.id for d in self.log.values() if self.is_sent(d)}
        for name, send in self.sends.items():
            late = not in_time(send.at_ms, gone, following)
            if name in stands or late or isinstance(self.outcomes.get(name), Refused):
                continue
            ack = self.acks.get(name)
            if ack is not None and ack.offset is not None and ack.offset < begin:
                continue
            if ack is not None and ack.offset is None and not self.is_due(name, begin - 1, gone):
                mine = [n for n in self.order if self.sends[n].process == send.process]
                if not any(n in stands for n in mine[: mine.index(name)]):
                    continue
            total += send.size + BATCH_OVERHEAD
        return total

    # -- records -------------------------------------------------------------------------------

    def is_sent(self, d: Delivered) -> bool:
        send = None if d.id is None else self.sends.get(d.id)
        if send is None or (send.digest, send.key) != (d.digest, d.key):
            return False
        return d.timestamp in {None, send.wall_ms if send.timestamp is None else send.timestamp}

    def what(self, d: Delivered) -> tuple[object, ...]:
        """Return what was delivered, without a timestamp if it is as it was sent."""
        return d.id, d.digest, d.key, None if self.is_sent(d) else d.timestamp

    def sent_ms(self, d: Delivered) -> float:
        return self.sends[d.id].at_ms if d.id is not None and self.is_sent(d) else 0.0

    def records(self) -> None:
        strange = {(d.offset, *self.what(d)) for d in self.given if not self.is_sent(d)}
        self.found[Anomaly.PHANTOM] += len(strange)
        refused = {e.id for e in self.events if isinstance(e, Refused)}
        self.found[Anomaly.RESURRECTED] += len(refused & {d.id for d in self.given})
        for d in self.given:
            if d.committed_end is not None and d.offset >= d.committed_end:
                self.found[Anomaly.UNCOMMITTED] += 1
            self.open |= self.is_sent(d) and d.at_ms < self.sent_ms(d)

    def copies(self, name: str) -> list[int]:
        return [offset for offset, d in sorted(self.log.items()) if d.id == name]

    def acknowledged(self) -> None:
        for name, ack in self.acks.items():
            found, begin, is_late = self.copies(name), self.end.begin, ack.at_ms > self.asked_ms
            weight, missing = Weight.NO, Anomaly.LOST
            if found:
                if ack.offset is None or ack.offset in found:
                    continue
                missing = Anomaly.DIVERGED
                if ack.offset < begin:
                    weight = self.weigh(name, ack.offset, self.end, begin)
                    if weight is Weight.YES:
                        weight, missing = Weight.NO, Anomaly.DUPLICATED
            elif is_late and (ack.offset is None or ack.offset >= self.end.end):
                weight = Weight.OPEN
            elif ack.offset is None:
                mine = [n for n in self.order if self.sends[n].process == ack.process]
                first = next((n for n in mine if self.copies(n)), None)
                before = first is None or mine.index(name) < mine.index(first)
                if begin and before:
                    weight = self.weigh(name, begin - 1, self.end, begin)
            elif ack.offset < begin:
                weight = self.weigh(name, ack.offset, self.end, begin)
                if weight is not Weight.NO and self.is_given_again(name):
                    weight = Weight.NO
            self.open |= weight is Weight.OPEN
            self.found[missing] += weight is Weight.NO

    def is_given_again(self, name: str) -> bool:
        """Whether another that may have expired has a place that this one can't have kept."""
        if self.is_passed(name):
            return True
        rivals = [n for n in self.excused(self.acks[name].offset) if not self.is_passed(n)]
        return max(rivals, key=lambda n: (self.sends[n].at_ms, self.order.index(n))) != name

    def excused(self, offset: int | None) -> list[str]:
        """Who was acknowledged there, is gone, and may have expired."""
        begin = self.end.begin
        return [
            name
            for name, ack in self.acks.items()
            if ack.offset is not None and ack.offset == offset
            if not self.copies(name) and self.weigh(name, ack.offset, self.end, begin)
        ]

    def is_passed(self, name: str) -> bool:
        """Whether one that was sent after its acknowledgement was acknowledged before it."""
        ack = self.acks[name]
        if ack.offset is None:
            return False
        known_ms = max(self.sends[name].at_ms, ack.at_ms)
        return any(
            self.sends[other].at_ms > known_ms
            for other, its in self.acks.items()
            if its.offset is not None and its.offset <= ack.offset
            if other in self.excused(its.offset)
        )

    def standing(self) -> None:
        log = [d for _, d in sorted(self.log.items())]
        names = [d.id for d in log if d.id is not None]
        self.found[Anomaly.DUPLICATED] += len(names) - len(set(names))
        first = [name for name in dict.fromkeys(names) if name in self.sends]
        for at, name in enumerate(first):
            self.found[Anomaly.REORDERED] += any(self.is_after(other, name) for other in first[:at])
        epochs = [d.epoch for d in log if d.epoch is not None]
        self.found[Anomaly.DIVERGED] += sum(left > right for left, right in pairwise(epochs))

    def is_after(self, later: str, earlier: str) -> bool:
        """Whether one was certainly sent after the other."""
        if self.sends[later].process == self.sends[earlier].process:
            return self.order.index(later) > self.order.index(earlier)
        ack = self.acks.get(earlier)
        if ack is None or ack.offset is None:
            return False
        return self.sends[later].at_ms > ack.at_ms

    # -- readers -------------------------------------------------------------------------------

    def reader(self, process: str) -> None:
        events = self.of(process)
        begin, end = self.end.begin, self.end.end
        skipped: set[int] = set()
        goes_on, position, stretch = -1, None, []
        for e in [*events, None]:
            if isinstance(e, Delivered):
                self.found[Anomaly.REORDERED] += e.offset < goes_on
                goes_on = e.offset + 1
                stretch.append(e.offset)
            elif e is None or isinstance(e, Position):
                if stretch:
                    low = stretch[0] if position is None else position.offset
                    skipped |= {o for o in self.log if low <= o <= max(stretch)} - set(stretch)
                if e is not None and e.told:
                    passed = {
                        o: self.weigh(d.id, o, e, e.offset)
                        for o, d in self.log.items()
                        if max(goes_on, 0) <= o < e.offset
                        and not any(isinstance(x, Delivered) and x.offset == o for x in events)
                        and self.sent_ms(d) <= e.at_ms
                    }
                    skipped |= {o for o, weight in passed.items() if weight is Weight.NO}
                    self.open |= Weight.OPEN in passed.values()
                if e is not None:
                    goes_on, position, stretch = e.offset, e, []
            elif isinstance(e, ReadEnd) and e is not self.end:
                got = {d.offset for d in self.read_of(e)[0]}
                skipped |= {o for o in self.log if e.begin <= o < e.end} - got
        self.found[Anomaly.SKIPPED] += len(skipped)
        mine = [d for d in self.given if d.process == process]
        gone: set[tuple[int, object]] = set()
        for offset in {d.offset for d in mine}:
            here = [d for d in mine if d.offset == offset]
            stands = self.log.get(offset)
            if begin <= offset < end:
                gone |= {
                    (offset, self.what(d))
                    for d in here
                    if stands is None or self.what(d) != self.what(stands)
                }
                continue
            here = [d for d in here if not (process == self.end.process and d in self.whole)]
            gone |= {
                (offset, self.what(a)) for a, b in pairwise(here) if self.what(a) != self.what(b)
            }
            for d in here[-1:]:
                if offset < begin:
                    weight = self.weigh(d.id, offset, self.end, begin)
                elif self.sent_ms(d) > self.asked_ms:
                    weight = Weight.YES
                else:
                    weight = Weight.OPEN if d.at_ms > self.asked_ms else Weight.NO
                gone |= {(offset, self.what(d))} if weight is Weight.NO else set()
                self.open |= weight is Weight.OPEN
        self.found[Anomaly.VANISHED] += len(gone)

    def agreement(self) -> None:
        latest = {(d.process, d.offset): d for d in self.given if d.epoch is None}
        asked = [d for d in self.given if d.epoch is not None] + list(latest.values())
        for place in {(d.offset, d.epoch) for d in asked}:
            here = {self.what(d) for d in asked if (d.offset, d.epoch) == place}
            self.found[Anomaly.DIVERGED] += len(here) - 1

    def leaders(self) -> None:
        """Count where one witness sees an earlier leader epoch than it has seen.

        And where anybody sees another leader than was first seen in an epoch.
        """
        named = [e for e in self.events if isinstance(e, LeaderChange) and e.leader >= 0]
        for e in named:
            first = next(other for other in named if other.epoch == e.epoch)
            self.found[Anomaly.DIVERGED] += first.leader != e.leader
        for process in {e.process for e in self.events}:
            mine = [e for e in self.events if isinstance(e, LeaderChange) and e.process == process]
            for at, e in enumerate(mine):
                before = [other.epoch for other in mine[:at]]
                self.found[Anomaly.DIVERGED] += bool(before) and e.epoch < max(before)

    # -- replicas ------------------------------------------------------------------------------

    def replicas(self) -> None:
        for node, batches in self.batches.items():
            said = self.extents[node]
            held = [b.offset for b in batches[:1]] + [b.last_offset + 1 for b in batches[-1:]]
            if said.begin == said.end:
                self.found[Anomaly.DIVERGED] += bool(held) and held[1] != said.end
            else:
                is_held = bool(held) and held[0] <= said.begin and held[1] == said.end
                self.found[Anomaly.DIVERGED] += not is_held and node in self.told
            for left, right in pairwise(batches):
                self.found[Anomaly.DIVERGED] += left.epoch > right.epoch
                self.found[Anomaly.DIVERGED] += left.last_offset >= right.offset
        extents = sorted(self.extents.values(), key=lambda e: (e.begin, e.node))
        for extent in extents:
            model, low = extents[0], max(extents[0].begin, extent.begin)
            ours, theirs = (
                {b.offset: b.digest for b in self.batches[e.node] if b.last_offset >= low}
                for e in (model, extent)
            )
            places = ours.keys() | theirs.keys()
            differ = sum(ours.get(place) != theirs.get(place) for place in places)
            self.found[Anomaly.DIVERGED] += differ
            short = extent.end != model.end or extent.end < self.end.end
            self.found[Anomaly.DIVERGED] += short and not differ
            begin = min(model.begin, self.end.begin)
            weight = self.may_lack(extent, begin)
            self.found[Anomaly.DIVERGED] += weight is Weight.NO
            self.open |= weight is Weight.OPEN

    def holes(self) -> None:
        """Count where the first replica has a hole, and nobody has what was read there."""
        extents = sorted(self.extents.values(), key=lambda e: (e.begin, e.node))
        for extent in extents[:1]:
            self.open |= extent.end > self.end.end
            for left, right in pairwise(self.batches[extent.node]):
                lacking = [
                    o
                    for o in self.log
                    if left.last_offset < o < right.offset
                    and not any(
                        b.offset <= o <= b.last_offset for bs in self.batches.values() for b in bs
                    )
                ]
                self.found[Anomaly.DIVERGED] += bool(lacking)

    def may_lack(self, extent: Replica, begin: int) -> Weight:
        """Whether all that a replica may not have of [begin, its begin) may be gone."""
        known = {offset: [d.id] for offset, d in self.log.items()}
        for name, ack in self.acks.items():
            if ack.offset is not None:
                known.setdefault(ack.offset, []).append(name)
        weights = [Weight.YES]
        for offset in range(begin, extent.begin):
            each = [
                self.weigh(name, offset, extent, extent.begin)
                for name in known.get(offset, [None, *self.sends])
            ]
            weights.append(min(each) if offset in known else max(each))
        return min(weights)


def in_time(sent_ms: float | None, gone: Event, following: Event | None) -> bool | None:
    """Whether it was sent while a policy was in force, and before something was gone by it.

    A reader is told in the middle of a run, all else is looked at when nothing is sent any more.
    None: nobody knows when it was sent.
    """
    if following is None and not isinstance(gone, Position):
        return True
    if sent_ms is None:
        return None
    return sent_ms <= gone.at_ms if following is None else sent_ms < following.at_ms


def naive(events: Sequence[Event]) -> tuple[Counter[Anomaly], bool]:
    """Judge the history of one partition: what is found, and whether all of it is decided."""
    judge = Naive(events)
    return judge.judge(), not judge.open
