"""What is done at its time, whatever the cluster does: a storm's deeds, and a replay's.

Owns the timetable, how its deeds are done without waiting for anybody, and the control of both.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count

from holdfast.cluster import ClusterError
from holdfast.cluster.layout import EMBEDDED
from holdfast.cluster.network.link_table import Pair
from holdfast.judge.timeline import UP_ACTIONS
from holdfast.lab.parameters import refuse_if
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenarios.networks.three_zones import ZONES, Zones
from holdfast.lab.steps.mishaps import must_come, refuse_dead, wait_signalled
from holdfast.lab.steps.sides import AGAIN_S, Held, Sides

SHOWN_MAX = 200  # deeds, in a report
# For a node to leave in order. Without an active controller one of ours gives up after 30 s, one of
# Apache Kafka after five minutes: that one is killed, or the whole timetable would wait for it, and
# with it what ends the other faults.
LEAVE_S = 45.0
LOOK_S = 1.0
MOMENT_S = 0.001  # nothing is waited for as short as that
PEACE_S = 2.0  # before the control's cut
# A broker that no controller takes in ends by itself after a minute. Faults that overlap may hold
# it away for longer, and that says nothing of the cluster: it tries for a day.
REGISTERING: Mapping[str, str] = {"initial.broker.registration.timeout.ms": "86400000"}
# Ends a fault. False: it is not over yet, and is to be asked again.
Undo = Callable[[], bool | None]


class Timetable:
    """What is to be done, each thing at its time, in seconds since it began to be kept.

    What is due is done in the order of its times, also when it comes late; the rest waits for it.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._begin_s = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.stayed: list[int] = []  # nodes that were told to leave, and had to be killed

    def at(self, at_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_s, next(self._order), act))

    def end(self, at_s: float, undo: Undo, tell: Callable[[], None]) -> None:
        """Undo something at its time, and ask again until it is over; then tell of it."""

        def act() -> None:
            if undo() is False:
                self.at(self.now() + LOOK_S, act)
            else:
                tell()

        self.at(at_s, act)

    def now(self) -> float:
        return time.monotonic() - self._begin_s

    def keep(self) -> None:
        """Do all of it, and what is added meanwhile."""
        self._begin_s = time.monotonic()
        while self._due:
            at_s, _, act = heapq.heappop(self._due)
            left_s = at_s - self.now()
            if left_s >= MOMENT_S:
                self._run.steady_view(left_s)
            act()


def signal(run: Run, node: int, action: str) -> None:
    """Send a signal to a node now, whatever the observer sees.

    What is due never waits for the cluster: what would bring that back may be due next, behind it.
    """
    turn = run.observer.allow if action in UP_ACTIONS else run.observer.avoid
    turn(node)
    refuse_dead(run, node)
    run.record_fault(action, node)
    run.cluster.kill(node, action, wait=False)
    if action == "KILL":  # its kernel does that, and who is to be started has to be gone
        wait_signalled(run, node, action, run.parameters.leave_s)


def look_past(run: Run, node: int) -> None:
    """Let the observer ask others than a broker that is about to be cut off, and it alone."""
    if node in run.cluster.broker_ids:
        run.observer.avoid(node)
        run.observer.ask_alone(node)


def see_again(run: Run) -> None:
    """Wait until the observer sees the cluster: what it saw last may be from amid the faults."""
    before = run.view
    must_come(run, "a view of the cluster", lambda: run.view is not before, AGAIN_S + SETTLE_S)


def leave(run: Run, times: Timetable, node: int, start: Callable[[int], None]) -> Undo:
    """Tell a node to leave; return what starts it once it has gone, and keeps nobody waiting.

    One that stays is killed. That is a failed check of a node of ours, also where no controller
    was there to let it go: ours give up asking long before (`controller-down` shows when).
    """
    run.observer.avoid(node)
    run.record_fault("TERM", node)
    run.cluster.kill(node, "TERM", wait=False)
    asked_s = times.now()

    def look() -> bool:
        if run.cluster.state(node) == "dead":
            run.record_fault("exit", node)
        elif times.now() < asked_s + LEAVE_S:
            return False
        else:
            times.stayed.append(node)
            if run.parameters.engine == EMBEDDED:
                seen = "it runs, and is killed"
                name, wanted = f"{node} is told to leave", f"it has ended in {LEAVE_S:g} s"
                run.check(name, wanted, seen, kept=False, late=True)
            run.record_fault("KILL", node, f"told to leave, and still there after {LEAVE_S:g} s")
            with suppress(ClusterError):  # it has gone just now
                run.cluster.kill(node, "KILL")
        start(node)
        return True

    return look


def drops(sides: Sides) -> Mapping[Pair, int] | None:
    """Return how many packets each link has dropped so far; None: nobody counts them."""
    return sides.dropped_by_link() if sides.has_places else None


def dropped_since(sides: Sides, before: Mapping[Pair, int], cut: Held) -> int:
    """Return how many packets a fault's links have dropped since, whichever faults held them."""
    now = drops(sides) or {}
    return sum(now.get(pair, 0) - before.get(pair, 0) for pair in sides.links_of(cut))


def refuse_too_few(count: int, wanted: int, what: str) -> None:
    """LabError: less than half of the faults of a plan were done."""
    refuse_if(
        2 * count < wanted,
        f"{count} of {wanted} faults could be done, and less than half of it is another {what}",
    )


def one_zone_cut(run: Run) -> None:
    """Control: one cut is enough where leaders acknowledge alone. It loses for certain.

    Nothing else is wrong, before the cut and while it lasts.
    """
    zones = Zones(run)
    zones.expect_peace(ZONES[0], PEACE_S)
    zones.cut(ZONES[0], winners=True, alone=True)
