"""Workload processes, and what their histories say while they are still being written.

A `Worker` is one verifiable client in a process of its own; its `tail` follows its file. Whoever
wants to know how a workload fares reads the same lines as the judge does later.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, ClassVar

from holdfast.clients.workload.command import GAVE_UP
from holdfast.cluster import own_code
from holdfast.judge.groups.history import decode_any
from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Event,
    PartitionEvent,
    Refused,
    Unknown,
)
from holdfast.lab.parameters import LabError

READ_BYTES = 1 << 20
STOP_S = 60.0
# What `raw_consumer` says of bytes that it can't read. Whatever else ends it has other words.
NO_RECORDS = re.compile(r"^\S+-\d+ at offset \d+: (?!the reader broke$)", re.MULTILINE)


class GaveUpError(LabError):
    """A client was told what no idempotent producer can go on after: a log has a gap.

    Its promise is broken, unless the settings allow that something is lost.
    """


class NoRecordsError(LabError):
    """A reader was given bytes that are no records: no mishap of its own, and allowed nowhere."""


class Lines:
    """Follows one growing file of lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._rest = b""

    def new(self) -> Iterator[bytes]:
        """Yield each line that was written since, once it is whole."""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            file.seek(self._position)
            while data := file.read(READ_BYTES):
                self._position += len(data)
                *lines, self._rest = (self._rest + data).split(b"\n")
                yield from lines


class HistoryTail:
    """Follows one growing history; counts are as of the last `poll`."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)
        self.latest_ms = 0.0
        self.counts: Counter[tuple[str, int]] = Counter()  # (kind, partition)
        self.errors: Counter[tuple[str, int]] = Counter()  # (error, partition)
        self.acknowledged_ms: dict[int, float] = {}  # latest, by partition
        self.delivered_ms: dict[int, float] = {}
        self.ends: dict[int, int] = {}  # behind the highest offset acknowledged, by partition

    def poll(self) -> HistoryTail:
        """Take in what was written since; returns itself."""
        for line in self._lines.new():
            self._take(decode_any(line))
        return self

    def _take(self, event: Event) -> None:
        self.latest_ms = max(self.latest_ms, event.at_ms)
        if not isinstance(event, PartitionEvent):
            return
        self.counts[event.KIND, event.partition] += 1
        if isinstance(event, Acknowledged):
            self.acknowledged_ms[event.partition] = event.at_ms
            if event.offset is not None:
                end = max(event.offset + 1, self.ends.get(event.partition, 0))
                self.ends[event.partition] = end
        elif isinstance(event, Delivered):
            self.delivered_ms[event.partition] = event.at_ms
        elif isinstance(event, Refused | Unknown):
            self.errors[event.error, event.partition] += 1

    def count(self, kind: type[Event], partition: int | None = None) -> int:
        """Events of a kind, in one partition or in all."""
        return sum(
            count
            for (name, where), count in self.counts.items()
            if name == kind.KIND and partition in {None, where}
        )


class Process:
    """One process of a run, with what it has started, in a session of its own."""

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        said: Path,
        environment: Mapping[str, str],
        way_in: Sequence[str] = (),
    ) -> None:
        """Start `python -m module`. What it says goes to `said`, errors to the same name's .log.

        `environment` is laid over our own. `way_in`: words before the command, by which it comes
        to stand in a place of a network.
        """
        self.name = name
        self.log = said.with_suffix(".log")
        self._ending = False
        said.write_bytes(b"")
        with said.open("ab") as output, self.log.open("ab") as errors:  # perhaps one file
            self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                [*way_in, sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                env={**os.environ, **own_code.environment(environment)},
                start_new_session=True,
            )
        assert self._process.stdin is not None, "it was asked for"
        self._input: IO[bytes] = self._process.stdin

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def tell(self, line: str) -> None:
        """Write a line to its standard input; nothing when it has ended."""
        with suppress(BrokenPipeError):  # `raise_if_dead` says why
            self._input.write(line.encode() + b"\n")
            self._input.flush()

    def raise_if_dead(self) -> None:
        """LabError: it ended although nobody has asked it to, or waited for it."""
        if not self._ending and not self.running:
            raise self._why(f"the process {self.name} ended early: {self.last_words()}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, to it alone; nothing when it has ended."""
        if self.running:
            self._process.send_signal(number)

    def may_end(self) -> None:
        """From now on its end is no mishap: it has no more to do than what it was given."""
        self._ending = True

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Ask it to finish what is in flight, and wait until it has ended. LabError: it failed."""
        self._ending = True
        self.signal(signal.SIGTERM)
        self.wait(timeout_s)

    def wait(self, timeout_s: float = STOP_S) -> None:
        self._ending = True
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise LabError(f"the process {self.name} did not end in {timeout_s:g} s") from None
        self._close()
        if code:
            raise self._why(f"the process {self.name} failed ({code}): {self.last_words()}")

    def _why(self, text: str) -> LabError:
        """Return an error of the kind that its end is of."""
        if self._process.poll() == GAVE_UP:
            return GaveUpError(text)
        said = self.log.read_text(encoding="utf-8", errors="replace")
        return NoRecordsError(text) if NO_RECORDS.search(said) else LabError(text)

    def kill(self) -> None:
        """End it and what it has started at one instant, whatever they are doing."""
        self._ending = True
        if self.running:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close()

    def _close(self) -> None:
        with suppress(BrokenPipeError):
            self._input.close()

    def last_words(self) -> str:
        text = self.log.read_text(errors="replace").strip()
        return text[-400:] if text else "it said nothing"


class Worker(Process):
    """One workload process: a verifiable client."""

    TAIL: ClassVar[type[HistoryTail]] = HistoryTail

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        way_in: Sequence[str] = (),
    ) -> None:
        """Start it; its history is DIRECTORY/NAME.jsonl, what it prints DIRECTORY/NAME.log."""
        self.history = directory / f"{name}.jsonl"
        self.tail = self.TAIL(self.history)
        told = ["--history", str(self.history), "--process", name, *arguments]
        super().__init__(name, module, told, directory / f"{name}.log", environment, way_in)
