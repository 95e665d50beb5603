"""The end of a made run: everything is read back, and every replica's files are looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from tests.judge_proof.journal import TOPIC
from tests.judge_proof.replicated import Batch, Partition
from tests.judge_proof.truth import deliveries_of, log_of
from tests.judge_proof.world import World

from holdfast.judge.history import Acknowledged, Replica, ReplicaBatch

LATE_MOVES = 30


@dataclass(slots=True)
class Files:
    """What each node's files hold of one partition, as they are found."""

    partition: Partition
    batches: dict[int, list[Batch]] = field(default_factory=dict)
    extents: dict[int, tuple[int, int]] = field(default_factory=dict)  # unlike batches
    must: set[int] = field(default_factory=set)  # offsets that no rule lets go
    unknown: set[int] = field(
        default_factory=set
    )  # nor these, but nobody was told what stood there

    @classmethod
    def found(cls, world: World, partition: Partition) -> Files:
        """Take the replicas' files. Deleted batches may still be in some of them."""
        told = {
            outcome.offset
            for outcome in world.sending.outcomes.values()
            if isinstance(outcome, Acknowledged) and outcome.partition == partition.number
        }
        files = cls(partition, must=partition.stolen & told, unknown=partition.stolen - told)
        for node, replica in partition.replicas.items():
            needed = [b for b in replica.batches if b.end > replica.log_start]
            old = len(replica.batches) - len(needed)
            kept = world.chance.randint(0, old)
            files.batches[node] = replica.batches[old - kept :]
        return files

    def extent(self, node: int) -> tuple[int, int]:
        """Return where a node's files begin and end."""
        if node in self.extents:
            return self.extents[node]
        batches, replica = self.batches[node], self.partition.replicas[node]
        if not batches:
            return replica.log_start, replica.end
        return batches[0].base, batches[-1].end

    def falls(self) -> list[int]:
        """Return where a batch is of an earlier epoch than the one before, node by node."""
        return [
            right.base
            for batches in self.batches.values()
            for left, right in pairwise(batches)
            if left.epoch > right.epoch
        ]

    def lacking(self, offsets: set[int]) -> list[int]:
        """Return the nodes whose files begin behind any of these, which others or the log have."""
        head = self.partition.head
        assert head is not None
        begin = min(head.log_start, *(self.extent(node)[0] for node in self.batches))
        return [
            node
            for node in self.batches
            if any(begin <= offset < self.extent(node)[0] for offset in offsets)
        ]

    @property
    def model(self) -> int:
        """Return the node that all others are held against: whose files begin first."""
        return min(self.batches, key=lambda node: (self.extent(node)[0], node))

    def write(self, world: World) -> None:
        where = {"topic": TOPIC, "partition": self.partition.number}
        for node, batches in self.batches.items():
            begin, end = self.extent(node)
            world.journal.record(Replica, "replicas", node=node, begin=begin, end=end, **where)
            for batch in batches:
                world.journal.record(
                    ReplicaBatch,
                    "replicas",
                    node=node,
                    offset=batch.base,
                    last_offset=batch.end - 1,
                    epoch=batch.epoch,
                    digest=batch.digest,
                    size=batch.size,
                    **where,
                )


def read_back(world: World, process: str, partitions: Iterable[Partition]) -> None:
    """Let one process read everything that stands now."""
    for partition in partitions:
        assert partition.head is not None
        begin, end = partition.head.log_start, partition.high_watermark
        world.reading.whole(process, partition.number, begin, end, log_of(partition))


def go_on(world: World) -> set[int]:
    """Let clients go on after the last read. Return partitions in which it says too little.

    What is acknowledged then, or read though it was sent before, is about later offsets, and
    whether that stands nobody has looked.
    """
    moves = [
        world.sending.send,
        world.sending.arrive,
        world.sending.answer,
        world.reading.poll,
    ]
    # Where a plant has changed something, what is read there without an epoch says too little.
    world.reading.let_plain_ones_leave()
    outcomes, sends = set(world.sending.outcomes), set(world.sending.sends)
    given = {id(each) for partition in world.partitions for each in deliveries_of(world, partition)}
    ends = {p.number: p.high_watermark for p in world.partitions}
    for _ in range(LATE_MOVES):
        world.journal.now_ms += 1.0
        world.chance.choice(moves)()
        for partition in world.partitions:
            for node in partition.replicas:
                partition.fetch(node, 1)
    acknowledged = {
        outcome.partition
        for name, outcome in world.sending.outcomes.items()
        if name not in outcomes and isinstance(outcome, Acknowledged)
    }
    seen = {
        partition.number
        for partition in world.partitions
        for delivered in deliveries_of(world, partition)
        if delivered.offset >= ends[partition.number]
        and delivered.id in sends
        and id(delivered) not in given
    }
    return acknowledged | seen
