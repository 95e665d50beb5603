"""A storm's machines: each node's disk can run full, and the clock of one of ours can be set.

Owns what makes that possible before there is a topic, and says of what can't be done why.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from holdfast.cluster import ClusterError
from holdfast.cluster.layout import EMBEDDED
from holdfast.cluster.processes import START_MARK
from holdfast.lab.parameters import LabError, refuse_if
from holdfast.lab.run import Run
from holdfast.lab.steps.mounts import mount_small, resize, unmount
from holdfast.lab.steps.small_disks import SmallDisk
from holdfast.lab.steps.storm_plan import Deed

MINUTE_MS = 60_000
ROOM_BYTES = 8 << 30  # of a disk that is not full: in memory, and only what is written takes any
EVENT_BYTES_MAX = 1000  # of an event in a log, with its batch's header
PROBE_BYTES = 1 << 20
FILLS_MAX = 50  # the node may write between the look and the change
# In the log of who has met that. A JVM writes indexes through its memory, where it is told so.
NO_SPACE = ("No space left on device", "unsafe memory access")

CLOCK_FILE = "clock-ahead-ms"
HOOK_FILE = "sitecustomize.py"  # Python's own hook: a process imports it before all else
HOOK = f"""\
from holdfast.runtime.settable_clock import install

install({CLOCK_FILE!r})
"""


class Machines:
    """The nodes of one storm. Make them before there is a topic: each node is started anew."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._nodes = [node.id for node in run.cluster.nodes]
        self._wrong: set[int] = set()  # whose clock is
        self._disks: dict[int, SmallDisk] = {}
        self._can = {*Deed}
        if run.parameters.engine == EMBEDDED:
            self._make_settable()
        else:
            self._can.discard(Deed.CLOCK)
            run.note("no clock is set: that takes nodes of ours")
        if (why := self._why_no_disks()) is None:
            self._make_fillable()
        else:
            self._can.discard(Deed.FULL)
            run.note(f"no disk runs full: {why}")
            self._start_anew()

    def can(self, deed: Deed) -> bool:
        """Whether that can be done to them at all."""
        return deed in self._can

    # -- disks -----------------------------------------------------------------------------------

    def fill(self, node: int) -> None:
        """Leave no room on a node's disk: it ends by itself once it has to write what counts."""
        run, file_system = self._run, self._disks[node].file_system
        run.ended.add(node)
        run.observer.avoid(node)
        run.note(f"the disk of {node} is full")
        for left in reversed(range(FILLS_MAX)):
            found = os.statvfs(file_system)
            try:
                resize(file_system, (found.f_blocks - found.f_bfree) * found.f_frsize)
            except LabError:  # it has written just now, and holds more than that
                if not left:
                    raise
            else:
                return

    def make_room(self, node: int) -> bool:
        """End that, and the node with it. Return whether it had ended by itself.

        One that lives may have met the full disk just now, and be about to end: it is killed, or
        it would end whenever it comes to that.
        """
        resize(self._disks[node].file_system, ROOM_BYTES)
        run = self._run
        if run.cluster.state(node) == "dead":
            run.note(f"the disk of {node} has room again; {node} had ended by itself")
            self._expect_told(node)
            return True
        run.note(f"the disk of {node} has room again")
        run.record_fault("KILL", node, "its disk was full, and it had not met that")
        try:
            run.cluster.kill(node, "KILL")
        except ClusterError:
            if run.cluster.state(node) != "dead":
                raise
        return False

    def _expect_told(self, node: int) -> None:
        """A failed check, if a node has ended for another reason: only a full disk excuses that."""
        log = Path(self._run.cluster.node(node).log_file).read_text("utf-8", errors="replace")
        since = log.rpartition(START_MARK)[2]
        if not any(each in since for each in NO_SPACE):
            seen = "it has ended by itself, and its log does not say so"
            self._run.check(f"{node}, whose disk is full", f"ends: {NO_SPACE[0]}", seen, kept=False)

    def _why_no_disks(self) -> str | None:
        probe = _directory(self._run, self._nodes[0]) / "probe"
        try:
            mount_small(probe, PROBE_BYTES)
        except LabError as error:
            return str(error)
        unmount(probe)
        probe.rmdir()
        return None

    def _make_fillable(self) -> None:
        run = self._run
        most = run.parameters.rate * run.parameters.duration_s * EVENT_BYTES_MAX
        refuse_if(
            most > ROOM_BYTES,
            f"{run.parameters.rate:g} events a second for {run.parameters.duration_s:g} s may take "
            f"more than the {ROOM_BYTES >> 30} GiB of memory that a node's disk has in a storm: "
            "--rate or --duration less",
        )
        for node in self._nodes:
            self._disks[node] = disk = SmallDisk(run, node, only=True)
            resize(disk.file_system, ROOM_BYTES)
        run.note(f"each disk can run full; until then it has {ROOM_BYTES >> 30} GiB of memory")

    # -- clocks ----------------------------------------------------------------------------------

    def is_wrong(self, node: int) -> bool:
        """Whether a node's clock is wrong just now."""
        return node in self._wrong

    def set_clock(self, node: int, minutes: int) -> None:
        """Let a node's clock be so many minutes ahead, or behind; 0: right. A node keeps it."""
        with _clock_file(self._run, node).open("r+b") as file:
            file.write(_offset(minutes * MINUTE_MS))
        (self._wrong.add if minutes else self._wrong.discard)(node)

    def _make_settable(self) -> None:
        """Let nodes that are started from now on have clocks that can be set."""
        run = self._run
        hook = run.history.parent / "hook"
        hook.mkdir()
        (hook / HOOK_FILE).write_text(HOOK, encoding="utf-8")
        for node in self._nodes:
            _clock_file(run, node).write_bytes(_offset(0))
        path = os.pathsep.join(filter(None, [str(hook), os.environ.get("PYTHONPATH")]))
        run.cluster.environment = {**run.cluster.environment, "PYTHONPATH": path}

    def _start_anew(self) -> None:
        for node in self._nodes:
            self._run.ended.add(node)
            self._run.cluster.kill(node, "TERM", timeout_s=self._run.parameters.leave_s)
            self._run.cluster.start_node(node, timeout_s=self._run.parameters.start_s)
            self._run.ended.discard(node)


def _directory(run: Run, node: int) -> Path:
    return Path(run.cluster.node(node).config_file).parent


def _clock_file(run: Run, node: int) -> Path:
    return _directory(run, node) / CLOCK_FILE


def _offset(ahead_ms: int) -> bytes:
    return ahead_ms.to_bytes(8, sys.byteorder, signed=True)
