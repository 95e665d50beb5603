"""One made run: a cluster, producers and readers that do as they may, in any order, from a seed.

`live` a while, then `settle`; what is read at the end, and what a plant breaks before that, is in
`closing`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.judge_proof.journal import TOPIC, Journal
from tests.judge_proof.reading import Reading, standing
from tests.judge_proof.replicated import Batch, Partition
from tests.judge_proof.sending import RETRIES, Sending

from holdfast.judge.history import (
    DeleteRecords,
    DeletionRefused,
    Expected,
    LeaderChange,
    Retention,
)
from holdfast.judge.promise import Promise, promise_for

STEPS_MS = (0.0, 0.0, 0.25, 1.0, 3.0, 20.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one seed draws for its world."""

    nodes: int
    min_isr: int
    partitions: int
    unclean: bool
    careful: bool  # all producers are idempotent
    grain_ms: float
    retains: bool
    segment_bytes: int
    deletes_records: bool

    @classmethod
    def drawn(cls, chance: random.Random) -> Settings:
        nodes = chance.choice([1, 2, 3, 3, 4])
        return cls(
            nodes=nodes,
            min_isr=chance.randint(1, min(2, nodes)),
            partitions=chance.choice([1, 1, 2, 3]),
            unclean=chance.random() < 0.15,
            careful=chance.random() < 0.3,
            grain_ms=chance.choice([0.001, 1.0, 10.0]),
            retains=chance.random() < 0.6,
            segment_bytes=chance.choice([1, 60, 300]),
            deletes_records=chance.random() < 0.3,
        )

    @property
    def promise(self) -> Promise:
        """Return what careful producers are promised."""
        return promise_for(
            acks="all",
            replication_factor=self.nodes,
            min_isr=self.min_isr,
            idempotent=True,
            retries=RETRIES,
            unclean=self.unclean,
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """What may be deleted of one partition's beginning; None: nothing by that."""

    retention_ms: int | None = None
    retention_bytes: int | None = None

    @classmethod
    def drawn(cls, chance: random.Random) -> Policy:
        return cls(chance.choice([None, 60, 300]), chance.choice([None, 0, 200, 900, 100_000]))

    def merged(self, other: Policy) -> Policy:
        """Return the policy that lets go whatever one of the two lets go."""
        return Policy(
            _least(self.retention_ms, other.retention_ms),
            _least(self.retention_bytes, other.retention_bytes),
        )


def _least(left: int | None, right: int | None) -> int | None:
    return min((each for each in (left, right) if each is not None), default=None)


class World:
    """A cluster with one topic, and everything that happens to it."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.settings = settings = Settings.drawn(chance)
        self.journal = Journal(settings.grain_ms)
        self.partitions = [
            Partition(number, settings.nodes, settings.min_isr, settings.unclean)
            for number in range(settings.partitions)
        ]
        self.sending = Sending(chance, self.journal, self.partitions, settings.careful)
        self.reading = Reading(chance, self.journal, self.partitions)
        self._policies = [Policy() for _ in self.partitions]
        self._announced = [Policy() for _ in self.partitions]
        self._asked: list[tuple[Partition, int]] = []  # deletions that may still be done
        self.asked_below = [0 for _ in self.partitions]  # the furthest that was asked for
        self.ever = [Policy() for _ in self.partitions]  # lets go what any policy has let go
        self.seen_epochs: dict[int, int] = {}  # by partition, the last that was witnessed
        for partition in self.partitions:
            self._say(Expected, partition)
        moves = {
            self.sending.send: 8.0,
            self.sending.arrive: 10.0,
            self.sending.answer: 10.0,
            self.sending.give_up: 0.6,
            self.sending.die: 0.1,
            self.reading.join: 0.7,
            self.reading.poll: 5.0,
            self.reading.seek: 0.6,
            self.reading.leave: 0.2,
            self.reading.read_whole: 0.15,
            self._follow: 12.0,
            self._fall_behind: 0.7,
            self._crash: 0.8,
            self._start: 1.5,
            self._move_leader: 0.5,
            self._alter_retention: 0.4 if settings.retains else 0.0,
            self._retain: 2.0,
            self._delete_records: 0.5 if settings.deletes_records else 0.0,
        }
        self._moves, self._weights = list(moves), list(moves.values())

    def live(self, steps: int) -> None:
        for move in self.chance.choices(self._moves, self._weights, k=steps):
            self.journal.now_ms += self.chance.choice(STEPS_MS)
            move()
            for partition in self.partitions:
                if partition.epoch != self.seen_epochs.get(partition.number):
                    self.witness(partition, partition.epoch)

    def witness(self, partition: Partition, epoch: int) -> None:
        """Let somebody who looks at the metadata write down which leader epoch they name."""
        self.seen_epochs[partition.number] = epoch
        leader = -1 if partition.leader is None else partition.leader
        where = {"topic": TOPIC, "partition": partition.number}
        self.journal.record(LeaderChange, "observer", leader=leader, epoch=epoch, **where)

    def refuse_deletion(self, partition: Partition, offset: int) -> None:
        """Let somebody ask for records to be deleted, and be refused."""
        for kind in (DeleteRecords, DeletionRefused):
            self._say(kind, partition, offset=offset)
            self.journal.tick()

    def settle(self) -> None:
        """Heal the cluster, and let every producer end; all that stands is committed then."""
        self._heal()
        self.sending.finish()
        self._heal()

    def _heal(self) -> None:
        for partition in self.partitions:
            partition.settle()

    def overtake(self, process: str) -> None:
        """Let a reader of everything be told on its way that what comes next has been deleted."""
        partition = self._partition()
        assert partition.head is not None
        begin, end = partition.head.log_start, partition.high_watermark
        if end - begin < 2:
            return
        reached = self.chance.randint(begin, end - 1)
        found = standing(partition, begin, reached)
        self.reading.begin_whole(process, partition.number, begin, found)
        offset = self.chance.randint(reached + 1, end)
        self.asked_below[partition.number] = max(offset, self.asked_below[partition.number])
        self._say(DeleteRecords, partition, offset=offset)
        self.journal.tick()
        partition.delete_below(offset)
        partition.settle()

    # -- moves of the cluster ------------------------------------------------------------------

    def _partition(self) -> Partition:
        return self.chance.choice(self.partitions)

    def _node(self) -> int:
        return self.chance.randrange(self.settings.nodes)

    def _follow(self) -> None:
        self._partition().fetch(self._node(), self.chance.choice([1, 2, 8]))

    def _fall_behind(self) -> None:
        self._partition().fall_behind(self._node())

    def _crash(self) -> None:
        node = self._node()
        for partition in self.partitions:
            if partition.replicas[node].alive:
                partition.crash(node, keep=self.chance.random() < 0.7)

    def _start(self) -> None:
        node = self._node()
        for partition in self.partitions:
            if self.chance.random() < 0.2:
                partition.lose_disk(node)
            partition.start(node)

    def _move_leader(self) -> None:
        partition = self._partition()
        if partition.leader is not None:
            partition.elect(self._node())

    def _say(
        self,
        kind: type[Expected | Retention | DeleteRecords | DeletionRefused],
        partition: Partition,
        **values: int | None,
    ) -> None:
        self.journal.record(kind, "lab", topic=TOPIC, partition=partition.number, **values)

    def _alter_retention(self) -> None:
        """Ask for another policy, or let one that was asked for come into force.

        What lets more go is announced before it may be in force, what lets less go after.
        """
        partition = self._partition()
        number = partition.number
        announced = self._announced[number]
        if self._policies[number] != announced:
            self._policies[number] = announced
            return
        wanted = Policy.drawn(self.chance)
        both = wanted.merged(announced)
        if both != announced:
            self._announce(partition, both)
            self.journal.tick()
        self._policies[number] = wanted
        if wanted != both and self.chance.random() < 0.7:
            self.journal.tick()
            self._announce(partition, wanted)

    def _announce(self, partition: Partition, policy: Policy) -> None:
        self._announced[partition.number] = policy
        self.ever[partition.number] = policy.merged(self.ever[partition.number])
        self._say(
            Retention,
            partition,
            retention_ms=policy.retention_ms,
            retention_bytes=policy.retention_bytes,
        )

    def _retain(self) -> None:
        """Let the leader's cleaner run."""
        partition = self._partition()
        head, policy = partition.head, self._policies[partition.number]
        if head is None:
            return
        segments = segments_of(head.batches, self.settings.segment_bytes)
        kept = [segment for segment in segments if segment[-1].end > head.log_start]
        while kept and kept[0][-1].end <= partition.high_watermark:
            if not (self._is_old(kept[0], policy) or _is_too_much(kept, policy)):
                break
            partition.delete_below(kept.pop(0)[-1].end)

    def _is_old(self, segment: list[Batch], policy: Policy) -> bool:
        largest = max(batch.largest_ms for batch in segment)
        limit = policy.retention_ms
        return limit is not None and self.journal.wall_ms - largest > limit

    def _delete_records(self) -> None:
        """Let somebody ask for records to be deleted, or let what was asked for be done."""
        if self._asked and self.chance.random() < 0.5:
            partition, offset = self._asked.pop(self.chance.randrange(len(self._asked)))
            if partition.head is not None and offset <= partition.high_watermark:
                partition.delete_below(offset)
            return
        partition = self._partition()
        if partition.head is None:
            return
        begin, end = partition.head.log_start, partition.high_watermark
        offset = self.chance.randint(0, end + 1)
        if offset > end and self.chance.random() < 0.5:
            self.refuse_deletion(partition, offset)
            return
        self.asked_below[partition.number] = max(offset, self.asked_below[partition.number])
        self._say(DeleteRecords, partition, offset=offset)
        if begin < offset <= end and self.chance.random() < 0.5:
            self.journal.tick()
            partition.delete_below(offset)
        else:
            self._asked.append((partition, offset))


def _is_too_much(segments: list[list[Batch]], policy: Policy) -> bool:
    limit = policy.retention_bytes
    rest = sum(batch.size for segment in segments[1:] for batch in segment)
    return limit is not None and len(segments) > 1 and rest >= limit


def segments_of(batches: list[Batch], segment_bytes: int) -> list[list[Batch]]:
    """Cut a log into segments, as it was rolled while it grew."""
    segments: list[list[Batch]] = []
    size = segment_bytes
    for batch in batches:
        if size >= segment_bytes:
            segments.append([])
            size = 0
        segments[-1].append(batch)
        size += batch.size
    return segments
