"""What the replicas' files hold, in columns, and whether they hold the same."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.judge.deliveries import Records
from holdfast.judge.history import Replica, ReplicaBatch, ReplicaRecord
from holdfast.judge.sends import HistoryTooLargeError

BATCHES_MAX = 20_000_000  # of one replica


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two replicas differ: the batches that begin at an offset; None: there is none."""

    offset: int
    left: ReplicaBatch | None
    right: ReplicaBatch | None


class ReplicaFiles:
    """One replica."""

    def __init__(self, node: int, topic: str, partition: int) -> None:
        self.node = node
        self._topic = topic
        self._partition = partition
        self.extent: Replica | None = None
        self._clear()

    def _clear(self) -> None:
        self.offsets = array("q")
        self.last_offsets = array("q")
        self.epochs = array("q")
        self._digests: list[str] = []
        self.sizes = array("q")
        self._at_ms = array("d")
        self._walls = array("q")
        self._process = ""
        # Records, where each replica compacts on its own.
        self.record_offsets = array("q")
        self.record_codes = array("i")
        self.record_epochs = array("q")
        self._record_at_ms = array("d")
        self._record_walls = array("q")

    def note(self, extent: Replica) -> None:
        """Begin anew: whoever looks again sees all of it again."""
        self._clear()
        self.extent = extent

    def add(self, batch: ReplicaBatch) -> None:
        if len(self.offsets) >= BATCHES_MAX:
            raise HistoryTooLargeError(f"replica {self.node} has more than {BATCHES_MAX} batches")
        self.offsets.append(batch.offset)
        self.last_offsets.append(batch.last_offset)
        self.epochs.append(batch.epoch)
        self._digests.append(batch.digest)
        self.sizes.append(batch.size)
        self._at_ms.append(batch.at_ms)
        self._walls.append(batch.wall_ms)
        self._process = batch.process

    def add_record(self, record: ReplicaRecord, code: int) -> None:
        if len(self.record_offsets) >= BATCHES_MAX:
            raise HistoryTooLargeError(f"replica {self.node} has more than {BATCHES_MAX} records")
        self.record_offsets.append(record.offset)
        self.record_codes.append(code)
        self.record_epochs.append(record.epoch)
        self._record_at_ms.append(record.at_ms)
        self._record_walls.append(record.wall_ms)
        self._process = record.process

    def record(self, index: int, records: Records) -> ReplicaRecord:
        """Make the event again."""
        name, digest, key, timestamp = records.of(self.record_codes[index])
        return ReplicaRecord(
            at_ms=self._record_at_ms[index],
            wall_ms=self._record_walls[index],
            process=self._process,
            topic=self._topic,
            partition=self._partition,
            node=self.node,
            offset=self.record_offsets[index],
            epoch=self.record_epochs[index],
            id=name,
            digest=digest,
            key=key,
            timestamp=timestamp,
        )

    @property
    def begin(self) -> int:
        """Where it begins; without its word for it, where its first batch does."""
        return self.offsets[0] if self.extent is None else self.extent.begin

    @property
    def end(self) -> int:
        return self.last_offsets[-1] + 1 if self.extent is None else self.extent.end

    def stored(self, offset: int) -> Iterator[tuple[int, int, int]]:
        """Yield first and last offset and size of each batch that ends at an offset or later."""
        for index in range(bisect_left(self.last_offsets, offset), len(self.sizes)):
            yield self.offsets[index], self.last_offsets[index], self.sizes[index]

    def event(self, index: int) -> ReplicaBatch:
        """Make the event again."""
        return ReplicaBatch(
            at_ms=self._at_ms[index],
            wall_ms=self._walls[index],
            process=self._process,
            topic=self._topic,
            partition=self._partition,
            node=self.node,
            offset=self.offsets[index],
            last_offset=self.last_offsets[index],
            epoch=self.epochs[index],
            digest=self._digests[index],
            size=self.sizes[index],
        )

    def differences(self, other: ReplicaFiles) -> Iterator[Difference]:
        """Yield every difference from the later of two begins on: there, both must be the same."""
        begin = max(self.begin, other.begin)
        left = bisect_left(self.last_offsets, begin)
        right = bisect_left(other.last_offsets, begin)
        while left < len(self.offsets) or right < len(other.offsets):
            here = self.offsets[left] if left < len(self.offsets) else None
            there = other.offsets[right] if right < len(other.offsets) else None
            if here is not None and here == there:
                if self._digests[left] != other._digests[right]:
                    yield Difference(here, self.event(left), other.event(right))
                left, right = left + 1, right + 1
            elif there is None or (here is not None and here < there):
                assert here is not None
                yield Difference(here, self.event(left), None)
                left += 1
            else:
                yield Difference(there, None, other.event(right))
                right += 1

    def unheld(self, *, is_compacted: bool = False) -> str | None:
        """Say what the batches hold where that is not what the extent says; None: it is.

        `is_compacted`: what stood first may be gone.
        """
        if self.extent is None:
            return None
        if not self.offsets:
            return "nothing" if self.begin < self.end else None
        first, end = self.offsets[0], self.last_offsets[-1] + 1
        begins = first <= self.begin or is_compacted
        if end == self.end and (begins or self.begin == self.end):
            return None
        return f"[{first}, {end})"

    def holds(self, offset: int) -> bool:
        """Whether a batch holds an offset."""
        index = bisect_left(self.last_offsets, offset)
        return index < len(self.offsets) and self.offsets[index] <= offset

    def gaps(self) -> Iterator[tuple[ReplicaBatch, ReplicaBatch]]:
        """Yield neighbours between which there are offsets that neither holds."""
        for index in range(1, len(self.offsets)):
            if self.offsets[index] > self.last_offsets[index - 1] + 1:
                yield self.event(index - 1), self.event(index)

    def epoch_falls(self) -> Iterator[tuple[ReplicaBatch, ReplicaBatch]]:
        """Yield neighbours of which the later one is from an earlier leader epoch."""
        for index in range(1, len(self.epochs)):
            if self.epochs[index] < self.epochs[index - 1]:
                yield self.event(index - 1), self.event(index)

    def overlaps(self) -> Iterator[tuple[ReplicaBatch, ReplicaBatch]]:
        """Yield neighbours of which the later one begins before the other has ended."""
        for index in range(1, len(self.offsets)):
            if self.offsets[index] <= self.last_offsets[index - 1]:
                yield self.event(index - 1), self.event(index)
