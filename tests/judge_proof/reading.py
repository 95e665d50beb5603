"""Consumers of a made run: they follow, seek, are reset, leave early; and readers of everything."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.judge_proof.journal import TOPIC, Journal
from tests.judge_proof.replicated import Partition, Record

from holdfast.judge.history import Delivered, Position, ReadEnd

CONSUMERS_MAX = 4


@dataclass(frozen=True, slots=True)
class Standing:
    """One record where it stands."""

    offset: int
    record: Record
    epoch: int


@dataclass(slots=True, eq=False)
class Consumer:
    name: str
    partition: Partition
    tells_epoch: bool
    tells_end: bool
    next_offset: int
    alive: bool = True


def standing(partition: Partition, begin: int, end: int) -> list[Standing]:
    """Return what the leader has in [begin, end)."""
    assert partition.head is not None
    return [
        Standing(offset, record, batch.epoch)
        for batch in partition.head.batches
        for offset, record in batch.placed()
        if begin <= offset < end
    ]


class Reading:
    """All readers. What is not committed is never given to any."""

    def __init__(
        self, chance: random.Random, journal: Journal, partitions: Sequence[Partition]
    ) -> None:
        self._chance = chance
        self._journal = journal
        self._partitions = partitions
        self._consumers: list[Consumer] = []
        self._wholes = 0
        self.tells_time = chance.random() < 0.7  # clients do, where a broker does not stamp
        self._asked: dict[tuple[str, int], float] = {}  # when reads that go on asked for the end

    # -- moves ---------------------------------------------------------------------------------

    def join(self) -> None:
        """Start a consumer at the beginning, at the end, or at 0."""
        if len(self._consumers) >= CONSUMERS_MAX:
            return
        partition = self._chance.choice(self._partitions)
        head = partition.head
        if head is None:
            return
        begin = self._chance.choice([0, head.log_start, partition.high_watermark])
        kind = self._chance.choice(["raw", "client", "plain"])
        if partition.unclean and kind == "plain":
            kind = "client"  # where records go, what is read without an epoch says too little
        consumer = Consumer(
            name=f"c{len(self._consumers)}",
            partition=partition,
            tells_epoch=kind != "plain",
            tells_end=kind == "raw",
            next_offset=begin,
        )
        self._consumers.append(consumer)
        self._position(consumer, begin, "beginning", told=begin == head.log_start)

    def poll(self) -> None:
        """Give a consumer what is next, or tell it that its position is none."""
        consumer = self._living()
        if consumer is None or consumer.partition.head is None:
            return
        partition, head = consumer.partition, consumer.partition.head
        begin, end = head.log_start, partition.high_watermark
        if not begin <= consumer.next_offset <= end:
            self._position(
                consumer, min(max(begin, consumer.next_offset), end), "out of range", told=True
            )
            return
        for each in standing(partition, consumer.next_offset, end)[: self._chance.randint(1, 12)]:
            self._deliver(consumer, each)

    def seek(self) -> None:
        consumer = self._living()
        if consumer is None:
            return
        offset = self._chance.randint(0, consumer.partition.high_watermark)
        self._position(consumer, offset, "seek")

    def leave(self) -> None:
        consumer = self._living()
        if consumer is not None:
            consumer.alive = False

    def let_plain_ones_leave(self) -> None:
        """Let every consumer leave that tells no epoch."""
        for consumer in self._consumers:
            consumer.alive &= consumer.tells_epoch

    def read_whole(self) -> None:
        """Read one partition from its beginning to its present end, in a process of its own."""
        partition = self._chance.choice(self._partitions)
        head = partition.head
        if head is None:
            return
        begin, end = head.log_start, partition.high_watermark
        self.whole(
            f"early{self._wholes}", partition.number, begin, end, standing(partition, begin, end)
        )
        self._wholes += 1

    def whole(
        self, process: str, number: int, begin: int, end: int, found: Sequence[Standing]
    ) -> None:
        """Write down a whole read that found these."""
        where = {"topic": TOPIC, "partition": number}
        self._journal.tick()
        asked_ms = self._asked.pop((process, number), self._journal.at_ms)
        self._journal.record(
            Position, process, offset=begin, reason="beginning", told=True, **where
        )
        for each in found:
            self._record(process, number, each, epoch=each.epoch)
        self._journal.tick()
        self._journal.record(ReadEnd, process, begin=begin, end=end, asked_ms=asked_ms, **where)
        self._journal.tick()

    def begin_whole(self, process: str, number: int, begin: int, found: Sequence[Standing]) -> None:
        """Write down a whole read that gets no further than these; `whole` goes on with it."""
        self._journal.tick()
        self._asked[process, number] = self._journal.at_ms
        where = {"topic": TOPIC, "partition": number}
        self._journal.record(
            Position, process, offset=begin, reason="beginning", told=True, **where
        )
        for each in found:
            self._record(process, number, each, epoch=each.epoch)
        self._journal.tick()

    # -- what a reader writes down -------------------------------------------------------------

    def _living(self) -> Consumer | None:
        living = [consumer for consumer in self._consumers if consumer.alive]
        return self._chance.choice(living) if living else None

    def _position(
        self, consumer: Consumer, offset: int, reason: str, *, told: bool = False
    ) -> None:
        consumer.next_offset = offset
        self._journal.record(
            Position,
            consumer.name,
            topic=TOPIC,
            partition=consumer.partition.number,
            offset=offset,
            reason=reason,
            told=told,
        )

    def _deliver(self, consumer: Consumer, each: Standing) -> None:
        consumer.next_offset = each.offset + 1
        self._record(
            consumer.name,
            consumer.partition.number,
            each,
            epoch=each.epoch if consumer.tells_epoch else None,
            committed_end=consumer.partition.high_watermark if consumer.tells_end else None,
        )

    def _record(self, process: str, number: int, each: Standing, **more: int | None) -> None:
        self._journal.record(
            Delivered,
            process,
            topic=TOPIC,
            partition=number,
            offset=each.offset,
            id=each.record.name,
            digest=each.record.digest,
            key=each.record.key,
            timestamp=each.record.timestamp if self.tells_time else None,
            **more,
        )
