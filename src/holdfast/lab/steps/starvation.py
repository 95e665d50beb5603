"""How long a run's processes waited for a processor, as the kernel counts it.

A node that could run and did not get to is late with heartbeats, elections and answers through no
fault of its own: what then comes too late is no proof that the cluster is broken. Nor is it where a
client, the network's own processes or the lab itself did not get to run. Owns the looking and what
is said of it; what that excuses is for `lab.outcome`. Where the kernel does not count it nothing is
excused, and waits for a disk are not counted.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.cluster import ClusterError
from holdfast.cluster.any_cluster import Cluster
from holdfast.lab.pipelines.process_trees import below, command

LOOK_S = 1.0
# Of the time between two looks. A busy machine lets nodes wait half of the time for minutes, and
# they keep all their bounds: what excuses is to get next to nothing, for longer than a session.
SHARE_MAX = 0.9
SECONDS_MAX = 5.0  # altogether
# What was so longer ago makes nothing late now: bounds are three minutes at most, JVMs' starts, and
# a session begins before them. A storm keeps its first bound at its end, perhaps after an hour.
MEMORY_S = 240.0
# Threads of a JVM, by how the kernel knows them: compilers, and the collector beside all others.
WAITED_FOR_BY_NOBODY = (" Compiler", "G1 Conc", "G1 Refine", "G1 Service")
OF_NO_RUN = "holdfast.lab.guard"  # it acts once the lab has gone
ITSELF = "the lab itself"

Mark = Mapping[str, float]  # how long each process had been starved at a moment


@dataclass(slots=True)
class Waits:
    """What a run's processes waited for a processor, all looks together. Pure."""

    starved_s: dict[str, float] = field(default_factory=dict)  # by process, while it was starved
    worst: float = 0.0  # the largest share of a look
    now_s: float = 0.0  # of the look that is being taken in
    _waited: dict[tuple[str, int], int] = field(default_factory=dict)  # and by thread, in ns
    # When, who and how long, of what is neither overcome nor long ago.
    _recent: list[tuple[float, str, float]] = field(default_factory=list)

    def take(self, process: str, threads: dict[int, int], passed_s: float) -> None:
        """Take in how many ns each thread of a process has waited since it began."""
        shares = [
            (waited_ns - self._waited[process, thread]) / 1e9 / passed_s
            for thread, waited_ns in threads.items()
            if (process, thread) in self._waited and passed_s > 0
        ]
        self._waited = {k: v for k, v in self._waited.items() if k[0] != process}
        self._waited |= {(process, thread): waited_ns for thread, waited_ns in threads.items()}
        share = max(shares, default=0.0)
        self.worst = max(self.worst, share)
        if share > SHARE_MAX:
            # A wait is counted when it has ended, so it may be that of earlier looks as well.
            seconds = passed_s * max(share, 1.0)
            self.starved_s[process] = self.starved_s.get(process, 0.0) + seconds
            self._recent.append((self.now_s, process, seconds))

    def overcome(self) -> None:
        """Let what was waited for so far excuse nothing more: all were in time since."""
        self._recent.clear()

    def mark(self) -> Mark:
        """Return what was waited for so far, so that `excuses` can tell what came behind it."""
        return dict(self.starved_s)

    def excuses(self, since: Mark | None = None) -> bool:
        """Whether a process was starved since a mark.

        None: a while ago at most, and since that was last overcome.
        """
        if since is None:
            self._recent = [each for each in self._recent if each[0] >= self.now_s - MEMORY_S]
            starved_s: dict[str, float] = {}
            for _, process, seconds in self._recent:
                starved_s[process] = starved_s.get(process, 0.0) + seconds
            return any(seconds >= SECONDS_MAX for seconds in starved_s.values())
        return any(
            seconds - since.get(process, 0.0) >= SECONDS_MAX
            for process, seconds in self.starved_s.items()
        )

    @property
    def text(self) -> str | None:
        """What a report says; None: nobody was starved."""
        starved = {n: s for n, s in sorted(self.starved_s.items()) if s >= SECONDS_MAX}
        if not starved:
            return None
        told = ", ".join(f"{process} for {seconds:.0f} s" for process, seconds in starved.items())
        return f"nine tenths of the time a processor was waited for: {told}"


class Starvation:
    """Looks at all that takes part in a run from `start` to `stop`, in a thread of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._waits = Waits()
        self._looking = threading.Lock()
        self._looked_s = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="starvation", daemon=True)

    def start(self) -> None:
        self._looked_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def text(self) -> str | None:
        """What a report says of all looks so far; None: nobody was starved."""
        with self._looking:
            return self._waits.text

    def excuses(self, late: bool | Mark) -> bool:
        """Look, and return whether what fails at this moment may only be too late.

        `late`: whether it is about a bound. Then somebody was starved up to now, and that is not
        overcome. A mark: somebody was starved since, whatever bounds were kept meanwhile.
        """
        if late is False:
            return False
        self._look()
        with self._looking:
            return self._waits.excuses(None if late is True else late)

    def mark(self) -> Mark:
        """Look, and return a mark of this moment, for what is to hold all the time from now on."""
        self._look()
        with self._looking:
            return self._waits.mark()

    def overcome(self) -> None:
        """Take in that a bound was kept: what was waited for before excuses no later one."""
        self._look()
        with self._looking:
            self._waits.overcome()

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        with self._looking, suppress(ClusterError):  # nobody is asked then
            now_s = time.monotonic()
            passed_s, self._looked_s = now_s - self._looked_s, now_s
            self._waits.now_s = now_s
            for pid, process in self._processes():
                self._waits.take(process, waited(pid), passed_s)

    def _processes(self) -> Iterator[tuple[int, str]]:
        """Yield the nodes, and all that the lab has started beside them; by process, its name.

        Nodes of a cluster elsewhere are nobody's to look at.
        """
        yield os.getpid(), ITSELF
        nodes = {node.pid: f"node {node.id}" for node in self._cluster.nodes if node.pid}
        yield from nodes.items()
        for pid in below(os.getpid()):
            if pid not in nodes and (name := name_of(command(pid), pid)):
                yield pid, name


def name_of(called: str, pid: int) -> str:
    """Return what a report calls a process that was called so; nothing: no check rests on it."""
    words = called.split()
    if not words or OF_NO_RUN in words:
        return ""
    if "--process" in words[:-1]:  # a client of the run
        return words[words.index("--process") + 1]
    module = words[words.index("-m") + 1].rpartition(".")[2] if "-m" in words[:-1] else ""
    program = next((word for word in words if word.endswith(".py")), words[0])
    return f"{module or program.rpartition('/')[2]} (process {pid})"


def waited(pid: int, proc: Path = Path("/proc")) -> dict[int, int]:
    """Return how many ns each thread of a process has waited for a processor so far.

    But for those that nobody waits for: a JVM's compilers have always something to do, and others
    get their turn before them.
    """
    found = {}
    with suppress(OSError):  # it has ended
        for path in (proc / str(pid) / "task").iterdir():
            with suppress(OSError, ValueError, IndexError):
                name = (path / "comm").read_text()
                if any(each in name for each in WAITED_FOR_BY_NOBODY):
                    continue
                found[int(path.name)] = int((path / "schedstat").read_text().split()[1])
    return found
