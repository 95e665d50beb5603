"""A random storm: nodes die and stand still, links are cut, slow and lossy, disks are new."""

from __future__ import annotations

import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from itertools import count
from pathlib import Path

from holdfast.clients.replica_files import ReplicaTail
from holdfast.cluster import ClusterError
from holdfast.cluster.layout import EMBEDDED
from holdfast.judge.timeline import UP_ACTIONS
from holdfast.lab.parameters import SHORT_LAG, Parameters, refuse_if
from holdfast.lab.report import Table
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.scenarios.networks.three_zones import ZONES, Zones
from holdfast.lab.steps.closing import end_of
from holdfast.lab.steps.controllers import expect_quorum_whole
from holdfast.lab.steps.dead_disks import replace_disk
from holdfast.lab.steps.mishaps import expect_running, must_come, refuse_dead, wait_signalled
from holdfast.lab.steps.sides import (
    AGAIN_S,
    ANSWER_MS,
    LATE,
    LATE_BECAUSE,
    PATIENT,
    READING,
    Held,
    Sides,
    expect_one_leader_an_epoch,
)
from holdfast.lab.steps.storm_plan import SHORTEST_S, Deed, Planned, plan_storm
from holdfast.lab.steps.usual import expect_consumed
from holdfast.lab.steps.wants import whole

LEVEL_S = 1.0  # for followers to have what leaders had
SHOWN_MAX = 200
# For a node to leave in order. Without an active controller one of Apache Kafka takes five minutes:
# it is killed, or the whole timetable would wait for it, and with it what ends the other faults.
LEAVE_S = 45.0
STAYED = f"{Deed.LEAVE.value}, and killed: it had not in {LEAVE_S:g} s"
LOOK_S = 1.0
PEACE_S = 2.0  # before the control's cut
# A broker that no controller takes in ends by itself after a minute. Faults that overlap may hold
# it away for longer, and that says nothing of the cluster: it tries for a day.
REGISTERING: Mapping[str, str] = {"initial.broker.registration.timeout.ms": "86400000"}


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

    def now(self) -> float:
        return time.monotonic() - self._begin_s

    def keep(self) -> None:
        """Do all of it, and what is added meanwhile."""
        self._begin_s = time.monotonic()
        while self._due:
            at_s, _, act = heapq.heappop(self._due)
            left_s = at_s - self.now()
            if left_s > 0:
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


def leave(
    run: Run, times: Timetable, node: int, start: Callable[[int], None]
) -> Callable[[], None]:
    """Tell a node to leave; return what starts it once it has gone, and keeps nobody waiting.

    One that stays is killed. That is a failed check of a node of ours, unless no controller was
    there to let it go.
    """
    run.observer.avoid(node)
    run.record_fault("TERM", node)
    run.cluster.kill(node, "TERM", wait=False)
    asked_s = times.now()

    def look() -> None:
        if run.cluster.state(node) == "dead":
            run.record_fault("exit", node)
        elif times.now() < asked_s + LEAVE_S:
            times.at(times.now() + LOOK_S, look)
            return
        else:
            times.stayed.append(node)
            if run.parameters.engine == EMBEDDED and run.cluster.quorum() is not None:
                seen = "it runs, and is killed"
                name, wanted = f"{node} is told to leave", f"it has ended in {LEAVE_S:g} s"
                run.check(name, wanted, seen, kept=False, late=True)
            run.record_fault("KILL", node, f"told to leave, and still there after {LEAVE_S:g} s")
            with suppress(ClusterError):  # it has gone just now
                run.cluster.kill(node, "KILL")
        start(node)

    return look


class Storm:
    """One storm. What can't be done just now, because of what was done before, is passed over."""

    def __init__(self, run: Run, sides: Sides) -> None:
        self._run = run
        self._sides = sides
        self._times = Timetable(run)
        self._hurt: set[int] = set()
        # By node: each goes on reading where it ended, so that a look takes no longer late in a
        # storm, and keeps nobody waiting.
        self._tails: defaultdict[int, Callable[[Path], ReplicaTail]] = defaultdict(
            lambda: cache(ReplicaTail)
        )
        self.done: Counter[str] = Counter()
        self.passed_over: Counter[str] = Counter()
        self.rows: list[list[str]] = []
        self.dropped = 0  # packets, by what was cut or lossy

    @property
    def counts(self) -> list[tuple[str, int, int]]:
        """What was done and passed over, by kind; who had to be killed has not left."""
        stayed = len(self._times.stayed)
        done = self.done - Counter({Deed.LEAVE.value: stayed})
        kinds = [(kind, done[kind], self.passed_over[kind]) for kind in map(str, Deed)]
        return [*kinds, *([(STAYED, stayed, 0)] if stayed else [])]

    @property
    def cuts(self) -> int:
        """How many deeds must have dropped packets."""
        kinds = (Deed.ISOLATE, Deed.CUT, Deed.ONE_WAY)
        return sum(self.done[kind.value] for kind in kinds)

    def blow(self, planned: list[Planned]) -> None:
        """Do all that is planned, each at its time, and let the last of it end."""
        for each in planned:
            self._times.at(each.at_s, partial(self._try, each))
        self._times.keep()
        self.dropped = self._sides.dropped()

    def _try(self, each: Planned) -> None:
        """Do one deed, and see to its end: as long as was drawn, also where it came late."""
        begun_s = self._times.now()
        undo = self._begin(each)
        if undo is None:
            self.passed_over[each.deed.value] += 1
            return
        self.done[each.deed.value] += 1
        self.rows.append([f"{begun_s:.1f}", f"{each.length_s:.1f}", each.words])
        self._times.at(max(begun_s, each.at_s) + each.length_s, undo)

    def _begin(self, each: Planned) -> Callable[[], None] | None:
        """Do one deed; return what ends it. None: it can't be done now."""
        node, other = each.node, each.other
        if node in self._hurt or self._run.cluster.state(node) != "running":
            return None
        if each.deed in {Deed.KILL, Deed.LEAVE, Deed.PAUSE, Deed.WIPE}:
            return self._hurt_node(each)
        if other in self._hurt and each.deed is not Deed.ISOLATE:
            return None
        a, b = str(node), str(other)
        if each.deed is Deed.ISOLATE:
            look_past(self._run, node)
            self._sides.isolate(node, clients=False)
        elif each.deed is Deed.SLOW:
            self._sides.slow(a, b, latency=f"{each.amount}ms")
        elif each.deed is Deed.LOSE:
            self._sides.lose(a, b, f"{each.amount}%")
        else:
            one_way = each.deed is Deed.ONE_WAY
            detail = f"from {other}, one way" if one_way else f"from {other}"
            self._sides.cut(a, b, [node], detail, one_way=one_way)
        self._hurt |= {node} if each.deed is Deed.ISOLATE else {node, other}
        return partial(self._heal, each, self._sides.latest)

    def _hurt_node(self, each: Planned) -> Callable[[], None] | None:
        run, node = self._run, each.node
        if each.deed is Deed.WIPE and not self._may_wipe():
            return None  # two disks lost at a time may be all that have an event
        self._hurt.add(node)
        if each.deed is Deed.PAUSE:
            signal(run, node, "STOP")
            return lambda: self._let_go(node)
        if each.deed is Deed.LEAVE:
            return leave(run, self._times, node, self._start)
        signal(run, node, "KILL")
        if each.deed is Deed.WIPE:
            replace_disk(run, node)
            self._tails.pop(node, None)
        return lambda: self._start(node)

    def _may_wipe(self) -> bool:
        """Say whether a disk can be lost now. What was written is read on in any case."""
        if self._hurt:
            self._ends()
            return False
        return self._is_whole()

    def _ends(self) -> dict[int, dict[int, int]]:
        """Return where each replica ends, by partition and node; -1: nobody can say."""
        return {
            p: {node: end_of(self._run, node, p, tail=self._tails[node]) for node in nodes}
            for p, nodes in self._run.replicas.items()
        }

    def _is_whole(self) -> bool:
        """Say whether each replica holds what any of them held when this began.

        The ISR alone does not tell: it names a broker whose disk was replaced until the
        controller has heard of that.
        """
        run = self._run
        before = run.view  # may be old: nobody has waited for another one
        wanted = {p: max(ends.values()) for p, ends in self._ends().items()}

        def whole() -> bool:
            view = run.view
            return (
                view is not before
                and all(set(view.partitions[p].isr) == set(n) for p, n in run.replicas.items())
                and all(min(ends.values()) >= wanted[p] for p, ends in self._ends().items())
            )

        return run.soon(whole, LEVEL_S)

    def _let_go(self, node: int) -> None:
        signal(self._run, node, "CONT")
        self._hurt.discard(node)

    def _start(self, node: int) -> None:
        """Start a node. Others may be out of its reach, so it is not waited for."""
        self._run.start_node(node, wait=False)
        self._hurt.discard(node)

    def _heal(self, each: Planned, fault: Held) -> None:
        """End a fault of links. What another one holds stays as it is: isolations overlap."""
        self._sides.end(fault)
        if each.deed is Deed.ISOLATE:
            if each.node in self._run.cluster.broker_ids:
                self._sides.look_again(each.node)
            self._hurt.discard(each.node)
            return
        self._hurt -= {each.node, each.other}


def steps(run: Run) -> None:
    """Everything at once for as long as was asked; then all is healed, and must be whole."""
    parameters, seed = run.parameters, run.parameters.seed
    assert seed is not None, "a storm is drawn from a seed"
    run.note(
        f"`prove storm --seed {seed}` wants to do the same things at the same times; what an "
        "earlier fault stands in the way of is passed over"
    )
    run.make_topic()
    sides = Sides(run)
    everywhere = sides.of(*run.cluster.broker_ids)
    producer = run.start_producer(**everywhere.flags, **PATIENT)
    reader = run.start_readers(**everywhere.flags, **READING)
    clients = [
        run.start_raw(f"raw-{node}", timeout_ms=ANSWER_MS, rate=20, **sides.of(node).flags)
        for node in run.cluster.broker_ids
    ]
    for worker in (producer, *clients):
        run.must_flow(worker)
    planned = plan_storm(
        seed, parameters.duration_s, run.cluster.broker_ids, run.cluster.controller_ids
    )
    storm = Storm(run, sides)
    storm.blow(planned)
    sides.heal()
    refuse_if(not storm.done, f"nothing was done in {parameters.duration_s:g} s: --duration more")
    refuse_if(
        storm.cuts and not storm.dropped and sides.has_places,
        f"{storm.cuts} cuts have dropped no packet",
    )
    run.note("the storm is over: everything is healed, and every node runs")
    expect_quorum_whole(run, "after the storm", AGAIN_S)
    expect_running(run, "after the storm")
    see_again(run)
    run.expect("after the storm", whole(run.replicas), AGAIN_S + SETTLE_S)
    for worker in (producer, *clients):
        run.expect_flow(worker, f"{worker.name}, after the storm", AGAIN_S)
    expect_consumed(run, reader, "after the storm")
    expect_one_leader_an_epoch(run)
    run.tables += tables(storm, seed)


def tables(storm: Storm, seed: int) -> list[Table]:
    return [
        Table(
            title=f"The storm of seed {seed}, by kind",
            header=["a node is", "done", "passed over"],
            rows=[[kind, str(done), str(passed)] for kind, done, passed in storm.counts],
            note="Passed over: what an earlier fault stood in the way of. "
            f"Cuts and lossy links have dropped {storm.dropped:,} packets.",
        ),
        Table(
            title="What was done, and when",
            header=["at, s", "for, s", "what"],
            rows=storm.rows[:SHOWN_MAX],
            note=f"The first {SHOWN_MAX}." if len(storm.rows) > SHOWN_MAX else "",
        ),
    ]


def one_zone_cut(run: Run) -> None:
    """Control: one cut is enough where leaders acknowledge alone. It loses for certain.

    Nothing else is wrong, before the cut and while it lasts.
    """
    zones = Zones(run)
    zones.expect_peace(ZONES[0], PEACE_S)
    zones.cut(ZONES[0], winners=True, alone=True)


SCENARIO = Scenario(
    name="storm",
    summary="Kills, pauses, cuts, slow and lossy links and new disks, at random, one upon another.",
    text=(
        "Brokers and controllers are killed, asked to end, stopped, isolated, cut from each other "
        "both ways and one way, their links slowed and made lossy, a broker's disk is replaced, as "
        "a seed says; faults overlap. Afterwards all is healed: every replica is in sync again, "
        "every client is acknowledged, nothing acknowledged is lost, doubled or moved. The control "
        "cuts off one zone with acks=1, and loses what that zone acknowledged."
    ),
    defaults=Parameters(
        network=True,
        racks=ZONES,
        controllers=3,
        rate=100.0,
        duration_s=120.0,
        config=REGISTERING,
        lab_config=SHORT_LAG,
    ),
    parts=(
        Part(name="main", title="The storm", steps=steps),
        Control(
            title="Control: one zone cut off, with acks=1",
            steps=one_zone_cut,
            change={"acks": "1", "retries": 0, "duration_s": 2.0, "seed": None},
            counted=LATE,
            because=LATE_BECAUSE,
        ),
    ),
    least={"duration_s": SHORTEST_S},
    draws=True,
    fixed=frozenset({"acks", "brokers", "controllers", "min_isr", "replication_factor", "signal"}),
)
