"""How long a run's nodes waited for a processor, as the kernel counts it.

A node that could run and did not get to is late with heartbeats, elections and answers through no
fault of its own: what then comes too late is no proof that the cluster is broken. Owns the looking
and what is said of it; what that excuses is for `lab.outcome`. Where the kernel does not count it
nothing is excused.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.cluster import ClusterError
from holdfast.cluster.any_cluster import Cluster

LOOK_S = 1.0
# Of the time between two looks. A busy machine lets nodes wait half of the time for minutes, and
# they keep all their bounds: what excuses is to get next to nothing, for longer than a session.
SHARE_MAX = 0.9
SECONDS_MAX = 5.0  # altogether
# Threads of a JVM, by how the kernel knows them: compilers, and the collector beside all others.
WAITED_FOR_BY_NOBODY = (" Compiler", "G1 Conc", "G1 Refine", "G1 Service")


@dataclass(slots=True)
class Waits:
    """What a run's nodes waited for a processor, all looks together. Pure."""

    starved_s: dict[int, float] = field(default_factory=dict)  # by node, while it was starved
    worst: float = 0.0  # the largest share of a look
    _waited: dict[tuple[int, int], int] = field(default_factory=dict)  # by node and thread, in ns
    _overcome_s: dict[int, float] = field(default_factory=dict)  # of `starved_s`

    def take(self, node: int, threads: dict[int, int], passed_s: float) -> None:
        """Take in how many ns each thread of a node has waited since it began."""
        shares = [
            (waited_ns - self._waited[node, thread]) / 1e9 / passed_s
            for thread, waited_ns in threads.items()
            if (node, thread) in self._waited and passed_s > 0
        ]
        self._waited = {k: v for k, v in self._waited.items() if k[0] != node}
        self._waited |= {(node, thread): waited_ns for thread, waited_ns in threads.items()}
        share = max(shares, default=0.0)
        self.worst = max(self.worst, share)
        if share > SHARE_MAX:
            # A wait is counted when it has ended, so it may be that of earlier looks as well.
            self.starved_s[node] = self.starved_s.get(node, 0.0) + passed_s * max(share, 1.0)

    def overcome(self) -> None:
        """Let what nodes have waited so far excuse nothing more: they were in time since."""
        self._overcome_s = dict(self.starved_s)

    @property
    def excuses(self) -> bool:
        """Whether a node was starved since that was last overcome."""
        return any(
            seconds - self._overcome_s.get(node, 0.0) >= SECONDS_MAX
            for node, seconds in self.starved_s.items()
        )

    @property
    def text(self) -> str | None:
        """What a report says; None: no node was starved."""
        starved = {n: s for n, s in sorted(self.starved_s.items()) if s >= SECONDS_MAX}
        if not starved:
            return None
        told = ", ".join(f"{node} for {seconds:.0f} s" for node, seconds in starved.items())
        return f"nodes waited for a processor nine tenths of the time: {told}"


class Starvation:
    """Looks at a cluster's nodes from `start` to `stop`, in a thread of its own."""

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
        """What a report says of all looks so far; None: no node was starved."""
        with self._looking:
            return self._waits.text

    def by_now(self) -> bool:
        """Look, and return whether a node was starved up to this moment, and it is not overcome."""
        self._look()
        with self._looking:
            return self._waits.excuses

    def overcome(self) -> None:
        """Take in that a bound was kept: what nodes have waited before excuses no later one."""
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
            for node in self._cluster.nodes:
                if node.pid is not None:
                    self._waits.take(node.id, waited(node.pid), passed_s)


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
