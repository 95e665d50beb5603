"""What is true of a partition whose topic is compacted, of which each replica lacks something else.

Owns how what a replica has stored becomes what was appended to it, which alone the other invariants
know; and that the two agree.

Rules: compaction.md#which-records-stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf

from holdfast.testing.simulation.chain import Entry, Name
from holdfast.testing.simulation.compacted import Compacted, Stored
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.replica_seen import Replica
from holdfast.testing.simulation.truth import PartitionTruth


class CompactedTruth(PartitionTruth):
    """All that is known of one partition."""

    def __init__(
        self,
        name: str,
        fail: Callable[[Invariant, str], None],
        counts: Counter[str],
        *,
        retention_ms: float,
        now_ms: Callable[[], float],
    ) -> None:
        """`retention_ms`: the topic's delete.retention.ms."""
        super().__init__(name, fail, counts)
        # By node: deletions of keys that its replica never had. As in Apache Kafka, who was away
        # for longer than delete.retention.ms keeps what was deleted meanwhile.
        self._never: dict[int, set[Name]] = {}
        self.compacted = Compacted(
            self._known, counts, retention_ms=lambda: retention_ms, now_ms=now_ms
        )

    def fetched(self, replica: Replica, found: Sequence[Stored]) -> None:
        """A follower has appended what its leader's log holds."""
        low = replica.chain.end
        for one in found:
            for entry in self._logical(replica, one.entry, replica.start):
                self.appended(replica, entry, leads=False)
        bounds = max(low, replica.start), replica.chain.end
        self.check_stored(replica, found, *bounds, is_fetched=True)

    def check_stored(
        self,
        replica: Replica,
        found: Sequence[Stored],
        low: int,
        high: int,
        *,
        is_fetched: bool = False,
        is_found: bool = False,
    ) -> None:
        """Hold what a replica has stored between two offsets against what was appended to it.

        `is_found`: by a new process, which may have finished what a dead one began, and does not
        know how much was committed then.
        """
        wrong = self.compacted.check(
            replica.chain,
            found,
            (low, high),
            inf if is_found else replica.high_watermark,
            self._never.setdefault(replica.node, set()),
            is_fetched=is_fetched,
        )
        if wrong:
            self._fail(
                Invariant.COMPACTED_RIGHTLY,
                f"{self.name}, node {replica.node}, from {low} to {high}: {wrong}\n{self}",
            )

    def is_gone(self, epoch: int, offsets: Sequence[int]) -> bool:
        places = [(epoch, offset) for offset in offsets]
        gone = self.compacted.taken, self.compacted.forgotten
        return all(any(place in each for each in gone) for place in places)

    def _logical(self, replica: Replica, entry: Entry, start: int) -> Sequence[Entry]:
        entries = replica.chain.entries
        return self.compacted.logical(entries[-1] if entries else None, entry, start)
