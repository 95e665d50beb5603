"""One broker stops, by SIGTERM and by SIGKILL, and comes back."""

from __future__ import annotations

from holdfast.lab.parameters import Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenario import BY_SIGNAL, Control, Part, Scenario
from holdfast.lab.scenarios.write_anomaly import SESSION_MS, STRIKES, write_anomaly
from holdfast.lab.steps.usual import (
    begin,
    bring_back,
    elect_preferred,
    expect_handover,
    expect_same_replicas,
)
from holdfast.lab.steps.wants import without
from holdfast.lab.workload_processes import Worker

VICTIM_PARTITION = 1  # the broker that leads it is the one that goes


def steps(run: Run) -> None:
    producer, _, consumer = begin(run)
    run.steady(producer)
    for signal in run.parameters.signals:
        stop_and_restart(run, producer, signal)
    run.wait(
        "the consumer to see every partition",
        lambda: len(consumer.tail.poll().delivered_ms) == run.parameters.partitions,
        20.0,
    )


def stop_and_restart(run: Run, producer: Worker, signal: str) -> None:
    """Stop one broker, look, start it again, look, and give leadership back."""
    parameters, assignment = run.parameters, run.replicas
    victim = assignment[VICTIM_PARTITION % parameters.partitions][0]
    run.fault(signal, victim)
    word = f"{victim} is down (SIG{signal})"
    run.expect(word, without(assignment, {victim}), parameters.noticed_s)
    led = [p for p, replicas in assignment.items() if replicas[0] == victim and len(replicas) > 1]
    if signal == "TERM" and led:
        expect_handover(run, victim, led)
    # In-sync replicas without which a partition acknowledges nothing.
    needed = parameters.min_isr if parameters.acks == "all" else 1
    serving = [p for p, replicas in assignment.items() if len(set(replicas) - {victim}) >= needed]
    run.expect_flow(producer, f"while {word}", 20.0, serving)
    run.steady(producer)
    expect_same_replicas(run, f"while {word}")
    bring_back(run, victim)
    elect_preferred(run, producer)
    run.steady(producer)


SCENARIO = Scenario(
    name="one-broker-down",
    summary="One of three brokers stops, by SIGTERM and by SIGKILL, and comes back each time.",
    text=(
        "Only leadership moves: partitions led by the broker go to the next replica, its name "
        "leaves every ISR, no copy is made elsewhere. SIGTERM hands over first, so nobody is "
        "without leader. After SIGKILL its partitions have no leader until its session ends, and "
        "acks=all waits where it was a follower. Back again, it catches up, the ISR is whole, and "
        "a preferred election gives leadership back."
    ),
    defaults=Parameters(replication_factor=2, min_isr=1),
    parts=(
        Part(
            name="main",
            title="One broker down",
            steps=steps,
            hurts=frozenset({BY_SIGNAL}),
        ),
        Control(
            title="Control: acks=1, and the leader dies before a follower has the events",
            steps=write_anomaly,
            hurts=STRIKES,
            change={
                "acks": "1",
                "replication_factor": 3,
                "min_isr": 2,
                "brokers": 3,
                "partitions": 1,
                "retries": 0,
                "config": {"broker.session.timeout.ms": SESSION_MS},
            },
        ),
    ),
)
