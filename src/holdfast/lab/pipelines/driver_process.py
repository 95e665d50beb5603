"""A driver of `pipelines.proving.copying` as a process of a run: listened to, held, killed.

Owns the words between the two. Which driver is at work, and what a table must have, is for
`pipeline` to say.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.lab.pipelines.driver_words import lasts_s, lost_tasks
from holdfast.lab.pipelines.process_trees import below, command
from holdfast.lab.workload_processes import Lines, Process

MODULE = "holdfast.pipelines.proving.copying"


class DriverProcess(Process):
    """One driver, from its start to its end."""

    def __init__(
        self, name: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._told: list[dict[str, Any]] = []
        self._lines = Lines(folder / f"{name}.jsonl")
        self._armed = 0
        # A cluster of executors on this machine keeps off the network.
        environment = {**environment, "SPARK_LOCAL_IP": "127.0.0.1"}
        super().__init__(name, MODULE, arguments, folder / f"{name}.jsonl", environment)

    def told(self, event: str) -> list[dict[str, Any]]:
        """Return what it has said of this kind by now."""
        for line in self._lines.new():
            with suppress(ValueError):  # a library's own words
                self._told.append(json.loads(line))
        return [each for each in self._told if each.get("event") == event]

    @property
    def failure(self) -> str | None:
        """Why its query has ended, in its own words; None: it has not said so."""
        told = self.told("failed")
        return str(told[-1]["error"]) if told else None

    def last_words(self) -> str:
        return self.failure or super().last_words()

    def arm(self, place: str, when: str) -> None:
        """Have it wait where it comes to a place next."""
        self._armed += 1
        self.tell(json.dumps({"place": place, "when": when, "times": 1}))

    def is_there(self) -> bool:
        return len(self.told("at")) >= self._armed

    def lasts_s(self) -> float:
        """Return how long takes what it is at now, by what it has said of the times before."""
        return lasts_s(self.told("at"))

    def lost_tasks(self) -> int:
        """Return how many tasks Spark has seen die, by its own log."""
        return lost_tasks(self.log)

    def go(self) -> None:
        self.tell(json.dumps({"go": True}))

    def pause(self) -> None:
        """Stop it with its JVM and its workers, as a machine does that stands still."""
        send(signal.SIGSTOP, [self._process.pid, *below(self._process.pid)])

    def go_on(self) -> None:
        send(signal.SIGCONT, [self._process.pid, *below(self._process.pid)])

    def kill(self) -> None:
        """As any process of a run; Python's workers are a group of their own, and die with it."""
        others = below(self._process.pid) if self.running else []
        super().kill()
        send(signal.SIGKILL, others)

    def executor(self) -> int | None:
        """Return the process that works for it; None: there is none just now."""
        executors = (
            pid
            for pid in below(self._process.pid)
            if "CoarseGrainedExecutorBackend" in command(pid)
        )
        return next(executors, None)


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """Send a signal to processes, whatever groups they are in; to those that are there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
