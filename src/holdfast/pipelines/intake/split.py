"""Into how many tasks the ranges of a batch are cut: `minPartitions`, `maxRecordsPerPartition`.

Pure, and by the JVM connector's rules (its KafkaOffsetRangeCalculator). Where a range is cut is not
in the offsets: a replay may cut it elsewhere and still reads the same records.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.pipelines.intake.option_values import OptionError
from holdfast.pipelines.offsets import Range

# A task costs the driver memory and milliseconds; a slip of three digits should say so instead.
TASKS_MAX = 100_000


def split(
    ranges: Sequence[Range], *, parts_min: int | None = None, rows_max: int | None = None
) -> list[Range]:
    """Return the ranges in order, cut where they have to be; empty ones are dropped.

    First no part may be larger than `rows_max` offsets. Then, if there are fewer than `parts_min`,
    large ranges are cut in proportion to their size; those whose share is one part stay whole, and
    their size is left out of the others' proportion. OptionError: more than TASKS_MAX parts.
    """
    found = [each for each in ranges if _size(each) > 0]
    if rows_max is not None:
        counts = [-(-_size(each) // rows_max) for each in found]
        found = _divided(found, counts, "maxRecordsPerPartition")
    if parts_min is None or parts_min <= len(found):
        return found
    total = sum(map(_size, found))
    counts = [_share(_size(each), total, parts_min) for each in found]
    large = sum(_size(each) for each, count in zip(found, counts, strict=True) if count > 1)
    left = parts_min - counts.count(1)
    counts = [
        count if count == 1 else _share(_size(each), large, left)
        for each, count in zip(found, counts, strict=True)
    ]
    return _divided(found, counts, "minPartitions")


def _size(each: Range) -> int:
    return each.end - each.start


def _share(size: int, total: int, parts: int) -> int:
    """Return `size / total * parts`, rounded half up as Java rounds, and at least one."""
    return max((2 * size * parts + total) // (2 * total), 1)


def _divided(ranges: Sequence[Range], counts: Sequence[int], option: str) -> list[Range]:
    """Cut each range into as many parts as `counts` says; a part has at least one offset."""
    # More parts than offsets: the empty ones would be dropped, so they aren't made.
    counts = [min(count, _size(each)) for each, count in zip(ranges, counts, strict=True)]
    if sum(counts) > TASKS_MAX:
        raise OptionError(
            f"{option}: a batch of {sum(map(_size, ranges))} offsets would be read by "
            f"{sum(counts)} tasks, and {TASKS_MAX} are the most; ask for fewer and larger ones"
        )
    found: list[Range] = []
    for each, count in zip(ranges, counts, strict=True):
        start = each.start
        for part in range(count):
            end = start + (each.end - start) // (count - part)
            found.append(Range(each.partition, start, end))
            start = end
        assert start == each.end, "a part of a range is left over"
    return found
