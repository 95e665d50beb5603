"""Whether a batch waits for more records: `minOffsetsPerTrigger` and `maxTriggerDelay`. Pure.

The time is a value that is handed in; nothing here looks at a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.pipelines.offsets import Partition


@dataclass(slots=True)
class Delay:
    """Batches of `rows_min` new offsets, or what there is after `wait_ms_max` milliseconds.

    The time counts from the last batch that had data. The first one of a process waits for
    nothing, as with the JVM connector: how long ago the one before was, nobody knows.
    """

    rows_min: int
    wait_ms_max: int
    last_ms: int | None = None

    def holds(self, new: int, now_ms: int) -> bool:
        """Return whether `new` offsets have to wait; if not, a batch with them begins now."""
        assert new >= 0, "offsets of the future"
        waits = self.last_ms is not None and now_ms - self.last_ms < self.wait_ms_max
        if waits and new < self.rows_min:
            return True
        if new:
            self.last_ms = now_ms
        return False


def new_offsets(
    start: Mapping[Partition, int],
    earliest: Mapping[Partition, int],
    latest: Mapping[Partition, int],
) -> int:
    """Return how many offsets past `start` the logs hold; what aged out is not among them."""
    return sum(
        max(0, latest.get(partition, offset) - max(offset, earliest.get(partition, offset)))
        for partition, offset in start.items()
    )
