"""Steps around retention: a topic of tiny segments, and where its replicas begin."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.clients.replica_files import DamagedFileError, stored_replica
from holdfast.cluster.layout import EMBEDDED
from holdfast.lab.run import Run
from holdfast.lab.steps.closing import replica_directory

HOUR_MS = 3_600_000
GONE_S = 20.0  # retention looks several times a second
INDEX_ENTRY_BYTES = 8
BATCH_BYTES = 170  # of one event of a lab


def hour_of_small_segments(run: Run) -> dict[str, str]:
    """Return the configs of a topic that keeps an hour, in segments of a dozen batches."""
    return {"retention.ms": str(HOUR_MS), **small_segments(run, 12)}


def small_segments(run: Run, batches: int) -> dict[str, str]:
    """Return the configs of a topic whose segments end with about so many batches.

    A segment's size has a least value, 1 MiB, and its index has none: with an entry for each batch
    it is full soon. Apache Kafka can't do so (4.3.1): followers, rounds of compaction and recovery
    append several batches before they look, run over the index, and don't go on. It has a config
    for tests instead.
    """
    if run.parameters.engine == EMBEDDED:
        entries = str(INDEX_ENTRY_BYTES * batches)
        return {"index.interval.bytes": "0", "segment.index.bytes": entries}
    return {"internal.segment.bytes": str(BATCH_BYTES * batches)}


def begins(run: Run, partition: int) -> dict[int, int]:
    """Return where each replica's files begin; -1: they can't be read just now."""
    found = {}
    for node in run.cluster.broker_ids:
        try:
            found[node] = stored_replica(replica_directory(run, node, partition)).begin
        except (OSError, DamagedFileError):
            found[node] = -1  # a segment went while they were read
    return found


def expect_begins(run: Run, when: str, wanted: Mapping[int, int]) -> None:
    """Check that every replica of these partitions comes to begin there."""

    def seen() -> dict[int, set[int]]:
        return {partition: set(begins(run, partition).values()) for partition in wanted}

    expected = {partition: {begin} for partition, begin in wanted.items()}
    run.soon(lambda: seen() == expected, GONE_S)
    last = seen()
    run.check(
        f"where replicas begin, {when}",
        "; ".join(f"P{p} at {begin}" for p, begin in wanted.items()),
        "; ".join(f"P{p} at {', '.join(map(str, sorted(each)))}" for p, each in last.items()),
        kept=last == expected,
    )
