"""How a settled run is broken, and what follows from each break.

A plant looks for a victim that nothing else speaks of, breaks it as a faulty cluster would (on the
replicas, in an answer), and adds to the truth what follows: a lost record that was read has also
vanished. It returns False where the run has no victim for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
from tests.judge_proof.closing import Files
from tests.judge_proof.reading import Standing
from tests.judge_proof.replicated import Batch, Partition, Record
from tests.judge_proof.truth import Truth, deliveries_of, log_of, offsets_of, reordered
from tests.judge_proof.world import World

from holdfast.judge.history import Acknowledged, Delivered, Refused
from holdfast.judge.verdict import Anomaly


@dataclass(slots=True)
class Planting:
    """A settled world that is broken before everything is read back for the last time."""

    world: World
    truth: Truth
    touched: set[tuple[int, int]] = field(default_factory=set)  # (partition, offset)
    readers: set[str] = field(default_factory=set)  # that only a plant has made
    unread: set[int] = field(default_factory=set)  # partitions that nobody reads back
    afterwards: list[Callable[[], None]] = field(default_factory=list)  # once all is read back
    on_files: dict[int, Callable[[Files], None]] = field(default_factory=dict)  # by partition

    @property
    def chance(self) -> random.Random:
        return self.world.chance

    # -- victims -------------------------------------------------------------------------------

    def partitions(self) -> list[Partition]:
        """Return those that will be read back, in the order in which they are tried."""
        read = [p for p in self.world.partitions if p.number not in self.unread]
        return self.chance.sample(read, len(read))

    def is_free(self, partition: Partition, each: Standing) -> bool:
        """Whether nothing is known of this record or this place yet."""
        name = each.record.name
        if name is None or (partition.number, each.offset) in self.touched:
            return False
        known = self.truth.findings.keys() | self.truth.may
        subjects = [s for _, number, s in known if number == partition.number]
        place = f"@{each.offset}"
        return name not in subjects and not any(s.endswith(place) for s in subjects)

    def free(self, partition: Partition) -> list[Standing]:
        """Return single copies that nothing is known of, in a random order."""
        log = log_of(partition)
        offsets = offsets_of(log)
        found = [
            each
            for each in log
            if self.is_free(partition, each) and len(offsets[str(each.record.name)]) == 1
        ]
        return self.chance.sample(found, len(found))

    def outcome(self, each: Standing) -> object:
        return self.world.sending.outcomes.get(str(each.record.name))

    def may_stand(self, name: str) -> bool:
        """Whether a reader may have had this record: it was not refused for certain."""
        return not isinstance(self.world.sending.outcomes.get(name), Refused)

    def read(self, partition: Partition, offset: int) -> list[Delivered]:
        """Return the last delivery to each reader at this offset."""
        latest = {d.process: d for d in deliveries_of(self.world, partition) if d.offset == offset}
        return list(latest.values())

    # -- what follows --------------------------------------------------------------------------

    def gone(self, partition: Partition, offset: int) -> None:
        """Note that whoever read this offset will find something else there, or nothing."""
        self.touched.add((partition.number, offset))
        for delivered in self.read(partition, offset):
            self.truth.must(Anomaly.VANISHED, partition, f"{delivered.process}@{offset}")

    def differs(self, partition: Partition, each: Standing) -> None:
        """Note that readers of one epoch are given two records at this offset."""
        epochs = [d.epoch for d in self.read(partition, each.offset)]
        if each.epoch in epochs:
            self.truth.must(Anomaly.DIVERGED, partition, f"@{each.offset}")
        self.gone(partition, each.offset)

    # -- how a log is broken -------------------------------------------------------------------

    def rewrite(self, partition: Partition, changes: dict[int, Record | None]) -> None:
        """Put other records at these offsets, or none, on every replica."""
        for replica in partition.replicas.values():
            replica.batches = [_rewritten(batch, changes) for batch in replica.batches]

    def batch(self, partition: Partition, offset: int) -> Batch:
        """Return the batch of the leader's log that holds a record."""
        assert partition.head is not None
        return next(batch for batch in partition.head.batches if offset in batch.offsets)

    def replace_batch(self, partition: Partition, old: Batch, new: Batch) -> None:
        for replica in partition.replicas.values():
            replica.batches = [new if batch == old else batch for batch in replica.batches]

    def append(self, partition: Partition, record: Record) -> int:
        """Let every replica have one more record, which nobody has asked for now."""
        batch = partition.append((record,), self.world.journal.wall_ms)
        partition.settle()
        self.touched.add((partition.number, batch.base))
        return batch.base


def _rewritten(batch: Batch, changes: dict[int, Record | None]) -> Batch:
    if not changes.keys() & set(batch.offsets):
        return batch
    placed = [(offset, changes.get(offset, record)) for offset, record in batch.placed()]
    kept = [(offset, record) for offset, record in placed if record is not None]
    return replace(
        batch, offsets=tuple(o for o, _ in kept), records=tuple(record for _, record in kept)
    )


def causes_nothing(planting: Planting, partition: Partition, each: Standing) -> bool:
    """Whether the order of the others is judged the same without this record."""
    log = log_of(partition)
    less = [other for other in log if other is not each and other != each]
    world = planting.world
    return reordered(world, partition, less) == reordered(world, partition, log)


def replace_event(world: World, event: Acknowledged | Delivered, **values: object) -> None:
    """Let a process have written down something else."""
    file = world.journal.files[event.process]
    at = next(number for number, other in enumerate(file) if other is event)
    changed = msgspec.structs.replace(event, **values)
    file[at] = changed
    if isinstance(changed, Acknowledged):
        world.sending.outcomes[changed.id] = changed
