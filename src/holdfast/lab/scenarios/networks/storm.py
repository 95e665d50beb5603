"""A random storm: nodes die and stand still, links break, disks are new or full, clocks wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from holdfast.clients.replica_files import ReplicaTail
from holdfast.lab.parameters import SHORT_LAG, Parameters, refuse_if
from holdfast.lab.report import Table
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.scenarios.networks.storm_machines import Machines
from holdfast.lab.scenarios.networks.three_zones import ZONES
from holdfast.lab.scenarios.networks.timetable import (
    LEAVE_S,
    REGISTERING,
    SHOWN_MAX,
    Timetable,
    leave,
    look_past,
    one_zone_cut,
    see_again,
    signal,
)
from holdfast.lab.steps.closing import end_of
from holdfast.lab.steps.controllers import expect_quorum_whole, wait_quorum_whole
from holdfast.lab.steps.dead_disks import replace_disk
from holdfast.lab.steps.mishaps import expect_running
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
STAYED = f"{Deed.LEAVE.value}, and killed: it had not in {LEAVE_S:g} s"
ENDED = f"{Deed.FULL.value}, and it ended by itself"


class Storm:
    """One storm. What can't be done just now, because of what was done before, is passed over."""

    def __init__(self, run: Run, sides: Sides, machines: Machines) -> None:
        self._run = run
        self._sides = sides
        self._machines = machines
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
        self.ended = 0  # nodes that met their full disk

    @property
    def counts(self) -> list[tuple[str, int, int]]:
        """What was done and passed over, by kind; who had to be killed has not left."""
        stayed = len(self._times.stayed)
        done = self.done - Counter({Deed.LEAVE.value: stayed})
        kinds = [(kind, done[kind], self.passed_over[kind]) for kind in map(str, Deed)]
        also = {STAYED: stayed, ENDED: self.ended}
        return [*kinds, *((kind, count, 0) for kind, count in also.items() if count)]

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
        if not self._machines.can(each.deed):
            return None
        if each.deed is Deed.CLOCK:
            return self._set_clock(each)
        if each.deed in {Deed.KILL, Deed.LEAVE, Deed.PAUSE, Deed.WIPE, Deed.FULL}:
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
        if each.deed is Deed.FULL:
            self._machines.fill(node)
            return lambda: self._make_room(node)
        signal(run, node, "KILL")
        if each.deed is Deed.WIPE:
            replace_disk(run, node)
            self._tails.pop(node, None)
        return lambda: self._start(node)

    def _set_clock(self, each: Planned) -> Callable[[], None] | None:
        """Let a clock be wrong. Whatever else is done to its node meanwhile, it stays so."""
        node = each.node
        if self._machines.is_wrong(node):
            return None
        self._run.note(each.words)
        self._machines.set_clock(node, each.amount)
        return lambda: self._set_right(node)

    def _set_right(self, node: int) -> None:
        self._machines.set_clock(node, 0)
        self._run.note(f"the clock of {node} is right again")

    def _make_room(self, node: int) -> None:
        self.ended += self._machines.make_room(node)
        self._start(node)

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
    machines = Machines(run)
    wait_quorum_whole(run)
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
    storm = Storm(run, sides, machines)
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


SCENARIO = Scenario(
    name="storm",
    summary="Kills, pauses, cuts, slow links, full and new disks, wrong clocks, one upon another.",
    text=(
        "Brokers and controllers are killed, asked to end, stopped, isolated, cut from each other "
        "both ways and one way, their links slowed and made lossy, a broker's disk is replaced, a "
        "node's disk runs full, the clock of one of ours is wrong by up to half an hour, as a seed "
        "says; faults overlap. Afterwards all is healed: every replica is in sync again, "
        "every client is acknowledged, nothing acknowledged is lost, doubled or moved. The control "
        "cuts off one zone with acks=1, and loses what that zone acknowledged."
    ),
    defaults=Parameters(
        network=True,
        racks=ZONES,
        controllers=3,
        rate=100.0,
        duration_s=600.0,
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
    least={"duration_s": SHORTEST_S, "partitions": len(ZONES)},  # each zone leads something
    draws=True,
    fixed=frozenset({"acks", "brokers", "controllers", "min_isr", "replication_factor", "signal"}),
)
