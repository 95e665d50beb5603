"""What a round of compaction costs a core, compiled and in Python.

A log of segments over real files, all of it dirty, each key in it twice. MB/s are the log's bytes
through both passes, read, rewritten and synced, by the CPU of this process: what else the machine
does falls on none. Run: python bench/compaction.py [--megabytes 128] [--rounds 3] [DIRECTORY]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from holdfast.config.topic import TopicSettings
from holdfast.log.compaction.compaction_due import SegmentFacts
from holdfast.log.compaction.compaction_round import Round, RoundPlan
from holdfast.log.files import FileCache
from holdfast.log.segment import LOG_SUFFIX, Segment, prefix_of
from holdfast.runtime.real import real_runtime
from holdfast.runtime.sliced_work import Steps
from holdfast.wire.batch import Codec, Record, assign, build_batch, read_header
from holdfast.wire.walker.record_compaction import COMPACTOR, PYTHON, Compactor

SEGMENT_BYTES: Final = 16 << 20
# Records a batch, bytes a record's value, codec.
CASES: Final = {
    "100 B, none": (1_000, 100, Codec.NONE),
    "1 KB, none": (100, 1_000, Codec.NONE),
    "100 B, zstd": (1_000, 100, Codec.ZSTD),
    "1 KB, zstd": (100, 1_000, Codec.ZSTD),
    "1 KB, lz4": (100, 1_000, Codec.LZ4),
    "200 B, one a batch": (1, 200, Codec.NONE),
}
SETTINGS: Final = TopicSettings(segment_bytes=SEGMENT_BYTES)


def write_log(
    directory: str, total: int, count: int, size: int, codec: Codec
) -> tuple[list[SegmentFacts], int, int]:
    """Write segments whose keys come twice; return them, where they end, and their bytes."""
    halves = [os.urandom(size // 2) for _ in range(5_000)]  # they compress to half
    records = 2 * (total // (size + 20) // 2)
    keys = max(records // 2, 1)
    files = FileCache(real_runtime().disk, 8)
    facts: list[SegmentFacts] = []
    offset = written = 0
    segment: Segment | None = None
    while offset < records:
        batch = build_batch(
            [
                Record(b"key-%08d" % (number * 7_919 % keys), halves[number % 5_000] * 2, number)
                for number in range(offset, min(offset + count, records))
            ],
            codec=codec,
        )
        assign(batch, offset, 0)
        if segment is None or segment.size + len(batch) > SEGMENT_BYTES:
            if segment is not None:
                facts.append(facts_of(segment))
            prefix = prefix_of(directory, offset)
            segment = Segment.create(files, prefix, offset, now_ms=0, jitter_ms=0)
        segment.append(batch)
        header = read_header(batch)
        segment.note(len(batch), header.last_offset, header.max_timestamp, 4096)
        offset, written = header.next_offset, written + len(batch)
    assert segment is not None
    facts.append(facts_of(segment))
    files.close()
    return facts, offset, written


def facts_of(segment: Segment) -> SegmentFacts:
    indexes = segment.offsets.count * 8, segment.times.count * 12
    return SegmentFacts(segment.base, segment.size, 0, segment.max_timestamp[0], *indexes)


def taken(steps: Steps[Any]) -> Any:
    """Take all steps here, whatever they want."""
    wanted: object = None
    try:
        while True:
            wanted = steps.send(wanted() if callable(wanted) else None)
    except StopIteration as end:
        return end.value


def compact(
    directory: str, facts: list[SegmentFacts], end: int, compactor: Compactor
) -> tuple[float, int]:
    """Take both passes over a log, which stays as it is; return CPU seconds and bytes left."""
    runtime = real_runtime()
    plan = RoundPlan(
        directory=directory, segments=facts, first_dirty=0, bound=end, now_ms=0,
        secret=runtime.random.uuid(), map_bytes=128 << 20,
    )  # fmt: skip
    files = FileCache(runtime.disk, 8)
    work = Round(runtime.disk, files, plan, SETTINGS, compactor)
    began, left = time.process_time(), 0
    taken(work.find_keys())
    for group in work.groups():
        cleaned = taken(work.copy(group))
        if cleaned is None:
            left += sum(facts.size for facts in group)
        else:
            left += Path(cleaned.segment.prefix + LOG_SUFFIX + ".cleaned").stat().st_size
            work.remove_copy(group)
    return time.process_time() - began, left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("directory", nargs="?")
    options = parser.parse_args()
    print("| records, codec | MB | left | compiled MB/s | in Python MB/s |")
    print("|--|--|--|--|--|")
    for name, (count, size, codec) in CASES.items():
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            figures = []
            for compactor in (COMPACTOR, PYTHON):
                total = options.megabytes << 20
                if compactor is PYTHON:
                    total //= 8  # it is slow, and no faster with more
                here = f"{directory}/{compactor.name}"
                Path(here).mkdir()
                facts, end, written = write_log(here, total, count, size, codec)
                costs = [compact(here, facts, end, compactor) for _ in range(options.rounds)]
                figures.append(written / 1e6 / median(seconds for seconds, _ in costs))
                if compactor is COMPACTOR:
                    shown = f"{written / 1e6:.0f} | {costs[0][1] / written:.0%}"
            print(f"| {name} | {shown} | {figures[0]:.0f} | {figures[1]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
