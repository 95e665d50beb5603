"""Judging a history of millions of events: memory and CPU time of one process, files to verdict.

The history is that of two producers, three partitions, two live readers, the last whole read and
three replicas. It is written once and judged in a fresh process each round.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from engines import ROOT

NAME = "judging a history of 5,000,000 events"
EVENTS = 5_000_000
PARTITIONS = 3
PER_RECORD = 5  # sent, acknowledged, given to two readers, found by the last read
BATCH = 20  # records of one batch in a replica's file
STEP_MS = 0.05
JUDGED = """
import json, resource, sys, time
from pathlib import Path
from holdfast.lab.evidence import evidence_of, history_files
judgement = evidence_of(history_files(Path(sys.argv[1]))).judgement
assert judgement.decided and not judgement.findings, judgement.undecided
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "events": judgement.events,
    "cpu_s": used.ru_utime + used.ru_stime,
    "gigabytes": used.ru_maxrss / 1e6,
}))
"""


def measure(
    directory: Path, rounds: int, add: Callable[[str, str, dict[str, float]], None]
) -> None:
    """Write the history, judge it so often, remove it."""
    history = directory / "judged"
    write_history(history, EVENTS)
    for _ in range(rounds):
        add(NAME, "holdfast", judge_once(history))
    for path in history.iterdir():
        path.unlink()
    history.rmdir()


def judge_once(history: Path) -> dict[str, float]:
    """Judge in a process of its own, whose memory and CPU time are then the judge's alone."""
    done = subprocess.run(
        [sys.executable, "-c", JUDGED, str(history)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
    )
    if done.returncode:
        raise RuntimeError(f"judging: {done.stderr.strip()[-500:]}")
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def write_history(directory: Path, events: int) -> None:
    """Write a history in which all went well, in files as the lab's processes write them."""
    directory.mkdir(parents=True)
    records = events // PER_RECORD
    whole_ms = records * STEP_MS + 1000
    names = ("producer-0", "producer-1", "live", "raw", "final", "replicas")
    files = {name: (directory / f"{name}.jsonl").open("w") for name in names}

    def write(process: str, kind: str, at_ms: float, partition: int, rest: str) -> None:
        files[process].write(
            f'{{"event":"{kind}","at_ms":{at_ms:.3f},"wall_ms":{1_767_225_600_000 + int(at_ms)},'
            f'"process":"{process}","topic":"foo","partition":{partition},{rest}}}\n'
        )

    for number in range(records):
        producer, partition, offset = number % 2, number % PARTITIONS, number // PARTITIONS
        process, at_ms = f"producer-{producer}", 1000 + number * STEP_MS
        name = f'"id":"{process}:{number // 2}"'
        record = f'"digest":"{number * 2654435761 % (1 << 32):08x}","key":"foo_{partition + 1}"'
        write(process, "send", at_ms, partition, f'{name},"size":100,{record}')
        write(process, "acknowledged", at_ms + 4, partition, f'{name},"offset":{offset}')
        stamp = 1_767_225_600_000 + int(at_ms)
        given = f'"offset":{offset},{name},{record},"timestamp":{stamp}'
        given += f',"epoch":{number * 8 // records}'
        write("live", "delivered", at_ms + 6, partition, given)
        write("raw", "delivered", at_ms + 5, partition, f'{given},"committed_end":{offset + 1}')
        write("final", "delivered", at_ms + whole_ms, partition, given)
    for partition in range(PARTITIONS):
        end = len(range(partition, records, PARTITIONS))
        write("final", "read_end", 3 * whole_ms, partition, f'"begin":0,"end":{end}')
        for node in range(3):
            extent = f'"node":{node},"begin":0,"end":{end}'
            write("replicas", "replica", 3 * whole_ms, partition, extent)
            for offset in range(0, end, BATCH):
                last = min(offset + BATCH, end) - 1
                held = f'"node":{node},"offset":{offset},"last_offset":{last},"epoch":0'
                write(
                    "replicas", "replica_batch", 3 * whole_ms, partition,
                    f'{held},"digest":"{offset * 40503 % (1 << 32):08x}","size":2400',
                )  # fmt: skip
    for file in files.values():
        file.close()
