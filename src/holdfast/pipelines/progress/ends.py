"""Where a batch ends for each group that is told: of a table, and of a plan alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.pipelines.due import Memory, Work
from holdfast.pipelines.offsets import Offsets, Partition, Position
from holdfast.pipelines.planned import Batch
from holdfast.pipelines.progress.group import ProgressGroup

Ends = Mapping[ProgressGroup, Offsets]
METADATA_NAME_MAX = 200  # characters; brokers take 4,096 bytes of metadata by default


def of_table(batch: Batch, memory: Memory, work: Work) -> Ends:
    """Return what a table has once a batch is in it, of the batch's partitions.

    `memory` is what it had before. That may be more than the batch: after the checkpoint was
    removed, the query reads again what has long been there.
    """
    ends: dict[ProgressGroup, Offsets] = {}
    before = work.kept(memory.offsets)
    for planned in batch.ranges:
        if planned.group is None:
            continue
        stored = before.get(planned.reader)
        end = planned.end if stored is None else max(planned.end, stored.next_offset)
        _least(_told(ends, planned.group), {planned.reader.partition: end})
    return ends


def of_plan(positions: Iterable[Position | None]) -> Ends:
    """Return where the sources of a query stand that wrote down these positions."""
    ends: dict[ProgressGroup, Offsets] = {}
    for position in positions:
        if position is not None and position.group is not None:
            _least(_told(ends, position.group), position.offsets)
    return ends


def _told(ends: dict[ProgressGroup, Offsets], group: ProgressGroup) -> Offsets:
    """Return what a group is told. Two sources may reach it by other settings, and it is one."""
    for known, offsets in ends.items():
        if known.is_same_as(group):
            return offsets
    return ends.setdefault(group, {})


def _least(found: Offsets, more: Mapping[Partition, int]) -> None:
    """Add offsets. Where two sources read a partition, the group is as far as the slower one."""
    for partition, offset in more.items():
        found[partition] = min(offset, found.get(partition, offset))


def metadata(query: str, batch: int) -> str:
    """Return what stands beside an offset in the group.

    >>> metadata("orders", 7)
    'query=orders batch=7'
    """
    return f"query={query[:METADATA_NAME_MAX]} batch={batch}"
