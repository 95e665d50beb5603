"""A schedule of the simulator, on real processes: the same cluster, the same faults, a like load.

What is done and when stands in a file beside the run, which the command has drawn. Owns who a role
means when its time has come, which nodes and links a fault holds, and what ends it; as the
simulator does, it passes over what finds its node down or held, and counts that.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.cluster.network.link_table import Pair
from holdfast.lab.parameters import LabError, Parameters, refuse_if
from holdfast.lab.report import Table
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.scenarios.networks import replay_changes
from holdfast.lab.scenarios.networks.three_zones import ZONES
from holdfast.lab.scenarios.networks.timetable import (
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
from holdfast.lab.steps.controllers import expect_quorum_whole
from holdfast.lab.steps.mishaps import expect_running
from holdfast.lab.steps.replay_plan import WORDS, Fault, Kind, Schedule, schedule_of
from holdfast.lab.steps.sides import (
    AGAIN_S,
    LATE,
    LATE_BECAUSE,
    READING,
    Held,
    Sides,
    expect_one_leader_an_epoch,
)
from holdfast.lab.steps.usual import expect_consumed
from holdfast.lab.steps.wants import whole

# The simulator's producers wait for two seconds, and its links carry on as they heal. Here TCP
# tries a healed link again as late as the cut was long: so long a request must wait for a leader
# that was cut off to hear of its successor while somebody still waits.
ANSWER_MS = 10_000
# The one that sends again has a broker wait for a second, and asks for leaders only when one sends
# it away, as the simulator's do: so it asks a leader that was voted out unknowingly again and
# again, and that one has to know its duplicates.
SENDS_AGAIN: Mapping[str, Any] = {
    "config": [
        "request.timeout.ms=1000",
        "socket.timeout.ms=5000",
        "topic.metadata.refresh.interval.ms=300000",
    ]
}
CUTS = frozenset({Kind.CUT, Kind.ISOLATE})
# What a schedule is about: of each that it has, something must be done.
GROUPS: Mapping[str, frozenset[Kind]] = {
    "kills": frozenset({Kind.KILL}),
    "clean stops": frozenset({Kind.STOP}),
    "pauses": frozenset({Kind.PAUSE}),
    "cuts": CUTS,
}
LASTING = CUTS | {Kind.PAUSE}  # nothing is done where they begin and end at once
# In the folder of a proof: what is done, and the plan as the simulator drew it.
SCHEDULE, DRAWN = "schedule.json", "drawn.json"
BY_KIND = ["a node", "done", "passed over"]  # the header of the table that counts faults


def read_schedule(path: Path) -> Schedule:
    """LabError: there is none, or it can't be replayed."""
    try:
        return schedule_of(json.loads(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise LabError(f"a replay needs its schedule: {path}: {error}") from error


def not_as_drawn(folder: Path) -> list[Table]:
    """Return what a schedule has lost of the plan that lies beside it. LabError: it can't be read.

    Nothing where there is none: then the schedule is the plan.
    """
    try:
        drawn = json.loads((folder / DRAWN).read_bytes())
        kept = json.loads((folder / SCHEDULE).read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise LabError(f"{folder / DRAWN}: {error}") from error
    return replay_changes.table(replay_changes.changes(drawn, kept))


class Replay:
    """Does what a schedule says, each thing at its time, and lets each end at its own."""

    def __init__(self, run: Run, sides: Sides) -> None:
        self._run = run
        self._sides = sides
        self._times = Timetable(run)
        self._held: set[int] = set()  # nodes that are dead or stand still
        self._isolated: Counter[int] = Counter()
        self.done: Counter[Kind] = Counter()
        self.passed_over: Counter[Kind] = Counter()
        self.rows: list[list[str]] = []
        self.ended_cuts = self.idle_cuts = 0  # idle: no packet came while it held

    def words(self, count: int) -> str:
        """Say how many of all faults could be done, and how many cuts had nothing to cut off."""
        over = self.passed_over.total()
        words = f"{self.done.total()} of {count} faults done, {over} passed over"
        if self.idle_cuts:
            words += f", {self.idle_cuts} of {self.ended_cuts} cuts have dropped no packet"
        return words

    def play(self, faults: Sequence[Fault]) -> None:
        """Do all of it. At the end every node was started and every link was healed."""
        for fault in faults:
            self._times.at(fault.at_s, partial(self._begin, fault))
        self._times.keep()

    def _begin(self, fault: Fault) -> None:
        late_s = self._times.now() - fault.at_s
        nodes = [self._resolve(each) for each in (fault.target, fault.other) if each]
        words = " and ".join("nobody" if node is None else str(node) for node in nodes)
        is_over = fault.kind in LASTING and late_s >= fault.seconds
        before = drops(self._sides) if fault.kind in CUTS and not is_over else None
        undo = None if is_over else self._do(fault, nodes)
        counts = self.passed_over if undo is None else self.done
        counts[fault.kind] += 1
        came = "passed over" if undo is None else "done"
        row = [f"{fault.at_s:.1f}", f"{late_s:.1f}", "-", fault.what, words, "-", came]
        self.rows.append(row)
        if undo is not None:
            if before is not None:
                undo = partial(self._end_cut, undo, row, self._sides.latest, before)
            tell = partial(self._tell, row, self._times.now())
            self._times.end(fault.at_s + fault.seconds, undo, tell)

    def _tell(self, row: list[str], begun_s: float) -> None:
        """Tell how long a fault held."""
        row[2] = f"{self._times.now() - begun_s:.1f}"

    def _end_cut(self, undo: Undo, row: list[str], cut: Held, before: Mapping[Pair, int]) -> None:
        """End a cut, and tell how many packets were dropped on its links while it held."""
        count = dropped_since(self._sides, before, cut)
        self.ended_cuts += 1
        self.idle_cuts += not count
        row[5] = f"{count:,}"
        undo()

    def _resolve(self, target: str) -> int | None:
        """Return which node is meant now; None: there is none."""
        cluster = self._run.cluster
        role, _, name = target.partition(":")
        if role == "broker":
            return cluster.broker_ids[int(name) % len(cluster.broker_ids)]
        if role == "controller":
            return cluster.controller_ids[int(name) % len(cluster.controller_ids)]
        if role == "active":
            quorum = cluster.quorum()
            return None if quorum is None else quorum.leader
        state = self._run.view.partitions.get(int(name.rpartition("/")[2]))
        if state is None:
            return None
        if role == "leader":
            return state.leader if state.leader >= 0 else None
        return next((node for node in state.isr if node != state.leader), None)

    def _do(self, fault: Fault, nodes: Sequence[int | None]) -> Undo | None:
        """Begin one fault; return what ends it. None: it can't be had now."""
        node, other = nodes[0], nodes[-1]
        if node is None or other is None:
            return None
        if fault.kind is Kind.CUT:
            return None if node == other else self._cut_from(node, other, fault)
        if fault.kind is Kind.ISOLATE:
            return self._isolate(node)
        if node in self._held or self._run.cluster.state(node) != "running":
            return None
        self._held.add(node)
        if fault.kind is Kind.PAUSE:
            signal(self._run, node, "STOP")
            return partial(self._let_go, node)
        if fault.kind is Kind.STOP:
            return leave(self._run, self._times, node, self._start)
        signal(self._run, node, "KILL")
        return partial(self._start, node)

    # -- nodes ---------------------------------------------------------------------------------

    def _start(self, node: int) -> None:
        """Start a node. Others may be out of its reach, so it is not waited for."""
        self._run.start_node(node, wait=False)
        self._freed(node)

    def _let_go(self, node: int) -> None:
        signal(self._run, node, "CONT")
        self._freed(node)

    def _freed(self, node: int) -> None:
        self._held.discard(node)
        self._look_at(node)

    def _look_at(self, node: int) -> None:
        """Let the observer ask a broker unless something is done to it."""
        if node not in self._run.cluster.broker_ids:
            return
        if self._isolated[node] or node in self._held:
            self._run.observer.avoid(node)
        else:
            self._run.observer.allow(node)

    # -- links ---------------------------------------------------------------------------------

    def _cut_from(self, node: int, other: int, fault: Fault) -> Undo:
        way = ", one way" if fault.one_way else ""
        self._sides.cut(str(node), str(other), [node], f"from {other}{way}", one_way=fault.one_way)
        return partial(self._sides.end, self._sides.latest)

    def _isolate(self, node: int) -> Undo:
        self._isolated[node] += 1
        look_past(self._run, node)
        self._sides.isolate(node, clients=False)
        return partial(self._rejoin, node, self._sides.latest)

    def _rejoin(self, node: int, isolation: Held) -> None:
        self._isolated[node] -= 1
        self._sides.end(isolation)
        self._look_at(node)


def steps(run: Run) -> None:
    """The schedule, beside a load; then all is healed, and must be whole."""
    folder = run.history.parent.parent
    schedule = read_schedule(folder / SCHEDULE)
    run.tables += not_as_drawn(folder)
    for line in schedule.describe():
        run.note(line)
    run.place_topic()
    sides = Sides(run)
    clients = sides.of(*run.cluster.broker_ids).flags
    # What the plan's producers send is sent by all clients together. The raw one's rate is that of
    # each partition.
    rate = run.parameters.rate / (2 if run.parameters.idempotent else 1)
    each = rate / run.parameters.partitions
    run.note(f"{run.parameters.rate:g} records a second, as the plan's producers send them")
    workers = [run.start_raw(timeout_ms=ANSWER_MS, rate=each, **clients)]
    if run.parameters.idempotent:
        workers.append(run.start_producer(rate=rate, **clients, **SENDS_AGAIN))
    reader = run.start_readers(**clients, **READING)
    for worker in workers:
        run.must_flow(worker)
    replay = Replay(run, sides)
    try:
        replay.play(schedule.faults)
    finally:
        run.told.append(replay.words(len(schedule.faults)))
    dropped = sides.dropped() if sides.has_places else None
    sides.heal()
    run.tables += tables(replay, schedule, dropped)
    run.note(f"the schedule is over, {run.told[-1]}: everything is healed, and every node runs")
    expect_quorum_whole(run, "after the schedule", AGAIN_S)
    expect_running(run, "after the schedule")
    see_again(run)
    run.expect("after the schedule", whole(run.replicas), AGAIN_S + SETTLE_S)
    for worker in workers:
        run.expect_flow(worker, f"{worker.name}, after the schedule", AGAIN_S)
    expect_consumed(run, reader, "after the schedule")
    expect_one_leader_an_epoch(run)
    # What is broken is broken, however little was done, so this comes last.
    refuse_too_little(Counter(fault.kind for fault in schedule.faults), replay.done, dropped)


def refuse_too_little(
    planned: Mapping[Kind, int], done: Mapping[Kind, int], dropped: int | None
) -> None:
    """LabError: what was done is another schedule than the one that was planned.

    Less than half of it, nothing of a kind, or cuts that cut nothing off. `dropped`: packets, by
    links that were cut; None: not told.
    """
    count, wanted = sum(done.values()), sum(planned.values())
    refuse_if(not count, "nothing that the schedule names could be done")
    refuse_too_few(count, wanted, "schedule")
    for name, kinds in GROUPS.items():
        own = sum(planned.get(kind, 0) for kind in kinds)
        refuse_if(
            own and not any(done.get(kind, 0) for kind in kinds),
            f"none of the schedule's {own} {name} could be done",
        )
    cuts = sum(done.get(kind, 0) for kind in CUTS)
    refuse_if(cuts and dropped == 0, f"{cuts} cuts were made, and none has dropped any packet")


def faults_told(tables: Iterable[Table]) -> tuple[int, int] | None:
    """Return how many faults were done and passed over, by a run's tables; None: not told."""
    for table in tables:
        if table.header == BY_KIND:
            done, over = (sum(int(row[place]) for row in table.rows) for place in (1, 2))
            return done, over
    return None


def tables(replay: Replay, schedule: Schedule, dropped: int | None) -> list[Table]:
    """What was asked for, and what came of it."""
    packets = "" if dropped is None else f" Cut links have dropped {dropped:,} packets."
    return [
        Table(
            title=f"The schedule of seed {schedule.seed}, by kind",
            header=BY_KIND,
            rows=[
                [words, str(replay.done[kind]), str(replay.passed_over[kind])]
                for kind, words in WORDS.items()
            ],
            note="Passed over: its node was down or held just then, nobody had that role, or its "
            "time was over when it came."
            f"{packets}",
        ),
        Table(
            title="What was done, and when",
            header=["at, s", "late, s", "for, s", "what", "nodes", "packets", "came of it"],
            rows=replay.rows[:SHOWN_MAX],
            note="Packets: dropped on a cut's links while it held, whichever cuts held them, too."
            f"{f' The first {SHOWN_MAX}.' if len(replay.rows) > SHOWN_MAX else ''}",
        ),
    ]


SCENARIO = Scenario(
    name="replay",
    summary="A schedule of the simulator's, drawn from its seed, done to real processes.",
    text=(
        "The simulator draws a cluster, its clients and what is done to them from a seed; kills, "
        "clean stops, pauses, cuts and isolations of that are done here, to as many brokers and "
        "controllers, at the same times, with as many replicas and the same min ISR and acks. "
        "What has no counterpart is left out, and named. Afterwards all is healed: every replica "
        "is in sync again, every client is acknowledged, and the promise was kept. The control "
        "cuts off one zone of three with acks=1, and loses what that zone acknowledged."
    ),
    defaults=Parameters(network=True, controllers=3),
    parts=(
        Part(name="main", title="The schedule", steps=steps),
        Control(
            title="Control: one zone cut off, with acks=1",
            steps=one_zone_cut,
            change={
                "acks": "1",
                "retries": 0,
                "brokers": len(ZONES),
                "controllers": len(ZONES),
                "combined": False,
                "racks": ZONES,
                "replication_factor": 3,
                "min_isr": 2,
                "partitions": 3,
                "unclean": False,
                "elr": False,
                "profile": "lab",
                "config": {"replica.lag.time.max.ms": "4000"},
                "rate": 100.0,
                "duration_s": 2.0,
                "seed": None,
            },
            counted=LATE,
            because=LATE_BECAUSE,
        ),
    ),
)
