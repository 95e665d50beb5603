"""A random storm: nodes die and stand still, links break, disks are new or full, clocks wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path

from holdfast.clients.replica_files import ReplicaTail
from holdfast.cluster.network.link_table import Pair
from holdfast.lab.parameters import SHORT_LAG, Parameters, refuse_if
from holdfast.lab.report import Table
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.scenarios.networks.storm_machines import RAW_RATE, Machines, Met
from holdfast.lab.scenarios.networks.three_zones import ZONES
from holdfast.lab.scenarios.networks.timetable import (
    LEAVE_S,
    LOOK_S,
    REGISTERING,
    SHOWN_MAX,
    Timetable,
    Undo,
    dropped_since,
    drops,
    leave,
    look_past,
    one_zone_cut,
    refuse_too_few,
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
from holdfast.lab.steps.storm_plan import (
    EVERY_KIND_S,
    SHORTEST_S,
    Deed,
    Planned,
    plan_storm,
)
from holdfast.lab.steps.usual import expect_consumed
from holdfast.lab.steps.wants import whole

LEVEL_S = 1.0  # for followers to have what leaders had
STAYED = f"{Deed.LEAVE.value}, and killed: it had not in {LEAVE_S:g} s"
CUTS = frozenset({Deed.ISOLATE, Deed.CUT, Deed.ONE_WAY})  # what must drop packets
SEPARATOR = " / "  # of kinds in a sentence: their words have commas
NOT_HERE = "-"  # in a table: can't be done to this cluster, or on this machine


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
        self._full: set[int] = set()  # whose disk is
        self.planned: Counter[str] = Counter()  # of what can be done here
        self.done: Counter[str] = Counter()
        self.passed_over: Counter[str] = Counter()
        self.met: Counter[Met] = Counter()
        self.rows: list[list[str]] = []
        self.dropped = 0  # packets, by what was cut or lossy
        self.dropped_by_cuts = 0  # of those, on the links of cuts while these held
        self.idle_cuts = 0  # no packet came while it held

    @property
    def kinds(self) -> list[tuple[str, int]]:
        """What was done, by kind, of what could be; who had to be killed has not left."""
        done = self.done - Counter({Deed.LEAVE.value: len(self._times.stayed)})
        cannot = self._machines.cannot
        return [(deed.value, done[deed.value]) for deed in Deed if deed not in cannot]

    @property
    def counts(self) -> list[list[str]]:
        """What was done and passed over, by kind, and what else became of it, as a table has it."""
        rows = [[kind, str(done), str(self.passed_over[kind])] for kind, done in self.kinds]
        rows += [[deed.value, NOT_HERE, NOT_HERE] for deed in self._machines.cannot]
        full = {f"{Deed.FULL.value}, {met.value}": count for met, count in self.met.items()}
        also = {STAYED: len(self._times.stayed), **full}
        return rows + [[kind, str(count), "0"] for kind, count in also.items() if count]

    @property
    def words(self) -> str:
        """Say how much of what was planned was done, and what not, and why, for the verdict."""
        wanted = self.planned
        told = [f"{kind} {done} of {wanted[kind]}" for kind, done in self.kinds if wanted[kind]]
        words = [f"{self.in_short} ({SEPARATOR.join(told)})"]
        if self.idle_cuts:
            words.append(f"{self.idle_cuts} of {self.cuts} cuts have dropped no packet")
        if missing := [kind for kind, _ in self.kinds if not wanted[kind]]:
            words.append(
                f"not planned in so short a storm: {SEPARATOR.join(missing)} (from --duration "
                f"{EVERY_KIND_S} on every kind is)"
            )
        if none := [kind for kind, done in self.kinds if wanted[kind] and not done]:
            words.append(f"planned, and never done: {SEPARATOR.join(none)}")
        return "; ".join([*words, *self._machines.cannot.values()])

    @property
    def in_short(self) -> str:
        """Say how much of what was planned was done, of all kinds together."""
        done, over = self.done.total(), self.passed_over.total()
        return f"{done} of {self.planned.total()} faults done, {over} passed over"

    @property
    def cuts(self) -> int:
        """How many deeds must have dropped packets."""
        return sum(self.done[kind.value] for kind in CUTS)

    def blow(self, planned: list[Planned]) -> None:
        """Do all that is planned, each at its time, and let the last of it end."""
        here = [each for each in planned if each.deed not in self._machines.cannot]
        self.planned = Counter(each.deed.value for each in here)
        until_s = max((each.at_s for each in here), default=0.0)
        for each in here:
            self._times.at(each.at_s, partial(self._try, each, until_s))
        self._times.keep()
        self.dropped = self._sides.dropped()

    def _try(self, each: Planned, until_s: float) -> None:
        """Do one deed, and see to its end: as long as was drawn, also where it came late.

        A disk can be lost only when nothing else is wrong. It waits for that, until then.
        """
        begun_s = self._times.now()
        before = drops(self._sides) if each.deed in CUTS | {Deed.LOSE} else None
        undo = self._begin(each)
        if undo is None:
            if each.deed is Deed.WIPE and begun_s + LOOK_S <= until_s:
                self._times.at(begun_s + LOOK_S, partial(self._try, each, until_s))
            else:
                self.passed_over[each.deed.value] += 1
            return
        self.done[each.deed.value] += 1
        row = [f"{begun_s:.1f}", "-", each.words, "-"]
        self.rows.append(row)
        if before is not None:
            undo = partial(self._count, each, undo, row, self._sides.latest, before)
        tell = partial(self._tell, row, begun_s)
        self._times.end(max(begun_s, each.at_s) + each.length_s, undo, tell)

    def _tell(self, row: list[str], begun_s: float) -> None:
        """Tell how long it was so."""
        row[1] = f"{self._times.now() - begun_s:.1f}"

    def _count(
        self, each: Planned, undo: Undo, row: list[str], fault: Held, before: Mapping[Pair, int]
    ) -> None:
        """End a fault of links, and tell how many packets these have dropped while it held."""
        count = dropped_since(self._sides, before, fault)
        if each.deed in CUTS:
            self.dropped_by_cuts += count
            self.idle_cuts += not count
        row[3] = f"{count:,}"
        undo()

    def _begin(self, each: Planned) -> Undo | None:
        """Do one deed; return what ends it. None: it can't be done now."""
        node, other = each.node, each.other
        if node in self._hurt or self._run.cluster.state(node) != "running":
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

    def _hurt_node(self, each: Planned) -> Undo | None:
        run, node = self._run, each.node
        if each.deed is Deed.WIPE and not self._may_wipe():
            return None  # two disks lost at a time may be all that have an event
        if each.deed is Deed.FULL and not self._machines.fill(node):
            return None
        self._hurt.add(node)
        if each.deed is Deed.PAUSE:
            signal(run, node, "STOP")
            return lambda: self._let_go(node)
        if each.deed is Deed.LEAVE:
            return leave(run, self._times, node, self._start)
        if each.deed is Deed.FULL:
            self._full.add(node)
            self._look(node)
            return lambda: self._make_room(node)
        signal(run, node, "KILL")
        if each.deed is Deed.WIPE:
            replace_disk(run, node)
            self._tails.pop(node, None)
        return lambda: self._start(node)

    def _set_clock(self, each: Planned) -> Undo | None:
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

    def _look(self, node: int) -> None:
        """Look again and again whether a node has ended on its full disk: reports say when."""
        if node in self._full and not self._machines.look(node):
            self._times.at(self._times.now() + LOOK_S, partial(self._look, node))

    def _make_room(self, node: int) -> bool:
        met = self._machines.make_room(node)
        if met is None:
            return False
        self.met[met] += 1
        self._full.discard(node)
        self._start(node)
        return True

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
        run.start_raw(f"raw-{node}", timeout_ms=ANSWER_MS, rate=RAW_RATE, **sides.of(node).flags)
        for node in run.cluster.broker_ids
    ]
    for worker in (producer, *clients):
        run.must_flow(worker)
    planned = plan_storm(
        seed, parameters.duration_s, run.cluster.broker_ids, run.cluster.controller_ids
    )
    storm = Storm(run, sides, machines)
    try:
        storm.blow(planned)
    finally:
        run.told.append(storm.words)
    sides.heal()
    run.tables += tables(storm, seed)
    refuse_if(not storm.done, f"nothing was done in {parameters.duration_s:g} s: --duration more")
    run.note(f"the storm is over, {storm.in_short}: everything is healed, and every node runs")
    expect_quorum_whole(run, "after the storm", AGAIN_S)
    expect_running(run, "after the storm")
    see_again(run)
    run.expect("after the storm", whole(run.replicas), AGAIN_S + SETTLE_S)
    for worker in (producer, *clients):
        run.expect_flow(worker, f"{worker.name}, after the storm", AGAIN_S)
    expect_consumed(run, reader, "after the storm")
    expect_one_leader_an_epoch(run)
    # What is broken is broken, however little was done, so this comes last.
    refuse_too_few(storm.done.total(), storm.planned.total(), "storm (--duration more helps)")
    refuse_if(
        storm.cuts and not storm.dropped_by_cuts and sides.has_places,
        f"{storm.cuts} cuts have dropped no packet",
    )


def tables(storm: Storm, seed: int) -> list[Table]:
    return [
        Table(
            title=f"The storm of seed {seed}, by kind",
            header=["a node is", "done", "passed over"],
            rows=storm.counts,
            note="Passed over: what an earlier fault stood in the way of, and a full disk that was "
            f"new. {NOT_HERE}: it can't be done here. "
            f"Cuts and lossy links have dropped {storm.dropped:,} packets.",
        ),
        Table(
            title="What was done, and when",
            header=["at, s", "for, s", "what", "packets"],
            rows=storm.rows[:SHOWN_MAX],
            note="Packets: dropped on its links while it held, whichever faults held them, too."
            f"{f' The first {SHOWN_MAX}.' if len(storm.rows) > SHOWN_MAX else ''}",
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
