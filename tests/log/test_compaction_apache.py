"""Goal: Apache Kafka reads what a round leaves, and its own cleaner leaves the same.

Method: kafka-dump-log with its deep iteration over a compacted directory. Then one log with all
codecs, tombstones, producers and transactions is compacted here and, its files put into a broker's
directory, by Apache Kafka's cleaner: batch by batch and record by record both must be equal. Ours
has the last batch of each group beside, without records.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.apache.conftest import KAFKA, wait_until_served
from tests.log.compaction_kit import (
    DAY_MS,
    Wanted,
    append_all,
    compact,
    keyed,
    producers_of,
    roll,
    whole_batches,
)
from tests.log.log_kit import TOPIC_ID, open_directories, small_settings
from tests.log.test_log_apache import COMPLAINTS, SUFFIXES, dump

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster.ports import free_ports
from holdfast.cluster.processes import wait_until
from holdfast.log.compaction.compaction_round import LastOfProducer
from holdfast.log.compaction.transaction_index import AbortedTransaction
from holdfast.log.log import Log
from holdfast.runtime.real import real_runtime
from holdfast.wire.batch import BatchHeader, Codec, Record, build_batch, read_records
from holdfast.wire.batch import transaction_marker as marker
from holdfast.wire.messages.create_topics import CreateTopicsRequest, new_topic

pytestmark = [pytest.mark.apache, pytest.mark.slow]

SETTINGS = small_settings(segment_bytes=3_000, index_interval_bytes=300)
PLENTY = small_settings(segment_bytes=1 << 20)
WAIT_S = 60.0
HOLES = re.compile(r"Non-consecutive offsets in \S+\n(  \d+ is followed by \d+\n)+")
CHECKPOINT = "cleaner-offset-checkpoint"
BROKER = (
    "log.cleaner.backoff.ms=100",
    "log.initial.task.delay.ms=0",
    "log.retention.check.interval.ms=86400000",
)


def write(log: Log, draw: random.Random, now_ms: int) -> list[AbortedTransaction]:
    """Write batches of every kind into several segments; return what was aborted."""
    sequences = {1: 0, 2: 0, 3: 0, 4: 0}
    aborted: list[AbortedTransaction] = []
    begun: dict[int, int] = {}
    for number in range(160):
        records = [
            Record(
                None if draw.random() < 0.05 else b"key %d" % draw.randrange(25),
                draw.choice([None, b"", b"value %d" % number, b"v" * 200]),
                now_ms - draw.randrange(10**7),
                draw.choice([(), (("h", b"x"), ("", None))]),
            )
            for _ in range(draw.randint(1, 6))
        ]
        producer = draw.choice([None, 1, 2, 3, 4])
        fields: dict[str, Any] = {}
        if producer is not None:
            fields = {"producer_id": producer, "producer_epoch": 1}
            fields |= {"base_sequence": sequences[producer], "transactional": producer > 2}
            sequences[producer] += len(records)
        elif draw.random() < 0.2:
            fields = {"log_append_time_ms": now_ms}
        (base,) = append_all(log, [Wanted(records, Codec(draw.randrange(5)), fields)], epoch=1)
        if producer in {3, 4}:
            begun.setdefault(producer, base)
        for each in [each for each in begun if draw.random() < 0.3 or number == 159]:
            first, is_commit = begun.pop(each), draw.random() < 0.5
            mark(log, each, now_ms, commit=is_commit)
            if not is_commit:
                aborted.append(AbortedTransaction(each, first, log.end - 1, first))
        if number % 20 == 19:
            roll(log)
    append_all(log, [keyed(("last", "1"), timestamp=now_ms)], epoch=1)
    return aborted


def mark(log: Log, producer: int, now_ms: int, *, commit: bool) -> None:
    record = marker(commit=commit, coordinator_epoch=0, timestamp=now_ms)
    batch = build_batch(
        [record], control=True, transactional=True, producer_id=producer, producer_epoch=1
    )
    log.append_as_leader(memoryview(batch), 1)


def test_kafka_dump_log_reads_what_a_round_leaves(tmp_path: Path) -> None:
    now_ms = int(time.time() * 1000)

    async def live() -> list[int]:
        directories = open_directories(real_runtime(), [str(tmp_path / "logs")], SETTINGS)
        log = directories.create("t", 0, TOPIC_ID, SETTINGS)
        aborted = write(log, random.Random(3), now_ms)
        await log.flush()
        for later_ms in (0, 2 * DAY_MS):
            compact(log, now_ms=now_ms + later_ms, aborted=aborted)
        bases = log._segments.bases[:]
        await directories.close(broker_epoch=1)
        return bases

    bases = asyncio.run(live())
    here = tmp_path / "logs" / "t-0"
    files = sorted(path for path in here.iterdir() if path.suffix in SUFFIXES)
    assert len(files) == 3 * len(bases) > 6
    text = HOLES.sub("", dump(*files))
    assert not COMPLAINTS.search(text), COMPLAINTS.search(text)
    assert [int(found) for found in re.findall(r"Log starting offset: (\d+)", text)] == bases
    assert "deleteHorizonMs: OptionalLong[" in text
    assert "count: 0 " in text
    indexed = [path for path in files if path.suffix == ".index" and path.stat().st_size]
    assert len(indexed) > 2, "an empty index proves nothing"
    (transactions, *_) = here.glob("*.txnindex")
    assert "producerId: " in dump(transactions)


# --- beside Apache Kafka's cleaner ---


class Batch(NamedTuple):
    """What both must have left of a batch."""

    header: BatchHeader
    records: Sequence[Record]


def normal(header: BatchHeader) -> BatchHeader:
    """Return a header without what either is free to choose.

    Which base timestamp counts, unless it is a delete horizon, and that depends on the time of the
    round; how well the records are compressed, and so the CRC.
    """
    return header._replace(batch_length=0, crc=0, base_timestamp=0)


def left_in(directory: Path, below: int) -> list[Batch]:
    """Return the batches of all segments below an offset."""
    data = b"".join(
        path.read_bytes() for path in sorted(directory.glob("*.log")) if int(path.stem) < below
    )
    return [Batch(normal(header), read_records(batch)) for header, batch in whole_batches(data)]


@contextmanager
def broker(directory: Path, port: int) -> Iterator[str]:
    """Run a broker of Apache Kafka; it is stopped in good order."""
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            [KAFKA, "single", directory, str(port), *BROKER], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        wait_until_served(f"127.0.0.1:{port}")
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_S)


def create_topic(address: str) -> None:
    values = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.0001",
        "delete.retention.ms": "1",
        "segment.bytes": str(1 << 20),
    }
    topic = new_topic("t", 1, 1, configs=values)
    with Driver(address, timeout_s=30) as driver:
        (created,) = driver.send(CreateTopicsRequest(topics=[topic])).topics
    assert created.error_code == 0


def put_in(source: Path, target: Path) -> None:
    """Put a log's files into a broker's directory, which has made the partition before."""
    for path in [*target.glob("*.log"), *target.glob("*index"), *target.glob("*.snapshot")]:
        path.unlink()
    for path in source.iterdir():
        if path.suffix in {".log", ".index", ".timeindex", ".txnindex"} or "epoch" in path.name:
            shutil.copy(path, target / path.name)
    (target.parent / ".kafka_cleanshutdown").unlink()  # it has to read all of it


def checkpoint_of(data: Path) -> int:
    path = data / CHECKPOINT
    lines = path.read_text().splitlines() if path.exists() else []
    return max((int(line.split()[2]) for line in lines if line.startswith("t 0 ")), default=-1)


def transaction_indexes(log: Log, aborted: Sequence[AbortedTransaction]) -> None:
    """Write what a broker that serves transactions would have written."""
    for base, end in zip(log._segments.bases, [*log._segments.bases[1:], 2**62], strict=True):
        entries = [each for each in aborted if base <= each.last_offset < end]
        data = b"".join(
            number.to_bytes(size, "big")
            for each in entries
            for number, size in zip((0, *each), (2, 8, 8, 8, 8), strict=True)
        )
        if data:
            Path(log.directory, f"{base:020d}.txnindex").write_bytes(data)


def test_apache_kafkas_cleaner_leaves_the_same(tmp_path: Path) -> None:
    now_ms = int(time.time() * 1000)
    runtime = real_runtime()
    source, theirs = tmp_path / "ours" / "t-0", tmp_path / "theirs" / "data" / "t-0"
    (tmp_path / "theirs").mkdir()
    (port,) = free_ports(1)

    async def written() -> tuple[int, list[AbortedTransaction], dict[int, LastOfProducer]]:
        directories = open_directories(runtime, [str(tmp_path / "ours")], PLENTY)
        log = directories.create("t", 0, TOPIC_ID, PLENTY)
        aborted = write(log, random.Random(5), now_ms)
        transaction_indexes(log, aborted)
        active, producers = log._segments.active.base, producers_of(log)
        await directories.close()
        return active, aborted, producers

    active, aborted, producers = asyncio.run(written())
    with broker(tmp_path / "theirs", port) as address:
        create_topic(address)
        wait_until(theirs.exists, timeout_s=WAIT_S, what="the partition")
    put_in(source, theirs)

    async def compacted(later_ms: int) -> None:
        directories = open_directories(runtime, [str(tmp_path / "ours")], PLENTY)
        log = directories.get("t", 0)
        assert log is not None
        settings = {"delete_retention_ms": 1}
        options: dict[str, Any] = {"aborted": aborted, "producers": producers, "settings": settings}
        assert compact(log, now_ms=now_ms + later_ms, **options).checkpoint == active
        await directories.close()

    counts = []
    for number in range(3):
        with broker(tmp_path / "theirs", port):
            wait_until(
                lambda: checkpoint_of(theirs.parent) == active, timeout_s=WAIT_S, what="a round"
            )
        asyncio.run(compacted(number * 1_000))
        counts.append(compare(left_in(source, active), left_in(theirs, active)))
        (theirs.parent / CHECKPOINT).unlink()  # so that it compacts all of it once more
    assert counts[0] > counts[1] > counts[2] > 20, "tombstones went, and then markers"


def compare(ours: Sequence[Batch], kafkas: Sequence[Batch]) -> int:
    """Compare what is left; return how many records are."""
    assert [batch for batch in ours if batch.records] == [b for b in kafkas if b.records]
    empty = {batch.header for batch in kafkas if not batch.records}
    mine = {batch.header for batch in ours if not batch.records}
    assert empty <= mine
    assert len(mine - empty) <= 1, "beside the end of a group"
    return sum(len(batch.records) for batch in ours)
