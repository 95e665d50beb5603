"""Apache Kafka's own reader finds nothing wrong with our segments, indexes and snapshots.

Method: kafka-dump-log over a directory that rolled, was truncated, recovered and closed; its deep
iteration compares each index entry with the batch that it names. Damage is found by it, too.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path

import pytest
from tests.log.log_kit import (
    NOW_MS,
    TOPIC_ID,
    append,
    crash,
    make_batch,
    open_directories,
    small_settings,
)

from holdfast.runtime.real import real_runtime
from holdfast.wire.batch import Codec

pytestmark = [pytest.mark.apache, pytest.mark.slow]

SUFFIXES = {".log", ".index", ".timeindex"}
KAFKA = Path(__file__).resolve().parents[2] / "scripts" / "apache" / "kafka.sh"
SETTINGS = small_settings(segment_bytes=3_000, index_interval_bytes=300)
COMPLAINTS = re.compile(
    r"mismatch|non-consecutive|not found|isvalid: false|error|exception", re.IGNORECASE
)
# Kafka 4.3's tool says so of every file that does not begin at offset 0.
NO_COMPLAINT = re.compile(r"Non-consecutive offsets in \S+\n  -1 is followed by \d+\n")


def dump(*files: Path) -> str:
    command = [str(KAFKA), "dump-log", "--deep-iteration", "--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return NO_COMPLAINT.sub("", done.stderr) + done.stdout


async def live(root: Path) -> list[int]:
    """Write a replica through a truncation, a crash and a clean stop; return its base offsets."""
    runtime = real_runtime()
    directories = open_directories(runtime, [str(root)], SETTINGS)
    log = directories.create("t", 0, TOPIC_ID, SETTINGS)
    for number in range(120):
        pid = 7 + number % 2
        batch = make_batch(
            1 + number % 3,
            timestamp=NOW_MS + (number ^ 3) * 10,
            codec=Codec(number % len(Codec)),
            producer_id=pid,
            producer_epoch=number // 40,
            base_sequence=number,
        )
        log.append_as_leader(memoryview(bytearray(batch)), number // 30)
    log.truncate_to(100)
    for number in range(40):
        append(log, 2, epoch=5, timestamp=NOW_MS + 2_000 + number)
    await log.flush()
    crash(directories)
    directories = open_directories(runtime, [str(root)], SETTINGS)
    found = directories.get("t", 0)
    assert found is not None
    for number in range(40):
        append(found, 1, epoch=6, timestamp=NOW_MS + 3_000 + number)
    bases = [int(path.stem) for path in sorted((root / "t-0").glob("*.log"))]
    await directories.close(broker_epoch=1)
    return bases


def test_kafka_dump_log_reads_what_we_wrote(tmp_path: Path) -> None:
    bases = asyncio.run(live(tmp_path / "logs"))
    here = tmp_path / "logs" / "t-0"
    files = sorted(path for path in here.iterdir() if path.suffix in SUFFIXES)
    assert len(bases) > 4
    assert len(files) == 3 * len(bases)
    # Each index beside its log: the tool opens the log by the index's name.
    text = dump(*files)
    assert not COMPLAINTS.search(text), COMPLAINTS.search(text)
    assert [int(found) for found in re.findall(r"Log starting offset: (\d+)", text)] == bases
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
    assert offsets == [*range(len(offsets))]
    assert len(offsets) > 200
    indexed = [path for path in files if path.suffix == ".index" and path.stat().st_size]
    assert len(indexed) > 4, "an empty index proves nothing"


def test_kafka_dump_log_reads_our_producer_snapshots(tmp_path: Path) -> None:
    asyncio.run(live(tmp_path / "logs"))
    snapshots = sorted((tmp_path / "logs" / "t-0").glob("*.snapshot"))
    text = dump(snapshots[-1])
    found = re.findall(r"producerId: (\d+) producerEpoch: (\d+) .* lastSequence: (\d+)", text)
    assert [producer for producer, _, _ in found] == ["7", "8"]
    assert not COMPLAINTS.search(text)


def test_kafka_dump_log_would_have_seen_a_wrong_entry(tmp_path: Path) -> None:
    asyncio.run(live(tmp_path / "logs"))
    here = tmp_path / "logs" / "t-0"
    for suffix, at in ((".index", 3), (".timeindex", 7)):
        path = here / f"{0:020d}{suffix}"
        data = bytearray(path.read_bytes())
        data[at] += 1
        path.write_bytes(data)
        assert COMPLAINTS.search(dump(path)), f"a wrong {suffix} went unseen"
