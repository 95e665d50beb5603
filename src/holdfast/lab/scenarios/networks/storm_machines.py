"""A storm's machines: each node's disk can run full, and the clock of one of ours can be set.

Owns what makes that possible before there is a topic, and says of what can't be done why.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from holdfast.cluster import ClusterError
from holdfast.cluster.layout import EMBEDDED
from holdfast.cluster.own_code import VARIABLE
from holdfast.cluster.processes import START_MARK
from holdfast.config.topic import TopicSettings
from holdfast.lab.parameters import LabError, Parameters, refuse_if
from holdfast.lab.run import Run
from holdfast.lab.scenarios.networks.timetable import LEAVE_S
from holdfast.lab.steps.mounts import mount_small, resize, unmount
from holdfast.lab.steps.small_disks import SmallDisk
from holdfast.lab.steps.storm_plan import MINUTES, Deed

MINUTE_MS = 60_000
DAY_MS = 86_400_000
PRODUCERS_EXPIRE = "producer.id.expiration.ms"
RAW_RATE = 20.0  # events a second of each raw client, for each partition; one stands by a broker
ROOM_BYTES = 8 << 30  # of a disk that is not full: in memory, and only what is written takes any
EVENT_BYTES_MAX = 1000  # of an event in a log, with its batch's header
PROBE_BYTES = 1 << 20
MEMORY = Path("/proc/meminfo")
MEMBERSHIP = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")
STAT = "memory.stat"
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
VERSION_2 = ("memory.max", "memory.current", "inactive_file")
FILLS_MAX = 50  # the node may write between the look and the change
# In the log of who has met that. A JVM writes indexes through its memory, where it is told so.
NO_SPACE = ("No space left on device", "unsafe memory access")

CLOCK_FILE = "clock-ahead-ms"
HOOK_FILE = "sitecustomize.py"  # Python's own hook: a process imports it before all else
HOOK = f"""\
from holdfast.runtime.settable_clock import install

install({CLOCK_FILE!r})
"""


class Met(StrEnum):
    """What a node has made of its full disk. Its words are those of reports."""

    ENDED = "and it ended by itself"
    NOT = "which it had not met: killed"
    STAYED = "which it had met, and it did not end: killed"


class Machines:
    """The nodes of one storm. Make them before there is a topic: each node is started anew."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._nodes = [node.id for node in run.cluster.nodes]
        self._wrong: set[int] = set()  # whose clock is
        self._disks: dict[int, SmallDisk] = {}
        self._gone: set[int] = set()  # who has ended on a full disk, as the history says
        self._met_s: dict[int, float] = {}  # since when a node that runs is known to have met it
        self._cannot: dict[Deed, str] = {}
        if (why := why_no_clocks(run.parameters)) is None:
            self._make_settable()
        else:
            self._leave_out(Deed.CLOCK, f"no clock is set: {why}")
        if (why := self._why_no_disks()) is None:
            self._make_fillable()
            return
        self._leave_out(Deed.FULL, f"no disk runs full: {why}")
        if Deed.CLOCK not in self._cannot:
            self._start_anew()

    @property
    def cannot(self) -> Mapping[Deed, str]:
        """What can't be done to them at all, and why, as a report says it."""
        return self._cannot

    def _leave_out(self, deed: Deed, why: str) -> None:
        self._cannot[deed] = why
        self._run.note(why)

    # -- disks -----------------------------------------------------------------------------------

    def fill(self, node: int) -> bool:
        """Leave no room on a node's disk: it ends by itself once it has to write what counts.

        False: the disk is new, and holds nothing yet. As small as that it would have no bound.
        """
        run, file_system = self._run, self._disks[node].file_system
        if not _used(file_system):
            return False
        run.ended.add(node)
        run.observer.avoid(node)
        run.note(f"the disk of {node} is full")
        for left in reversed(range(FILLS_MAX)):
            try:
                resize(file_system, _used(file_system))
                break
            except LabError:  # it has written just now, and holds more than that
                if not left:
                    raise
        return True

    def look(self, node: int) -> bool:
        """Say whether a node has ended on its full disk. The history says when that was seen."""
        if self._run.cluster.state(node) != "dead":
            return False
        if node not in self._gone:
            self._gone.add(node)
            self._run.record_fault("exit", node, "by itself, its disk is full")
        return True

    def make_room(self, node: int) -> Met | None:
        """End that, and the node with it. Return what it has made of it; None: ask again.

        One that has met the full disk, as its log says, has to end, and is given the time to hand
        over what it leads. One that has not may meet it at any moment: it is killed, or it would
        end whenever it comes to that.
        """
        run, now_s = self._run, time.monotonic()
        if self.look(node):
            met = Met.ENDED
            self._expect_told(node)
        elif not self._has_met(node):
            met = Met.NOT
            self._kill(node, "its disk was full, and it had not met that")
        elif now_s < self._met_s.setdefault(node, now_s) + LEAVE_S:
            return None
        else:
            met = Met.STAYED
            self._expect_ended(node)
            self._kill(node, "it had met the full disk and did not end")
        self._gone.discard(node)
        self._met_s.pop(node, None)
        resize(self._disks[node].file_system, ROOM_BYTES)
        run.note(f"the disk of {node} has room again, {met.value}")
        return met

    def _kill(self, node: int, why: str) -> None:
        self._run.record_fault("KILL", node, why)
        try:
            self._run.cluster.kill(node, "KILL")
        except ClusterError:  # it has ended just now
            if self._run.cluster.state(node) != "dead":
                raise

    def _has_met(self, node: int) -> bool:
        """Whether a node's log says of the life that it has or had last that there is no space."""
        log = Path(self._run.cluster.node(node).log_file).read_text("utf-8", errors="replace")
        since = log.rpartition(START_MARK)[2]
        return any(each in since for each in NO_SPACE)

    def _expect_told(self, node: int) -> None:
        """A failed check, if a node has ended for another reason: only a full disk excuses that."""
        if not self._has_met(node):
            seen = "it has ended by itself, and its log does not say so"
            self._run.check(f"{node}, whose disk is full", f"ends: {NO_SPACE[0]}", seen, kept=False)

    def _expect_ended(self, node: int) -> None:
        """A failed check of a node of ours: whatever it could not write, its disk is offline.

        One of Apache Kafka may say so of a snapshot, and goes on rightly: that is only counted.
        """
        if self._run.parameters.engine == EMBEDDED:
            wanted = f"it has ended {LEAVE_S:g} s after it met that"
            seen = "it had met the full disk and did not end"
            self._run.check(f"{node}, whose disk is full", wanted, seen, kept=False, late=True)

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
        refuse_too_much(run.parameters, memory_free_bytes())
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
        environment = run.cluster.environment
        path = os.pathsep.join(filter(None, [str(hook), environment.get(VARIABLE)]))
        run.cluster.environment = {**environment, VARIABLE: path}

    def _start_anew(self) -> None:
        for node in self._nodes:
            self._run.ended.add(node)
            self._run.cluster.kill(node, "TERM", timeout_s=self._run.parameters.leave_s)
            self._run.cluster.start_node(node, timeout_s=self._run.parameters.start_s)
            self._run.ended.discard(node)


def why_no_clocks(parameters: Parameters) -> str | None:
    """Say why no node's clock may be wrong; None: any may.

    What a broker may delete or refuse by its clock it would delete or refuse before its time, and
    rightly: nobody promises anything else.
    """
    if parameters.engine != EMBEDDED:
        return "that takes nodes of ours"
    settings = TopicSettings.resolve(static=parameters.node_config)
    ahead_ms, behind_ms = max(MINUTES) * MINUTE_MS, -min(MINUTES) * MINUTE_MS
    storm_ms = parameters.duration_s * 1000
    # Who stamps records may be behind, and who deletes them ahead.
    is_stamped = settings.message_timestamp_type == "LogAppendTime"
    old_ms = ahead_ms + behind_ms * is_stamped + storm_ms
    if 0 <= settings.retention_ms < old_ms:
        return f"a retention of {settings.retention_ms:,} ms would delete what was just written"
    producers_ms = int(parameters.node_config.get(PRODUCERS_EXPIRE, DAY_MS))
    # Who was seen last by a clock that is behind is forgotten by one that is ahead, and may have
    # been silent for a whole storm in between.
    if producers_ms <= ahead_ms + behind_ms + storm_ms:
        return f"{PRODUCERS_EXPIRE} of {producers_ms:,} would forget producers that go on"
    if settings.message_timestamp_after_max_ms < behind_ms:
        return "log.message.timestamp.after.max.ms is less than it may be behind"
    if settings.message_timestamp_before_max_ms < ahead_ms:
        return "log.message.timestamp.before.max.ms is less than it may be ahead"
    return None


def refuse_too_much(parameters: Parameters, free_bytes: int) -> None:
    """LabError: what a storm's clients send may not fit into the memory that disks lie in."""
    raw = RAW_RATE * parameters.brokers * parameters.partitions
    rate = parameters.rate + raw
    words = (
        f"{rate:g} events a second for {parameters.duration_s:g} s ({raw:g} of them by clients "
        "beside the producer) may take more than"
    )
    less = "--rate, --partitions or --duration less"
    most = rate * parameters.duration_s * EVENT_BYTES_MAX
    refuse_if(
        most > ROOM_BYTES,
        f"{words} the {ROOM_BYTES >> 30} GiB of memory that a node's disk has in a storm: {less}",
    )
    refuse_if(
        most * parameters.replication_factor > free_bytes,
        f"{words} the {free_bytes / (1 << 30):.1f} GiB of memory that this machine has free, in "
        f"which all {parameters.replication_factor} replicas lie in a storm: {less}",
    )


def memory_free_bytes() -> int:
    """Return how much memory processes can have without taking it from others. Linux only."""
    lines = (line.partition(":") for line in MEMORY.read_text(encoding="ascii").splitlines())
    here = next(int(value.split()[0]) << 10 for name, _, value in lines if name == "MemAvailable")
    return min([here, *left_in_groups(MEMBERSHIP, GROUPS)])


def left_in_groups(membership: Path, groups: Path) -> Iterator[int]:
    """Yield what control groups, as of containers, leave of their limits: ours, and those above.

    Pages of files that nobody has looked at for long are given back first: they count as free.
    """
    for line in membership.read_text("utf-8").splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        root, most, used, idle = (groups / "memory", *VERSION_1) if kinds else (groups, *VERSION_2)
        own = root / path.lstrip("/")
        for folder in (own, *own.parents[: len(own.parts) - len(root.parts)]):
            with suppress(OSError, ValueError):  # there is no limit, or the folder is not seen here
                limit, taken = (int((folder / name).read_text("ascii")) for name in (most, used))
                told = dict(each.split() for each in (folder / STAT).read_text().splitlines())
                yield max(0, limit - taken + int(told.get(idle, 0)))


def _used(file_system: Path) -> int:
    found = os.statvfs(file_system)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _directory(run: Run, node: int) -> Path:
    return Path(run.cluster.node(node).config_file).parent


def _clock_file(run: Run, node: int) -> Path:
    return _directory(run, node) / CLOCK_FILE


def _offset(ahead_ms: int) -> bytes:
    return ahead_ms.to_bytes(8, sys.byteorder, signed=True)
