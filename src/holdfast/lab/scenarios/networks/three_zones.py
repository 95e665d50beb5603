"""Three zones, one replica in each; each zone in turn is cut from the other two."""

from __future__ import annotations

import time

from holdfast.lab.parameters import SHORT_LAG, Parameters, refuse_if
from holdfast.lab.report import Table
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.steps.sides import (
    AGAIN_S,
    LATE,
    LATE_BECAUSE,
    PATIENT,
    READING,
    Sides,
    all_acknowledged_ms,
    expect_one_leader_an_epoch,
    expect_silent,
)
from holdfast.lab.steps.usual import elect_preferred, expect_consumed
from holdfast.lab.steps.wants import preferred, whole

ZONES = ("a", "b", "c")
CUT_IN_TURN = ZONES
# Of clients without patience. One that asks the leader that is cut off waits for so long, asks who
# leads, and is told the same as long as its session lasts: the next leader is seen so much later.
ANSWER_MS = 200
WAIT_S = ANSWER_MS / 1000 + 0.5  # as the raw producer has it


class Zones:
    """A run's zones: in each a broker, a controller, and a client without patience."""

    def __init__(self, run: Run) -> None:
        run.make_topic()
        self._run = run
        self._sides = Sides(run)
        brokers = set(run.cluster.broker_ids)
        self._broker = {
            zone: next(node for node in self._sides.nodes_of(zone) if node in brokers)
            for zone in ZONES
        }
        everywhere = self._sides.of(*run.cluster.broker_ids)
        self.producer = run.start_producer(**everywhere.flags, **PATIENT)
        self.reader = run.start_readers(**everywhere.flags, **READING)
        self._clients = {
            zone: run.start_raw(f"raw-{zone}", timeout_ms=ANSWER_MS, **self._sides.of(broker).flags)
            for zone, broker in self._broker.items()
        }
        for worker in (self.producer, *self._clients.values()):
            run.must_flow(worker)
        self._rows: list[list[str]] = []

    def expect_peace(self, zone: str, seconds: float) -> None:
        """See a zone lead what it is to lead, and all be acknowledged for so long, undisturbed.

        Else nothing might be lost when it is cut off: a zone that leads nothing takes nothing, and
        where its broker alone was in sync nobody else may lead.
        """
        run, workers = self._run, [self.producer, self._clients[zone]]
        if any(run.view.partitions[p].leader != led[0] for p, led in run.replicas.items()):
            elect_preferred(run, self.producer, "before a zone is cut off")
        run.steady(self.producer, seconds)
        for worker in workers:
            run.must_flow(worker)
        run.expect("before a zone is cut off", preferred(run.replicas))

    def cut(self, zone: str, *, winners: bool, alone: bool = False) -> None:
        """Cut a zone off, see what each side acknowledges, and heal it.

        `winners`: whether the other two are enough to go on. `alone`: the zone is not healed before
        it has acknowledged something when others led already. LabError: it never does, or can't.
        """
        run, broker = self._run, self._broker[zone]
        others = [self._clients[other] for other in ZONES if other != zone]
        self._sides.look_past(broker)
        led = [p for p, state in run.view.partitions.items() if state.leader == broker]
        refuse_if(alone and not led, f"zone {zone} leads nothing that it could lose")
        begin_ms = self._sides.isolate_zone(zone)
        left = {p: [n for n in nodes if n != broker] for p, nodes in run.replicas.items()}
        run.expect(f"zone {zone} is cut off", whole(left), run.parameters.noticed_s)
        if winners:
            for client in others:
                run.expect_flow(client, f"{client.name} goes on without zone {zone}", SETTLE_S)
        run.steady(others[0])
        if alone:
            # Others have led these for a while: whatever is acknowledged of them now is lost.
            run.must_flow(self._clients[zone], led)
        heal_ms = self._sides.heal()
        self._sides.look_again(broker)
        run.expect(f"zone {zone} is back", whole(run.replicas), AGAIN_S)
        back_s = time.monotonic() - heal_ms / 1000
        for client in self._clients.values():
            run.expect_flow(client, f"{client.name} goes on, with zone {zone}", AGAIN_S)
        silent = [self._clients[zone], *([] if winners else others)]
        for client in silent if run.parameters.acks == "all" else ():
            # What is under way when it is healed may be acknowledged, by who leads then.
            when = f"sent while zone {zone} was cut off"
            expect_silent(run, client, when, begin_ms, heal_ms, told_by_ms=heal_ms)
        histories = [client.history for client in others]
        on_ms = all_acknowledged_ms(histories, begin_ms, heal_ms, run.partitions)
        took = "never" if on_ms is None else f"{(on_ms - begin_ms) / 1000:.1f}"
        self._rows.append([zone, took, f"{back_s:.1f}"])

    def table(self) -> Table:
        return Table(
            title="Each zone cut off, and healed",
            header=["zone", "until the others acknowledge all, s", "healed until in sync, s"],
            rows=self._rows,
            note="Measured, not asserted: they depend on the machine and on chance. Clients of the "
            f"others send to each partition, and wait for {WAIT_S:g} s for an answer.",
        )


def steps(run: Run) -> None:
    """Two zones of three are enough; nothing is acknowledged in the one that is cut off."""
    cut_in_turn(run, winners=True)


def all_needed(run: Run) -> None:
    """Min ISR 3: nothing is acknowledged anywhere while a zone is cut off."""
    cut_in_turn(run, winners=False)


def cut_in_turn(run: Run, *, winners: bool) -> None:
    zones = Zones(run)
    run.steady(zones.producer)
    for zone in CUT_IN_TURN:
        zones.cut(zone, winners=winners)
    run.expect_flow(zones.producer, "the patient producer, at the end", AGAIN_S)
    expect_consumed(run, zones.reader, "at the end")
    expect_one_leader_an_epoch(run)
    run.tables.append(zones.table())


SCENARIO = Scenario(
    name="three-zones",
    summary="Three zones, one replica in each; each zone in turn is cut from the other two.",
    text=(
        "In each zone are a broker, a controller and clients. Packets between one zone and the "
        "others vanish: the two zones have a majority of controllers and two replicas of each "
        "partition, so within the session they acknowledge everything; in the zone that is cut "
        "off nothing is acknowledged. Healed, nothing is lost, and all replicas are the same. "
        "With min.insync.replicas=3 nothing is acknowledged anywhere while a zone is cut off. The "
        "control does it with acks=1: what the lonely zone acknowledges is lost."
    ),
    defaults=Parameters(network=True, racks=ZONES, controllers=3, lab_config=SHORT_LAG),
    parts=(
        Part(name="main", title="acks=all, min ISR 2", steps=steps),
        Part(
            name="min-isr-3",
            title="acks=all, min ISR 3: all zones are needed",
            steps=all_needed,
            change={"min_isr": 3},
        ),
        Control(
            title="Control: the same with acks=1",
            steps=steps,
            change={"acks": "1", "retries": 0},
            counted=LATE,
            because=LATE_BECAUSE,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "controllers", "min_isr", "replication_factor", "signal"}),
    least={"partitions": len(ZONES)},  # each zone leads something
)
