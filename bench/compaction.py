"""What a round of compaction costs a core, compiled and in Python, and what memory it takes.

A log of segments over real files, all of it dirty, each key in it twice. MB/s are the log's bytes
through both passes, read, rewritten and synced, by the CPU of this process: what else the machine
does falls on none. Where batches are compressed the goal is about what they inflate to: that is
what is walked. Memory is that of a process of its own whose map of keys gets full.

    python bench/compaction.py [--megabytes 128] [--rounds 3] [--only WORD] [DIRECTORY]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import goals
from engines import ROOT, machine
from goals import Goal
from holdfast.config.topic import TopicSettings
from holdfast.log.compaction.compaction_due import SegmentFacts
from holdfast.log.compaction.compaction_round import Round, RoundPlan
from holdfast.log.files import FileCache
from holdfast.log.segment import LOG_SUFFIX, Segment, prefix_of
from holdfast.runtime.real import real_runtime
from holdfast.runtime.sliced_work import Steps
from holdfast.wire.batch import Codec, Record, assign, build_batch, read_header
from holdfast.wire.walker.record_compaction import COMPACTOR, PYTHON, Compactor
from rounds import Results

Add = Callable[[str, str, dict[str, float]], None]

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
MEMORY: Final = "compaction: memory"
COMPILED: Final = goals.OURS
IN_PYTHON: Final = "in Python"
COMPACTORS: Final = {COMPILED: COMPACTOR, IN_PYTHON: PYTHON}
MAP_BYTES: Final = 128 << 20
SMALL_MAP_BYTES: Final = 4 << 20  # which a log of 64 MB of such records fills
MEGABYTES: Final = 128
_LEAST: Final = {COMPILED: 60.0, IN_PYTHON: 15.0}
GOALS: Final = (
    *(
        Goal(case=f"compaction: {name}", metric="mb_per_core_s", says="MB of records/s a core",
             bound=least, at_least=True, engine=engine)
        for engine, least in _LEAST.items()
        for name in CASES
    ),
    *(
        Goal(case=MEMORY, metric="beside_map_mb", engine=engine, bound=8.0, by_worst=True,
             says="MB of a round beside log.cleaner.dedupe.buffer.size")
        for engine in COMPACTORS
    ),
)  # fmt: skip
SETTINGS: Final = TopicSettings(segment_bytes=SEGMENT_BYTES)


class WrittenLog(NamedTuple):
    """A log of which all is dirty."""

    directory: str
    facts: list[SegmentFacts]
    end: int
    written: int  # bytes
    inflated: int  # bytes that they would be without compression


def write_log(directory: str, total: int, count: int, size: int, codec: Codec) -> WrittenLog:
    """Write segments whose keys come twice."""
    halves = [os.urandom(size // 2) for _ in range(5_000)]  # they compress to half
    records = 2 * (total // (size + 20) // 2)
    keys = max(records // 2, 1)
    files = FileCache(real_runtime().disk, 8)
    facts: list[SegmentFacts] = []
    offset = written = inflated = 0
    segment: Segment | None = None
    while offset < records:
        some = [
            Record(b"key-%08d" % (number * 7_919 % keys), halves[number % 5_000] * 2, number)
            for number in range(offset, min(offset + count, records))
        ]
        batch = build_batch(some, codec=codec)
        inflated += len(build_batch(some) if codec else batch)
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
    return WrittenLog(directory, facts, offset, written, inflated)


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
    directory: str,
    facts: list[SegmentFacts],
    end: int,
    compactor: Compactor,
    map_bytes: int = MAP_BYTES,
) -> tuple[float, int]:
    """Take both passes over a log, which stays as it is; return CPU seconds and bytes left."""
    runtime = real_runtime()
    plan = RoundPlan(
        directory=directory, segments=facts, first_dirty=0, bound=end, now_ms=0,
        secret=runtime.random.uuid(), map_bytes=map_bytes,
    )  # fmt: skip
    files = FileCache(runtime.disk, 8)
    began, left = time.process_time(), 0
    work = Round(runtime.disk, files, plan, SETTINGS, compactor)
    taken(work.find_keys())
    for group in work.groups():
        cleaned = taken(work.copy(group))
        if cleaned is None:
            left += sum(facts.size for facts in group)
        else:
            left += Path(cleaned.segment.prefix + LOG_SUFFIX + ".cleaned").stat().st_size
            work.remove_copy(group)
    return time.process_time() - began, left


def measure(
    directory: Path, rounds: int, add: Add, only: str = "", megabytes: int = MEGABYTES
) -> None:
    """Compact a log of each kind so often, with both implementations in turn."""
    for name, (count, size, codec) in CASES.items():
        case = f"compaction: {name}"
        if only not in case:
            continue
        logs: dict[str, WrittenLog] = {}
        for engine, compactor in COMPACTORS.items():
            # Python is slow, and no faster with more.
            total = (megabytes << 20) // (8 if compactor is PYTHON else 1)
            here = directory / f"{len(logs)}"
            here.mkdir()
            logs[engine] = write_log(str(here), total, count, size, codec)
        for _ in range(rounds):
            for engine, log in logs.items():
                seconds, left = compact(log.directory, log.facts, log.end, COMPACTORS[engine])
                measured = {
                    "log_mb": log.written / 1e6,
                    "left_share": left / log.written,
                    "log_mb_per_core_s": log.written / 1e6 / seconds,
                    "mb_per_core_s": log.inflated / 1e6 / seconds,
                }
                add(case, engine, measured)
        for log in logs.values():
            remove_log(Path(log.directory))
    if only in MEMORY:
        _measure_memory(directory / "memory", rounds, add)


def _measure_memory(directory: Path, rounds: int, add: Add) -> None:
    directory.mkdir()
    count, size, codec = CASES["100 B, none"]
    log = write_log(str(directory), 64 << 20, count, size, codec)
    for _ in range(rounds):
        for engine in COMPACTORS:
            job = {"directory": log.directory, "facts": log.facts, "end": log.end, "engine": engine}
            command = [sys.executable, str(Path(__file__)), "--memory", json.dumps(job)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"compaction: {done.stderr.strip()[-500:]}")
            add(MEMORY, engine, json.loads(done.stdout))
    remove_log(directory)


def memory_of(job: dict[str, Any]) -> dict[str, float]:
    """Compact in this process, which has done nothing else; return what it took at most, in MB."""
    facts = [SegmentFacts(*each) for each in job["facts"]]
    before = _peak_mb()
    compact(job["directory"], facts, job["end"], COMPACTORS[job["engine"]], SMALL_MAP_BYTES)
    grown = _peak_mb() - before
    map_mb = SMALL_MAP_BYTES / 1e6
    return {"map_mb": map_mb, "grown_mb": grown, "beside_map_mb": max(0.0, grown - map_mb)}


def _peak_mb() -> float:
    """Return the most memory that this program has had; what getrusage says began with another."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (kilobytes,) = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return kilobytes * 1024 / 1e6


def remove_log(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()


def render(cases: dict[str, Any]) -> str:
    """Return a table of the medians."""
    lines = [
        "| records, codec | MB of the log | left | compiled MB/s | in Python MB/s |",
        "|--|--|--|--|--|",
    ]
    for case, engines in cases.items():
        if case == MEMORY:
            continue
        figures = {engine: metrics["log_mb_per_core_s"] for engine, metrics in engines.items()}
        compiled = engines[COMPILED]
        lines.append(
            f"| {case.partition(': ')[2]} | {compiled['log_mb']['median']:.0f}"
            f" | {compiled['left_share']['median']:.0%} | {figures[COMPILED]['median']:.0f}"
            f" | {figures[IN_PYTHON]['median']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, write bench/results/compaction-TIME.json if all was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", metavar="WORD", help="cases whose name has it")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    parser.add_argument("directory", nargs="?")
    options = parser.parse_args()
    if options.memory:
        print(json.dumps(memory_of(json.loads(options.memory))))
        return
    report: dict[str, Any] = {
        "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": machine(),
        "rounds": options.rounds,
        "compactor": COMPACTOR.name,
    }
    results = Results()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        measure(Path(name), options.rounds, results.add, options.only, options.megabytes)
    cases = results.summary()
    report |= {"goals": goals.judged(GOALS, cases), "cases": cases}
    print(render(cases))
    print(goals.render(row for row in report["goals"] if row["case"] in cases), end="")
    if not options.only and options.megabytes >= MEGABYTES and options.rounds >= 3:
        name = f"compaction-{time.strftime('%Y-%m-%dT%H%M')}.json"
        (ROOT / "bench" / "results" / name).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
