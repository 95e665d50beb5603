"""A model of one partition: replicas with lag, a leader, epochs, a high watermark, deletion.

It is the truth from which histories are made, and shares no code with what it is held against:
neither with the judge nor with the log or the replication of the node.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a producer sent. `name` is None for what no producer of the run has made."""

    name: str | None
    digest: str
    key: str | None
    size: int
    timestamp: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records that were appended together; two replicas that hold it hold the same bytes."""

    offsets: tuple[int, ...]  # of the records; compaction and damage leave holes
    records: tuple[Record, ...]
    base: int
    end: int  # one past the last offset
    epoch: int
    appended_ms: int  # wall clock

    @property
    def size(self) -> int:
        return sum(record.size for record in self.records)

    @property
    def digest(self) -> str:
        return f"{zlib.crc32(repr(self).encode()):08x}"

    @property
    def largest_ms(self) -> int:
        """Return what time retention counts from: the file's time where no record has a time."""
        largest = max((each.timestamp for each in self.records), default=NO_TIMESTAMP)
        return self.appended_ms if largest == NO_TIMESTAMP else largest

    def placed(self) -> Iterator[tuple[int, Record]]:
        return zip(self.offsets, self.records, strict=True)


@dataclass(slots=True)
class Replica:
    """One node's copy. `log_start` moves by itself; batches below it may still be in its files."""

    node: int
    batches: list[Batch] = field(default_factory=list)
    log_start: int = 0
    alive: bool = True

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.log_start

    def cut_from(self, offset: int) -> None:
        """Drop whole batches that reach past `offset`."""
        while self.batches and self.batches[-1].end > offset:
            self.batches.pop()

    def agree_with(self, leader: Replica) -> None:
        """Drop the tail that the leader does not have: what was never committed there."""
        theirs = {(batch.base, batch.epoch) for batch in leader.batches}
        while self.batches and (
            (self.batches[-1].base, self.batches[-1].epoch) not in theirs
            and self.batches[-1].end > leader.log_start
        ):
            self.batches.pop()
        ends = self.batches[-1] if self.batches else None
        alien = ends is not None and (ends.base, ends.epoch) not in theirs
        # So far behind, or so far ahead of who was elected without having it, that it begins anew.
        if self.end < leader.log_start or alien or self.log_start > leader.end:
            self.batches.clear()
            self.log_start = leader.log_start
        elif self.log_start > self.end:
            self.log_start = leader.log_start


class Partition:
    """What a cluster does with one partition, one move at a time."""

    def __init__(self, number: int, nodes: int, min_isr: int, unclean: bool) -> None:
        self.number = number
        self.min_isr = min_isr
        self.unclean = unclean
        self.replicas = {node: Replica(node) for node in range(nodes)}
        self.isr = set(self.replicas)
        self.leader: int | None = 0
        self.epoch = 0
        self.high_watermark = 0
        self.deleted: list[Batch] = []  # committed, and then deleted by a rule
        self.stolen: set[int] = set()  # offsets that no rule has deleted, and yet

    @property
    def head(self) -> Replica | None:
        return None if self.leader is None else self.replicas[self.leader]

    @property
    def serves_all(self) -> bool:
        """Whether acks=all is taken."""
        return self.leader is not None and len(self.isr) >= self.min_isr

    # -- moves of the log ----------------------------------------------------------------------

    def append(self, records: tuple[Record, ...], now_ms: int) -> Batch:
        head = self.head
        assert head is not None, "nobody leads"
        base = head.end
        batch = Batch(
            offsets=tuple(range(base, base + len(records))),
            records=records,
            base=base,
            end=base + len(records),
            epoch=self.epoch,
            appended_ms=now_ms,
        )
        head.batches.append(batch)
        self._advance()
        return batch

    def stored(self, record: Record) -> Batch | None:
        """Return the batch with which the leader remembers a record, deleted ones included."""
        head = self.head
        assert head is not None, "nobody leads"
        for batch in self.deleted + head.batches:
            if any(each.name == record.name for each in batch.records):
                return batch
        return None

    def fetch(self, node: int, batches: int) -> None:
        """Let a follower come nearer by so many batches."""
        head, replica = self.head, self.replicas[node]
        if head is None or not replica.alive or node == head.node:
            return
        replica.agree_with(head)
        for batch in head.batches:
            if batches and batch.end > replica.end and batch.end > replica.log_start:
                replica.batches.append(batch)
                batches -= 1
        replica.log_start = max(replica.log_start, min(head.log_start, replica.end))
        if node not in self.isr and replica.end >= self.high_watermark:
            self.isr.add(node)
        self._advance()

    def _advance(self) -> None:
        if self.leader is None or len(self.isr) < self.min_isr:
            return
        end = min(self.replicas[node].end for node in self.isr)
        self.high_watermark = max(self.high_watermark, end)

    def delete_below(self, offset: int) -> None:
        """Move the leader's beginning; followers hear of it with their next fetch."""
        head = self.head
        assert head is not None, "nobody leads"
        assert offset <= self.high_watermark, "what is not committed is never deleted"
        self.deleted += [b for b in head.batches if head.log_start < b.end <= offset]
        head.log_start = max(head.log_start, offset)

    # -- moves of the nodes --------------------------------------------------------------------

    def fall_behind(self, node: int) -> None:
        """Let the leader drop a follower from the ISR."""
        if node != self.leader and self.leader is not None:
            self.isr.discard(node)
            self._advance()

    def crash(self, node: int, *, keep: bool) -> None:
        """Kill a node. Without `keep`, what was not committed had not reached its disk."""
        replica = self.replicas[node]
        replica.alive = False
        if not keep and node in self.isr:
            replica.cut_from(self.high_watermark)
        if len(self.isr) > 1:
            self.isr.discard(node)
        if node == self.leader:
            self.elect()
        self._advance()

    def lose_disk(self, node: int) -> bool:
        """Let a dead node that no promise rests on come back with nothing. False: one does."""
        replica = self.replicas[node]
        if replica.alive or node in self.isr:
            return False
        replica.batches.clear()
        replica.log_start = 0
        return True

    def start(self, node: int) -> None:
        self.replicas[node].alive = True
        if self.leader is None:
            self.elect()

    def elect(self, wanted: int | None = None) -> None:
        """Choose a leader in the ISR; outside of it only where unclean elections are allowed."""
        able = [n for n in sorted(self.isr) if self.replicas[n].alive]
        if not able and self.unclean:
            able = [n for n, replica in self.replicas.items() if replica.alive]
        if not able:
            self.leader = None
            return
        self.leader = wanted if wanted in able else able[0]
        self.epoch += 1
        head = self.replicas[self.leader]
        if self.leader not in self.isr:
            self.isr = {self.leader}
            self.high_watermark = min(self.high_watermark, head.end)
        for replica in self.replicas.values():
            if replica.alive and replica is not head:
                replica.agree_with(head)  # what it has beyond counts for nothing in this epoch

    def settle(self) -> None:
        """Heal everything: all nodes live, hold the same and are in sync."""
        for node in sorted(self.isr) + sorted(self.replicas):
            self.start(node)
        assert self.leader is not None, "all nodes live, and nobody leads"
        for _ in range(2):
            for node in self.replicas:
                self.fetch(node, 1 << 20)
        assert self.isr == set(self.replicas)
        assert {replica.end for replica in self.replicas.values()} == {self.high_watermark}
