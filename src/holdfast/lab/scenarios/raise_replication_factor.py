"""A topic with one copy gets three, under load, and survives what would have been its end."""

from __future__ import annotations

from holdfast.lab.run import Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.scenarios.replication_factor_one import gone
from holdfast.lab.steps.dead_disks import lose_replicas
from holdfast.lab.steps.moving import Mover
from holdfast.lab.steps.usual import (
    bring_back,
    elect_preferred,
    expect_same_replicas,
    preload,
    start_clients,
)
from holdfast.lab.steps.wants import preferred, without

PRELOAD_EVENTS = 10_000
VICTIM_PARTITION = 1


def steps(run: Run) -> None:
    target = run.parameters.assignment()
    run.make_topic({p: nodes[:1] for p, nodes in target.items()})
    preload(run, PRELOAD_EVENTS)
    producer = start_clients(run).producer
    run.steady(producer, 1.0)

    mover = Mover(run)
    mover.begin(target)
    mover.wait()
    run.expect("each partition has three copies", preferred(target), 45.0)
    expect_same_replicas(run, "when it is done")
    run.expect_flow(producer, "each partition has three copies", 20.0)
    run.steady(producer, 1.0)

    victim = target[VICTIM_PARTITION][0]
    run.fault("KILL", victim)
    lose_replicas(run, victim, run.partitions)
    lost = f"{victim} is down, and its copies are lost"
    run.expect(lost, without(target, {victim}), run.parameters.noticed_s)
    run.expect_flow(producer, f"{victim} is down", 20.0)
    run.steady(producer, 1.0)
    bring_back(run, victim, f"{victim} is back, and has copied")
    elect_preferred(run, producer)


SCENARIO = Scenario(
    name="raise-replication-factor",
    summary="A topic with one copy of each partition gets three, under load; then a disk is lost.",
    text=(
        "Two brokers more are assigned to each partition while it is written to. They copy, join "
        "the ISR, and from then on min ISR 2 holds; no event is refused or lost on the way. Then a "
        "broker is killed and its copies are deleted: the others go on without a loss. The control "
        "leaves the one copy alone, and the same loss is the end of everything acknowledged."
    ),
    parts=(
        Part(name="main", title="From one copy to three", steps=steps),
        Control(
            title="Control: still one copy, and its disk is lost",
            steps=gone,
            change={"replication_factor": 1, "min_isr": 1, "partitions": 1, "retries": 0},
        ),
    ),
    fixed=frozenset({"acks", "brokers", "partitions", "replication_factor", "min_isr", "signal"}),
)
