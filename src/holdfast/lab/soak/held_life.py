"""A driver of `holdfast.pipelines.proving.target_driver`: told where to wait, listened to, killed.

Owns the words between the two, and what of a driver's processes is what.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.lab.pipelines.driver_words import lasts_s, lost_tasks
from holdfast.lab.pipelines.process_trees import below, command
from holdfast.lab.soak.stateful_campaigns import Life, ProofError

WAIT_S_MAX = 600.0  # for whatever a driver has to come to; the machine may be busy
_TASKS = "pyspark.daemon pyspark.worker"  # how Spark calls what has those that tasks run in


class HeldLife(Life):
    """One driver, from its start to its death."""

    def __init__(
        self, folder: Path, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        folder.mkdir(parents=True)
        self._said, self._log = folder / "said", folder / "log"
        with self._said.open("wb") as said, self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", "holdfast.pipelines.proving.target_driver", *arguments],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=log,
                start_new_session=True,
                # A cluster of executors on this machine keeps off the network.
                env={**os.environ, **environment, "SPARK_LOCAL_IP": "127.0.0.1"},
            )
        self.disturbed = False  # something that it needs was killed in its time, or taken from it
        self.killed = False  # and it was itself
        self._armed = 0

    def _tell(self, **words: Any) -> None:
        assert self._process.stdin is not None, "it was asked for"
        with suppress(BrokenPipeError):  # it has ended: whoever waits for it sees that
            self._process.stdin.write(json.dumps(words).encode() + b"\n")
            self._process.stdin.flush()

    def arm(self, place: str, when: str, times: int) -> None:
        """Have it come to a place, for the n-th time from now on."""
        self._armed += 1
        self._tell(place=place, when=when, times=times)

    def is_there(self) -> bool:
        return len(self.said("at")) >= self._armed

    def wait_for_its_moment(self) -> None:
        """Of "amid" it goes on: draw a moment of what takes as long as before."""
        told = self.said("at")[-1]
        if told["when"] == "amid":
            threading.Event().wait(random.SystemRandom().uniform(0, lasts_s(self.said("at"))))

    def go(self) -> None:
        self._tell(go=True)

    def kill(self) -> None:
        self.killed = True
        super().kill()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def wait(self) -> int:
        try:
            return self._process.wait(WAIT_S_MAX)
        except subprocess.TimeoutExpired as error:
            raise ProofError(f"The driver went on for too long: {self.tail()}") from error

    def kill_worker(self) -> str | None:
        """Kill one process that tasks run in; say which kind, None: there is none just now.

        Spark has others in Python, which look up sources or plan batches: none of them is it.
        """
        mine = {pid: command(pid) for pid in below(self._process.pid)}
        executors = [pid for pid, said in mine.items() if "CoarseGrainedExecutorBackend" in said]
        daemons = [pid for pid, said in mine.items() if said.rstrip().endswith(_TASKS)]
        workers = [pid for daemon in daemons for pid in below(daemon)]  # a daemon has no task
        if not executors and not workers:
            return None
        victim = random.SystemRandom().choice(executors or workers)
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return None
        return "executor" if executors else "python-worker"

    def lost_tasks(self) -> int:
        """Return how many tasks Spark has seen die, by its own log."""
        return lost_tasks(self._log)

    def failure(self) -> dict[str, Any] | None:
        """Return what it said of its query's end; None, if it said nothing."""
        told = self.said("failed")
        return told[-1] if told else None

    def status(self) -> int | None:
        """Return what its process ended with; None while it runs."""
        return self._process.poll()
