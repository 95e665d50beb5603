"""Runs the commands that their owner gives for nodes elsewhere: each within a bound, and told.

Owns the processes of these commands. What a command starts itself may live on; a command that hangs
is ended with all that is left in its session's process group.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.cluster import processes
from holdfast.cluster.elsewhere.nodes_file import NodesFile, told
from holdfast.cluster.layout import ClusterError, NodeRecord, WaitError

POLL_S: Final = 0.02
SAID_MAX: Final = 16 << 20  # bytes that one command may say; more would fill the disk


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """A command that has been started and not been waited for."""

    words: list[str]
    pid: int
    log: Path
    log_bytes: int  # that were in it before
    until_s: float

    @property
    def says_too_much(self) -> bool:
        return _size_of(self.log) - self.log_bytes > SAID_MAX


class NodeCommands:
    """The commands of one file. One at a time for each node; several nodes' may run at once."""

    def __init__(self, file: NodesFile, logs: Path, environment: Mapping[str, str]) -> None:
        """What they say goes to a file a node in `logs`. `environment` is laid over our own."""
        self.file = file
        self._logs = logs
        self._environment = environment
        self._begun: dict[int, _Begun] = {}
        self.last: dict[int, str] = {}  # the command of each node that was run last, in words

    def begin(self, name: str, node: NodeRecord) -> None:
        """Start a command of a node, behind the one that may still run. ClusterError: it can't."""
        self.finish(node.id)
        words = self.file.words(name, node)
        if words is None:
            raise ClusterError(f"{self.file.path} has no command `{name}` for node {node.id}.")
        self.last[node.id] = told(words)
        program = shutil.which(words[0])
        if program is None:
            raise ClusterError(f"{told(words)}: there is no program {words[0]}.")
        pid, log = self._spawned(node.id, [program, *words[1:]], told(words))
        until_s = time.monotonic() + self.file.timeout_s
        self._begun[node.id] = _Begun(
            words=words, pid=pid, log=log, log_bytes=_size_of(log), until_s=until_s
        )

    def _spawned(self, node_id: int, words: list[str], shown: str) -> tuple[int, Path]:
        """Start a command; its pid, and where its words go. Nowhere, if they can't be written.

        ClusterError: it can't be started.
        """
        log = self._logs / f"node-{node_id}.log"
        try:
            self._logs.mkdir(exist_ok=True)
            with log.open("a", encoding="utf-8") as file:
                file.write(f"$ {shown[1:-1]}\n")
        except OSError:  # a full disk keeps nothing from being undone
            log = Path(os.devnull)
        try:
            pid = processes.spawn(words, log_file=log, environment=self._environment)
        except OSError as error:
            raise ClusterError(f"{shown} can't be started: {error.strerror}.") from None
        return pid, log

    def finish(self, node_id: int) -> None:
        """Wait for the command of a node that runs, if one does.

        ClusterError: it failed, took too long or said too much, with what it said. Whoever
        interrupts the wait finds it running still.
        """
        begun = self._begun.get(node_id)
        if begun is None:
            return
        try:
            status = processes.wait_until(
                lambda: _status(begun.pid) or begun.says_too_much,
                timeout_s=max(0.0, begun.until_s - time.monotonic()),
                what="a command",
                poll_s=POLL_S,
            )
        except WaitError:
            del self._begun[node_id]
            _end(begun.pid)
            raise ClusterError(
                f"{told(begun.words)} has not ended after {self.file.timeout_s:g} s, and was "
                f"killed. {_said(begun.log)}"
            ) from None
        del self._begun[node_id]
        if not isinstance(status, _Ended):
            _end(begun.pid)
            raise ClusterError(
                f"{told(begun.words)} said more than {SAID_MAX >> 20} MiB, and was killed: "
                f"what it starts has to write elsewhere. {_said(begun.log)}"
            )
        code = os.waitstatus_to_exitcode(status.value)
        if code:
            how = f"ended by signal {-code}" if code < 0 else f"failed with exit status {code}"
            raise ClusterError(f"{told(begun.words)} {how}. {_said(begun.log)}")

    def run(self, name: str, node: NodeRecord) -> None:
        """Run a command of a node. ClusterError as in `begin` and `finish`."""
        self.begin(name, node)
        self.finish(node.id)

    def settle(self) -> set[int]:
        """Wait for what still runs, however it ends: what has ended does nothing any more.

        One that is killed may have asked another machine for something that is still to come.
        Return the nodes whose command ended well.
        """
        ended_well = set[int]()
        for node_id in list(self._begun):
            with suppress(ClusterError):
                self.finish(node_id)
                ended_well.add(node_id)
        return ended_well


@dataclass(frozen=True, slots=True)
class _Ended:
    value: int  # as waitpid has it


def _status(pid: int) -> _Ended | None:
    """Return how a child has ended; None: it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return _Ended(status) if found else None


def _end(pid: int) -> None:
    """Kill a command and what is left in its process group, which it leads."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _said(log: Path) -> str:
    text = processes.log_tail(log).strip()
    return f"It said: {text}" if text else "It said nothing."


def _size_of(log: Path) -> int:
    with suppress(OSError):
        return log.stat().st_size
    return 0
