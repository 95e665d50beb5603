"""The fold of one partition: every send's fate, every reader's view, every replica's bytes.

Owns the rules by which each anomaly is found. It holds one partition's records at a time and no
more than RECORDS_MAX of them; counts are exact, evidence is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Event,
    HistoryError,
    PartitionEvent,
    Position,
    ReadEnd,
    Refused,
    ReplicaBatch,
    Send,
    Unknown,
)
from holdfast.judge.series import AvailabilityFold
from holdfast.judge.verdict import Anomaly, Counts, Finding, PartitionJudgement

RECORDS_MAX = 20_000_000
FINDINGS_MAX = 20  # of each anomaly, with evidence; further ones are only counted

Outcome = Acknowledged | Refused | Unknown


class HistoryTooLargeError(HistoryError):
    """More records in one partition than the judge holds."""


@dataclass(slots=True)
class Fate:
    """One record: its send, its place in the order of its partition's sends, what became of it."""

    send: Send
    order: int
    outcome: Outcome | None = None

    def events(self) -> tuple[Event, ...]:
        return (self.send,) if self.outcome is None else (self.send, self.outcome)


@dataclass(slots=True)
class Reader:
    """What one process received: the last record at each offset."""

    process: str
    seen: dict[int, Delivered] = field(default_factory=dict)
    next_offset: int = -1  # the lowest that may come next; -1: any
    whole: ReadEnd | None = None


class PartitionFold:
    """Feed it the events of one partition in order, then `finish`."""

    def __init__(self, topic: str, partition: int, records_max: int = RECORDS_MAX) -> None:
        self.topic = topic
        self.partition = partition
        self._records_max = records_max
        self._fates: dict[str, Fate] = {}
        self._readers: dict[str, Reader] = {}
        self._replicas: dict[int, dict[int, ReplicaBatch]] = {}
        self._availability = AvailabilityFold()
        self._counted: Counter[Anomaly] = Counter()
        self._told: Counter[Anomaly] = Counter()
        self._findings: list[Finding] = []

    # -- events, as they come ------------------------------------------------------------------

    def feed(self, event: PartitionEvent) -> float | None:
        """Take one event in. For an outcome: when its record was sent."""
        if isinstance(event, Send):
            self._feed_send(event)
        elif isinstance(event, Acknowledged | Refused | Unknown):
            return self._feed_outcome(event)
        elif isinstance(event, Delivered):
            self._feed_delivered(event)
        elif isinstance(event, Position):
            self._reader(event.process).next_offset = event.offset
        elif isinstance(event, ReadEnd):
            self._reader(event.process).whole = event
        elif isinstance(event, ReplicaBatch):
            self._replicas.setdefault(event.node, {})[event.offset] = event
        return None

    def _feed_send(self, send: Send) -> None:
        if send.id in self._fates:
            raise HistoryError(f"two sends have the id {send.id!r}")
        if len(self._fates) >= self._records_max:
            raise HistoryTooLargeError(
                f"{self.topic}-{self.partition} has more than {self._records_max} records"
            )
        self._fates[send.id] = Fate(send, len(self._fates))
        self._availability.feed(send, None)

    def _feed_outcome(self, outcome: Outcome) -> float:
        fate = self._fates.get(outcome.id)
        if fate is None:
            raise HistoryError(f"an outcome of {outcome.id!r}, which was never sent here")
        if fate.outcome is not None:
            raise HistoryError(f"{outcome.id!r} has two outcomes")
        fate.outcome = outcome
        self._availability.feed(outcome, fate.send.at_ms)
        return fate.send.at_ms

    def _feed_delivered(self, delivered: Delivered) -> None:
        reader = self._reader(delivered.process)
        end = delivered.committed_end
        if end is not None and delivered.offset >= end:
            self._find(
                Anomaly.UNCOMMITTED,
                f"{delivered.process} was given offset {delivered.offset}, committed end {end}",
                delivered,
            )
        earlier = reader.seen.get(delivered.offset)
        if delivered.offset < reader.next_offset:
            self._find(
                Anomaly.REORDERED,
                f"{delivered.process} was at offset {reader.next_offset} "
                f"and was given {delivered.offset}",
                *([earlier] if earlier else []),
                delivered,
            )
        if earlier is not None and not _same_record(earlier, delivered):
            self._find(
                Anomaly.VANISHED,
                f"{delivered.process} read {earlier.id} at offset {delivered.offset}, "
                f"and later {delivered.id} there",
                earlier,
                delivered,
            )
        if len(reader.seen) >= self._records_max:
            raise HistoryTooLargeError(
                f"{delivered.process} read more than {self._records_max} records of "
                f"{self.topic}-{self.partition}"
            )
        reader.seen[delivered.offset] = delivered
        reader.next_offset = delivered.offset + 1

    def _reader(self, process: str) -> Reader:
        reader = self._readers.get(process)
        if reader is None:
            reader = self._readers[process] = Reader(process)
        return reader

    # -- the verdict ---------------------------------------------------------------------------

    def finish(self) -> PartitionJudgement:
        final = self._last_whole_reader()
        self._judge_strangers()
        self._judge_resurrected()
        self._judge_replicas()
        self._judge_readers_agree()
        positions: dict[str, list[Delivered]] = {}
        if final is not None:
            log = _inside(final)
            for delivered in log:
                if delivered.id is not None:
                    positions.setdefault(delivered.id, []).append(delivered)
            self._judge_acknowledged(positions, final)
            self._judge_duplicates(positions)
            self._judge_order(log)
            for reader in self._readers.values():
                if reader is not final:
                    self._judge_vanished(reader, final)
                    self._judge_skipped(reader, final)
        return PartitionJudgement(
            topic=self.topic,
            partition=self.partition,
            counts=self._counts(positions, final),
            anomalies=dict(self._counted),
            findings=tuple(self._findings),
            availability=self._availability.finish(),
            whole_read=final is not None,
            undecided=() if final is not None else ("it was not read to its end",),
        )

    def _last_whole_reader(self) -> Reader | None:
        wholes = [reader for reader in self._readers.values() if reader.whole is not None]
        return max(
            wholes, key=lambda reader: reader.whole.at_ms if reader.whole else 0.0, default=None
        )

    def _judge_strangers(self) -> None:
        """Phantom: a record that nobody sent here, or whose bytes are others than those sent."""
        told: set[tuple[int, str | None, str]] = set()
        for delivered in self._all_delivered():
            fate = self._fates.get(delivered.id) if delivered.id is not None else None
            if fate is not None and fate.send.digest == delivered.digest:
                continue
            what = (delivered.offset, delivered.id, delivered.digest)
            if what in told:
                continue
            told.add(what)
            if fate is None:
                text = f"offset {delivered.offset} holds {delivered.id}, which nobody sent here"
                self._find(Anomaly.PHANTOM, text, delivered)
            else:
                text = (
                    f"offset {delivered.offset} holds {delivered.id} with digest "
                    f"{delivered.digest}; {fate.send.digest} was sent"
                )
                self._find(Anomaly.PHANTOM, text, fate.send, delivered)

    def _judge_resurrected(self) -> None:
        told: set[str] = set()
        for delivered in self._all_delivered():
            fate = self._fates.get(delivered.id) if delivered.id is not None else None
            if fate is None or not isinstance(fate.outcome, Refused) or fate.send.id in told:
                continue
            told.add(fate.send.id)
            text = f"{fate.send.id} was refused ({fate.outcome.error}); offset {delivered.offset}"
            self._find(Anomaly.RESURRECTED, text, *fate.events(), delivered)

    def _judge_acknowledged(self, positions: dict[str, list[Delivered]], final: Reader) -> None:
        """Lost, or standing at another offset than the acknowledgement said."""
        assert final.whole is not None
        begin = final.whole.begin
        for fate in self._fates.values():
            outcome = fate.outcome
            if not isinstance(outcome, Acknowledged):
                continue
            found = positions.get(fate.send.id)
            if outcome.offset is not None and outcome.offset < begin:
                continue  # retention took it; counted as expired
            if not found:
                at = "" if outcome.offset is None else f" at offset {outcome.offset}"
                instead = final.seen.get(outcome.offset) if outcome.offset is not None else None
                holder = f", which now holds {instead.id}" if instead else ""
                text = f"{fate.send.id} was acknowledged{at}{holder}; it is not in the log"
                self._find(Anomaly.LOST, text, *fate.events(), *([instead] if instead else []))
            elif outcome.offset is not None and all(d.offset != outcome.offset for d in found):
                text = (
                    f"{fate.send.id} was acknowledged at offset {outcome.offset} "
                    f"and stands at {found[0].offset}"
                )
                self._find(Anomaly.DIVERGED, text, *fate.events(), found[0])

    def _judge_duplicates(self, positions: dict[str, list[Delivered]]) -> None:
        for name, found in positions.items():
            if len(found) > 1:
                fate = self._fates.get(name)
                offsets = ", ".join(str(delivered.offset) for delivered in found[:5])
                self._find(
                    Anomaly.DUPLICATED,
                    f"{name} stands at offsets {offsets}",
                    *(fate.events() if fate else ()),
                    *found[:5],
                    weight=len(found) - 1,
                )

    def _judge_order(self, log: Iterable[Delivered]) -> None:
        """Of each producer, first copies must stand in the order in which they were sent."""
        latest: dict[str, tuple[Fate, Delivered]] = {}
        known: set[str] = set()
        for delivered in log:
            fate = self._fates.get(delivered.id) if delivered.id is not None else None
            if fate is None or fate.send.id in known:
                continue
            known.add(fate.send.id)
            before = latest.get(fate.send.process)
            if before is not None and before[0].order > fate.order:
                text = (
                    f"{fate.send.id} (offset {delivered.offset}) stands behind "
                    f"{before[0].send.id} (offset {before[1].offset}), which was sent later"
                )
                self._find(Anomaly.REORDERED, text, fate.send, before[0].send, before[1], delivered)
            else:
                latest[fate.send.process] = (fate, delivered)

    def _judge_vanished(self, reader: Reader, final: Reader) -> None:
        assert final.whole is not None
        for offset, delivered in reader.seen.items():
            if offset < final.whole.begin or delivered.at_ms > final.whole.at_ms:
                continue
            stands = final.seen.get(offset)
            if stands is not None and _same_record(stands, delivered):
                continue
            instead = f"{stands.id} stands there" if stands else "nothing stands there"
            text = f"{reader.process} read {delivered.id} at offset {offset}; now {instead}"
            self._find(Anomaly.VANISHED, text, delivered, *([stands] if stands else []))

    def _judge_skipped(self, reader: Reader, final: Reader) -> None:
        if not reader.seen:
            return
        first, last = min(reader.seen), max(reader.seen)
        for delivered in _inside(final):
            if first < delivered.offset < last and delivered.offset not in reader.seen:
                text = f"{reader.process} read from {first} to {last} without {delivered.offset}"
                self._find(Anomaly.SKIPPED, text, delivered)

    def _judge_readers_agree(self) -> None:
        """One (epoch, offset) is one record; where no epoch is known, one offset is."""
        first: dict[tuple[int, int | None], Delivered] = {}
        for reader in self._readers.values():
            for delivered in reader.seen.values():
                other = first.setdefault((delivered.offset, delivered.epoch), delivered)
                if not _same_record(other, delivered):
                    text = (
                        f"offset {delivered.offset}: {other.process} read {other.id}, "
                        f"{delivered.process} read {delivered.id}, in one epoch"
                    )
                    self._find(Anomaly.DIVERGED, text, other, delivered)

    def _judge_replicas(self) -> None:
        """Replicas hold the same batches wherever both have any; they end at one offset."""
        if len(self._replicas) < 2:
            return
        nodes = sorted(self._replicas)
        model = self._replicas[nodes[0]]
        for node in nodes[1:]:
            other = self._replicas[node]
            begin = max(min(model), min(other))
            for offset in sorted(model.keys() | other.keys()):
                if offset < begin:
                    continue
                left, right = model.get(offset), other.get(offset)
                if left is not None and right is not None and left.digest == right.digest:
                    continue
                text = f"offset {offset}: replicas {nodes[0]} and {node} hold different bytes"
                if left is None or right is None:
                    lacking = nodes[0] if left is None else node
                    text = f"offset {offset}: replica {lacking} has no batch that begins here"
                self._find(Anomaly.DIVERGED, text, *(each for each in (left, right) if each))

    def _counts(self, positions: dict[str, list[Delivered]], final: Reader | None) -> Counts:
        fates = self._fates.values()
        outcomes = Counter(type(fate.outcome) for fate in fates)
        doubtful = (f for f in fates if f.outcome is None or isinstance(f.outcome, Unknown))
        begin = final.whole.begin if final is not None and final.whole is not None else 0
        return Counts(
            sent=len(self._fates),
            acknowledged=outcomes[Acknowledged],
            refused=outcomes[Refused],
            unknown=outcomes[Unknown],
            unanswered=outcomes[type(None)],
            unknown_in_log=sum(fate.send.id in positions for fate in doubtful),
            in_log=len(_inside(final)) if final is not None else 0,
            delivered=sum(len(r.seen) for r in self._readers.values() if r is not final),
            expired=sum(
                isinstance(fate.outcome, Acknowledged)
                and fate.outcome.offset is not None
                and fate.outcome.offset < begin
                for fate in fates
            ),
        )

    def _all_delivered(self) -> Iterator[Delivered]:
        for reader in self._readers.values():
            yield from reader.seen.values()

    def _find(self, anomaly: Anomaly, text: str, *events: Event, weight: int = 1) -> None:
        self._counted[anomaly] += weight
        self._told[anomaly] += 1
        if self._told[anomaly] <= FINDINGS_MAX:
            self._findings.append(
                Finding(
                    anomaly=anomaly,
                    topic=self.topic,
                    partition=self.partition,
                    text=text,
                    events=events,
                )
            )


def _same_record(left: Delivered, right: Delivered) -> bool:
    return left.id == right.id and left.digest == right.digest


def _inside(final: Reader) -> list[Delivered]:
    """What the whole read found, in order of offsets."""
    assert final.whole is not None
    begin, end = final.whole.begin, final.whole.end
    return [final.seen[offset] for offset in sorted(final.seen) if begin <= offset < end]
