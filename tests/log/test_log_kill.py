"""SIGKILL in the middle of appending, with a real process on the real disk.

Goal: what a write was acknowledged for is there, in order, and the log goes on. Method: a process
appends and prints each offset after it was appended; it is killed while it does; we load its log.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.log.log_kit import append, everything, open_directories, small_settings

from holdfast.runtime.real import real_runtime
from holdfast.wire.batch import batches, crc_matches

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = small_settings(segment_bytes=64_000, index_interval_bytes=4_096)
WRITER = """
import asyncio, sys
from holdfast.runtime.real import real_runtime
from tests.log.log_kit import append, open_directories, small_settings

async def main(path):
    settings = small_settings(segment_bytes=64_000, index_interval_bytes=4_096)
    directories = open_directories(real_runtime(), [path], settings)
    log = directories.get("t", 0) or directories.create("t", 0, bytes(16), settings)
    log.start_epoch(log.latest_epoch + 1)
    directories.start()
    while True:
        for _ in range(50):
            base = append(log, 3, epoch=log.latest_epoch, size=200)
            sys.stdout.write(f"{base}\\n")
            sys.stdout.flush()
        await asyncio.sleep(0)

asyncio.run(main(sys.argv[1]))
"""


def write_and_kill(path: Path, count: int) -> int:
    """Let a process append until it has told of `count` appends, then kill it; the last told."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}/src:{ROOT}"},
    )
    assert process.stdout is not None
    with process:
        told = [int(process.stdout.readline()) for _ in range(count)]
        process.kill()
        told += [int(line) for line in process.stdout if line.endswith("\n")]
    return told[-1]


@pytest.mark.process
@pytest.mark.slow
def test_sigkill_in_the_middle_of_appending(tmp_path: Path) -> None:
    draw = random.Random(1)
    path = tmp_path / "logs"
    epochs = 0
    told = -1
    for _ in range(3):
        told = write_and_kill(path, draw.randint(200, 1_500))
        epochs += 1

    async def load() -> None:
        directories = open_directories(real_runtime(), [str(path)], SETTINGS)
        log = directories.get("t", 0)
        assert log is not None
        assert log.end >= told + 3, "an append that was told of is gone"
        data = everything(log)
        expected = 0
        for position, header in batches(data):
            assert header.base_offset == expected
            assert crc_matches(data, position)
            expected = header.next_offset
        assert expected == log.end
        assert log.latest_epoch == epochs - 1
        assert append(log, epoch=9) == expected
        await directories.close()

    asyncio.run(load())
