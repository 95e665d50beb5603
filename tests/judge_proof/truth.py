"""What the model knows of a run: which findings must come, of which records, and all counts.

Nothing here looks at a history. It looks at what stands on the replicas, at what producers were
told, and at what readers were given.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from tests.judge_proof.reading import Standing, standing
from tests.judge_proof.replicated import Partition
from tests.judge_proof.world import World

from holdfast.judge.history import Acknowledged, Delivered, Refused, Unknown
from holdfast.judge.verdict import Anomaly, Counts

LAST = "final"  # the process that reads everything back at the end

# What is said of a copy, when it can't be known whether the other one had expired or was lost.
ALSO = (Anomaly.DUPLICATED, Anomaly.DIVERGED)

# An anomaly, its partition, and of what: the id of a record, or "<process>@<offset>".
Named = tuple[Anomaly, int, str]


@dataclass(slots=True)
class Truth:
    """What must be found."""

    findings: Counter[Named] = field(default_factory=Counter)
    may: set[Named] = field(default_factory=set)  # of which no history can tell
    # Who was acknowledged at one offset where a log begins later, and how many of them are lost:
    # which ones no history can tell.
    rivals: list[tuple[int, frozenset[str], int]] = field(default_factory=list)
    undecided: set[int] = field(default_factory=set)  # partitions
    # Partitions of which size has taken something: whether the judge can know that it was allowed
    # hangs on what is in doubt.
    unsure: set[int] = field(default_factory=set)

    def must(self, anomaly: Anomaly, partition: Partition, subject: str, times: int = 1) -> None:
        self.findings[anomaly, partition.number, subject] += times


def deliveries_of(world: World, partition: Partition) -> list[Delivered]:
    """Return what all readers were given so far."""
    return [
        event
        for events in world.journal.files.values()
        for event in events
        if isinstance(event, Delivered) and event.partition == partition.number
    ]


def own_truth(world: World) -> Truth:
    """Return what the run itself has caused, before anybody plants anything."""
    truth = Truth()
    for partition in world.partitions:
        log = log_of(partition)
        _acknowledged(world, partition, log, truth)
        _rivals(world, partition, truth)
        _duplicated(partition, log, truth)
        for name in reordered(world, partition, log):
            truth.must(Anomaly.REORDERED, partition, name)
        _vanished(world, partition, log, truth)
        begins = [replica.log_start for replica in partition.replicas.values()]
        if world.ever[partition.number].retention_bytes is not None and any(begins):
            truth.unsure.add(partition.number)
    return truth


def log_of(partition: Partition) -> list[Standing]:
    """Return what a whole read finds."""
    assert partition.head is not None
    return standing(partition, partition.head.log_start, partition.high_watermark)


def offsets_of(log: list[Standing]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for each in log:
        if each.record.name is not None:
            found[each.record.name].append(each.offset)
    return found


def _acknowledged(world: World, partition: Partition, log: list[Standing], truth: Truth) -> None:
    """Lost, or another attempt's copy is all that stands, while the acknowledged one is gone."""
    offsets = offsets_of(log)
    assert partition.head is not None
    begin = partition.head.log_start
    expired = expired_of(partition)
    for name, outcome in world.sending.outcomes.items():
        if outcome.partition != partition.number or not isinstance(outcome, Acknowledged):
            continue
        told = outcome.offset
        if name in offsets:
            if told is None or told in offsets[name]:
                continue
            if told >= begin:
                truth.must(Anomaly.DIVERGED, partition, name)
            elif (name, told) in expired:
                truth.must(Anomaly.DUPLICATED, partition, name)  # one has expired, one stands
            else:
                truth.may |= {(kind, partition.number, name) for kind in ALSO}
        elif (name, told) in expired:
            continue
        elif begin and (told is None or told < begin):
            truth.may.add((Anomaly.LOST, partition.number, name))
        else:
            truth.must(Anomaly.LOST, partition, name)


def _rivals(world: World, partition: Partition, truth: Truth) -> None:
    """Of two that were acknowledged at one offset either may be the one that gave way."""
    assert partition.head is not None
    at: dict[int, set[str]] = defaultdict(set)
    for name, outcome in world.sending.outcomes.items():
        if outcome.partition != partition.number or not isinstance(outcome, Acknowledged):
            continue
        if outcome.offset is not None and outcome.offset < partition.head.log_start:
            at[outcome.offset].add(name)
    for names in at.values():
        named = {(Anomaly.LOST, partition.number, name) for name in names}
        if lost := len(named & truth.may):
            truth.may |= named
            truth.rivals.append((partition.number, frozenset(names), lost))


def expired_of(partition: Partition) -> set[tuple[str | None, int]]:
    """Return the copies that were committed and then deleted by a rule: what, and where."""
    assert partition.head is not None
    return {
        (record.name, offset)
        for batch in [*partition.deleted, *partition.head.batches]
        for offset, record in batch.placed()
        if offset < partition.head.log_start and offset not in partition.stolen
    }


def _duplicated(partition: Partition, log: list[Standing], truth: Truth) -> None:
    for name, offsets in offsets_of(log).items():
        if len(offsets) > 1:
            truth.must(Anomaly.DUPLICATED, partition, name, len(offsets) - 1)


def sent_here(world: World, partition: Partition, log: Iterable[Standing]) -> list[str]:
    """Return the ids in the log that were sent to this partition, first copies only."""
    sends = world.sending.sends
    names = dict.fromkeys(each.record.name for each in log)
    return [n for n in names if n in sends and sends[n].partition == partition.number]


def reordered(world: World, partition: Partition, log: Iterable[Standing]) -> set[str]:
    """Return the records that stand behind one that was certainly sent after them."""
    found: set[str] = set()
    before: list[str] = []
    for name in sent_here(world, partition, log):
        if any(sent_after(world, other, name) for other in before):
            found.add(name)
        before.append(name)
    return found


def sent_after(world: World, later: str, earlier: str) -> bool:
    """Whether one was sent after the other, by the same producer or by the acknowledgement."""
    sends = world.sending.sends
    if sends[later].process == sends[earlier].process:
        return int(later.partition(":")[2]) > int(earlier.partition(":")[2])
    outcome = world.sending.outcomes.get(earlier)
    return (
        isinstance(outcome, Acknowledged)
        and outcome.offset is not None  # without one (acks=0) it was only handed to the kernel
        and outcome.at_ms < sends[later].at_ms
    )


def _vanished(world: World, partition: Partition, log: list[Standing], truth: Truth) -> None:
    """Count the records that each reader found at an offset where the last read has others.

    Only an unclean election makes any. Where the log begins later now, it can be seen from two
    records at one offset alone, and whether the later one expired there, nobody can know.
    """
    assert partition.head is not None
    begin, end = partition.head.log_start, partition.high_watermark
    stands = {each.offset: each.record.name for each in log}
    seen: dict[tuple[str, int], list[str | None]] = defaultdict(list)
    for delivered in deliveries_of(world, partition):
        seen[delivered.process, delivered.offset].append(delivered.id)
    expired = {offset: name for name, offset in expired_of(partition)}
    for (process, offset), names in seen.items():
        subject = f"{process}@{offset}"
        if begin <= offset < end:
            gone = len(set(names) - {stands.get(offset)})
        else:
            changes = [left for left, right in pairwise(names) if left != right]
            gone = len(set(changes) - ({names[-1]} if offset < begin else set()))
            if offset >= end:
                gone = len(set(names))
            elif names[-1] != expired.get(offset):
                truth.may.add((Anomaly.VANISHED, partition.number, subject))
        if gone:
            truth.must(Anomaly.VANISHED, partition, subject, gone)


def counts_of(world: World, partition: Partition, log: list[Standing]) -> Counts:
    """Return the counts that the judge must come to, the last read having found this log."""
    sends = [s.id for s in world.sending.sends.values() if s.partition == partition.number]
    outcomes = [world.sending.outcomes.get(name) for name in sends]
    kinds = Counter(type(outcome) for outcome in outcomes)
    offsets = offsets_of(log)
    expired = expired_of(partition)
    return Counts(
        sent=len(sends),
        acknowledged=kinds[Acknowledged],
        refused=kinds[Refused],
        unknown=kinds[Unknown],
        unanswered=kinds[type(None)],
        unknown_in_log=sum(
            name in offsets and (outcome is None or isinstance(outcome, Unknown))
            for name, outcome in zip(sends, outcomes, strict=True)
        ),
        in_log=len(log),
        delivered=sum(d.process != LAST for d in deliveries_of(world, partition)),
        expired=sum(
            isinstance(outcome, Acknowledged)
            and (name, outcome.offset) in expired
            and name not in offsets
            for name, outcome in zip(sends, outcomes, strict=True)
        ),
    )
