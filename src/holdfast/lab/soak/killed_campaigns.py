"""The lab itself is ended at random moments: nothing that it has started may stay.

Owns the ending of a proof in a network of its own, and the looking for what is left: processes,
by a word in their environment that all of them hand down, and what lies in the folder for temporary
files. A network namespace lives as long as a process in it, so it is gone with the last of them.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.cluster import ClusterError
from holdfast.cluster.processes import wait_until
from holdfast.lab.background import NETWORK_SCENARIOS
from holdfast.lab.guard import python_path
from holdfast.lab.soak.campaign import Campaign

WORD = "HOLDFAST_LAB_TO_END"  # of the environment
SCENARIO = "split-brain"
# From its start on: half of it is set-up, and the cut is in force at the end.
MOMENTS_S = (0.0, 24.0)
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
GONE_S = 120.0  # for all to be gone, on a slow machine
INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What was there when the lab was ended, and what of it stayed."""

    before: int  # processes
    processes: tuple[str, ...]
    files: tuple[str, ...]
    status: int


def end_lab(directory: Path, number: signal.Signals, moment: Callable[[], None]) -> Left:
    """Prove a scenario in this folder, end that, and look what is left. ClusterError.

    `moment` waits until it shall be ended.
    """
    word, temporary = uuid.uuid4().hex, directory / "tmp"
    temporary.mkdir(parents=True)
    command = ["-m", "holdfast.cli", "prove", SCENARIO, "--output", str(directory / "run")]
    with (
        (directory / "said").open("wb") as said,
        subprocess.Popen(  # noqa: S603 - our own module, no shell
            [sys.executable, "-P", *command],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={
                **os.environ,
                "PYTHONPATH": python_path(),
                "TMPDIR": str(temporary),
                WORD: word,
            },
            start_new_session=True,
        ) as process,
    ):
        try:
            moment()
            before = len(list(bearing(word)))
            process.send_signal(number)
            status = process.wait(GONE_S)
            with suppress(ClusterError):
                wait_until(lambda: not list(bearing(word)), timeout_s=GONE_S, what="all to end")
            left = tuple(command_of(pid) for pid in bearing(word))
        finally:
            for pid in bearing(word):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
    files = tuple(sorted(str(path.relative_to(temporary)) for path in temporary.iterdir()))
    return Left(before=before, processes=left, files=files, status=status)


def bearing(word: str) -> Iterator[int]:
    """Yield the pid of every process that has this word in its environment."""
    wanted = f"{WORD}={word}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if wanted in (path / "environ").read_bytes().split(b"\0"):
                yield int(path.name)


def command_of(pid: int) -> str:
    """Return the command line of a process; nothing when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def ended_at_random(directory: Path) -> dict[str, Any]:
    """End the lab at some moment by some signal."""
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    after_s, number = chance.uniform(*MOMENTS_S), chance.choice(SIGNALS)

    left = end_lab(directory, number, lambda: time.sleep(after_s))
    wanted = -signal.SIGKILL if number is signal.SIGKILL else INTERRUPTED
    kept = not left.processes and not left.files and left.status == wanted
    return {
        "kept": kept,
        "verdict": f"{number.name} after {after_s:.1f} s, with {left.before} processes: "
        f"{len(left.processes)} left, {len(left.files)} files, exit status {left.status}.",
        "left": left.processes,
        "files": left.files,
        "seed": seed,
    }


CAMPAIGNS = (
    Campaign(
        name="lab-ended",
        text="A proof in a network of its own is ended at a random moment by SIGKILL, SIGTERM or "
        "Ctrl-C: no process, no namespace and no temporary file stays.",
        runs=20,
        run=ended_at_random,
        exercises=NETWORK_SCENARIOS,
    ),
)
