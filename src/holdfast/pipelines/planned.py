"""What a micro-batch was planned to cover, and what of it is still due in a table.

Owns the reading of Spark's offset log (`CHECKPOINT/offsets/BATCH`) and the comparison with what the
table already has. A batch's range never comes from its rows: filters and holes hide where it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from holdfast.pipelines.offsets import Offsets, OffsetsError, Partition, Range, from_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFSET_LOG_VERSION = "v1"
NO_OFFSET = "-"


class PlanError(RuntimeError):
    """The offset log can't be read, or the query does not continue where the table ends."""


@dataclass(frozen=True, slots=True)
class Due:
    """Of [start, end), the table lacks [begin, end). `expected` is what it has; None: no entry."""

    partition: Partition
    start: int
    begin: int
    end: int
    expected: int | None

    @property
    def partial(self) -> bool:
        """Some rows of the range are in the table already and must not be written again."""
        return self.begin > self.start


def parse_offset_log(text: str, name: str) -> Offsets:
    """Read one entry: a version, a line about the batch, then one line for each source."""
    lines = text.splitlines()
    if len(lines) < 3 or lines[0] != OFFSET_LOG_VERSION:
        raise PlanError(f"{name}: not an offset log of version {OFFSET_LOG_VERSION}")
    merged: Offsets = {}
    for line in lines[2:]:
        if line == NO_OFFSET:
            continue
        try:
            offsets = from_text(line)
        except OffsetsError as error:
            raise PlanError(
                f"{name}: a source whose offsets are not those of holdfast ({error}); "
                "the sink can't tell what its batches cover"
            ) from error
        if both := merged.keys() & offsets.keys():
            raise PlanError(f"{name}: two sources of the query read {min(both)}")
        merged |= offsets
    return merged


def planned_ranges(
    before: Mapping[Partition, int] | None, after: Mapping[Partition, int]
) -> list[Range]:
    """Return what lies between two entries, empty ranges too.

    Batch 0 (`before` is None) and a partition's first appearance are empty: the source pins where a
    query begins before it reads.
    """
    known = before or {}
    planned = []
    for partition, end in sorted(after.items()):
        start = known.get(partition, end)
        if end < start:
            raise PlanError(f"{partition}: planned backwards, from {start} to {end}")
        planned.append(Range(partition, start, end))
    return planned


def due(planned: Iterable[Range], stored: Mapping[Partition, int]) -> list[Due]:
    """Compare the plan with the table's next offsets; PlanError when rows between would be missing.

    What the table has already is a replay: after a crash between the table's commit and Spark's
    (the whole batch), or after the checkpoint was removed (up to the middle of a batch).
    """
    found = []
    for batch in planned:
        expected = stored.get(batch.partition)
        if expected is None:
            found.append(Due(batch.partition, batch.start, batch.start, batch.end, None))
        elif expected < batch.start:
            raise PlanError(
                f"{batch.partition}: the table ends at offset {expected}, but the query goes on "
                f"at {batch.start}: rows would be missing. Start it with startingOffsets=earliest "
                f"or at {expected}, or give the query another name"
            )
        elif expected < batch.end:
            found.append(Due(batch.partition, batch.start, expected, batch.end, expected))
    return found


class OffsetLog:
    """Spark's offset log of one checkpoint, on this machine's disk or anywhere Spark can read."""

    def __init__(self, checkpoint: str, session: SparkSession | None = None) -> None:
        self._checkpoint = checkpoint
        self._session = session

    def planned(self, batch: int) -> list[Range]:
        """Return the ranges of a batch whose entry Spark has written, which is before it runs."""
        before = self._entry(batch - 1) if batch else None
        return planned_ranges(before, self._entry(batch))

    def _entry(self, batch: int) -> Offsets:
        name = f"{self._checkpoint.rstrip('/')}/offsets/{batch}"
        return parse_offset_log(self._read(name), name)

    def _read(self, name: str) -> str:
        parts = urlsplit(name)
        try:
            if not parts.scheme:
                return Path(name).read_text()
            if parts.scheme == "file":
                return Path(unquote(parts.path)).read_text()
        except OSError as error:
            raise PlanError(f"{name}: {error.strerror}; is this the query's checkpoint?") from error
        if self._session is None:
            raise PlanError(f"{name}: reading it needs the Spark session")
        rows = self._session.read.text(name, wholetext=True).collect()
        return str(rows[0][0])
