"""A service beside Spark: two consumers that share the topic as a group, one of which is killed.

They do what a service of a user's would, with manual commits, and write down what they did. What
they may not do is judged with the rest of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.lab.group import Group
from holdfast.lab.run import Run
from holdfast.lab.steps.groups import CLASSIC
from holdfast.lab.workload_processes import Worker

GROUP = "receipts"
CONSUMERS = 2
BATCH = 500  # records between two commits
STANDSTILL_S = 60.0  # a group that processes nothing for so long will not catch up


class Readers:
    """The group of a demo, from its first consumer on."""

    def __init__(self, run: Run) -> None:
        self._group = Group(run, GROUP, CLASSIC, batch=BATCH)
        self._lives = 0
        for _ in range(CONSUMERS):
            self._start()

    def _start(self) -> str:
        self._lives += 1
        return self._group.start(f"consumer-{self._lives}").name

    def replace_one(self) -> str:
        """Kill a consumer, start another one; return what was done, for people."""
        victim = self._group.members[0]
        self._group.fault("KILL", victim)
        return f"{victim.name} of group {GROUP} was killed with SIGKILL; {self._start()} is started"

    def catch_up(self, producer: Worker, until: Callable[[Callable[[], bool]], None]) -> bool:
        """Wait until all that was acknowledged is processed, or nothing is for too long.

        `until` waits for a condition. What has come of it is a check; the consumers leave then.
        """
        run, group = self._group.run, self._group
        wanted = dict(producer.tail.poll().ends)
        at: dict[int, int] = {}
        moved_s = time.monotonic()

        def done() -> bool:
            nonlocal at, moved_s
            now = {p: group.position(p) for p in run.partitions}
            if now != at:
                at, moved_s = now, time.monotonic()
            return all(at[p] >= end for p, end in wanted.items()) or (
                time.monotonic() - moved_s > STANDSTILL_S
            )

        group.begin_calm(STANDSTILL_S * 1000)
        until(done)
        group.end_calm()
        kept = all(at[p] >= end for p, end in wanted.items())
        run.check(
            f"Group {GROUP} catches up with the log",
            f"next offsets {wanted}",
            f"next offsets {at}" + ("" if kept else f", and nothing new for {STANDSTILL_S:.0f} s"),
            kept=kept,
        )
        group.leave(*group.members)
        return kept
