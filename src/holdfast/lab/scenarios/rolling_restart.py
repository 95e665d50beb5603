"""Every broker is restarted in turn, each once all replicas are in sync again."""

from __future__ import annotations

from functools import partial

from holdfast.clients.workload.raw_producer import RawProducer
from holdfast.lab.run import WORK_S, Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.steps.controllers import Counts
from holdfast.lab.steps.mishaps import must_come
from holdfast.lab.steps.usual import (
    REFUSAL,
    acknowledge,
    begin,
    bring_back,
    elect_preferred,
    expect_handover,
    start_exact,
    tally,
)
from holdfast.lab.steps.wants import want
from holdfast.lab.workload_processes import Worker

RESTARTS = frozenset({"TERM"})
WITH_RETRIES = "the producer, which sends again"


def steps(run: Run) -> None:
    """Nothing is lost, and a producer that sends again sees no error."""
    producer = begin(run).producer
    run.steady(producer)
    whole = [restart(run, node, producer) for node in run.cluster.broker_ids]
    elect_preferred(run, producer)
    run.stop_workers()
    counts = Counts.of(producer)
    run.check(
        WITH_RETRIES,
        "every event acknowledged",
        f"{counts.acknowledged:,} acknowledged, {counts.refused} refused, {counts.unknown} unknown",
        kept=counts.acknowledged > 0 and not counts.refused and not counts.unknown,
        given=all(whole),  # where one was stopped before another was back, events are refused
    )


def restart(run: Run, node: int, producer: Worker) -> bool:
    """Stop one broker by SIGTERM, go on without it, start it; return whether it is in sync then."""
    led = [p for p, state in run.view.partitions.items() if state.leader == node]
    run.fault("TERM", node)
    if led:
        expect_handover(run, node, led)
    expect_left(run, node)
    run.expect_flow(producer, f"{node} is down", 20.0)
    return bring_back(run, node)


def expect_left(run: Run, node: int) -> None:
    """Check that a broker has left every ISR."""
    left = {p: want(isr=set(nodes) - {node}) for p, nodes in run.replicas.items()}
    run.expect(f"{node} is down", left, 15.0)


def refused_at_each_step(run: Run) -> None:
    """Min ISR = RF: while any broker is away everything is refused, and for certain."""
    parameters = run.parameters
    client, _ = start_exact(run, timeout_ms=5000)
    for node in run.cluster.broker_ids:
        run.fault("TERM", node)
        expect_left(run, node)
        find_leaders(run, client)
        wanted = parameters.count * parameters.partitions
        acknowledged, refused = tally(
            client.send(p) for p in run.partitions for _ in range(parameters.count)
        )
        run.check(
            f"{node} is down: nothing is refused",
            f"{wanted} acknowledged",
            f"{acknowledged} acknowledged, {refused} refused with {REFUSAL}",
            kept=acknowledged == wanted,
        )
        bring_back(run, node)
        find_leaders(run, client)
        again = sum(acknowledge(run, client, p, parameters.count) for p in run.partitions)
        run.check(f"{node} is back: acknowledged", str(wanted), str(again), kept=again == wanted)


def find_leaders(run: Run, client: RawProducer) -> None:
    """Send until each partition's own leader answers: a client learns of a new one by a refusal."""

    def answers(partition: int) -> bool:
        return any(tally([client.send(partition)]))

    for partition in run.partitions:
        must_come(run, f"P{partition}'s leader to answer", partial(answers, partition), WORK_S)


def in_haste(run: Run) -> None:
    """Each broker is stopped before the other is back, and unclean election is on."""
    first, second = run.parameters.assignment()[0][:2]
    client, _ = start_exact(run, {0: (first, second)})
    run.fault("TERM", first)
    run.expect(f"{first} is down", {0: want(second, {second})}, 15.0)
    alone = acknowledge(run, client, 0, run.parameters.count)
    run.note(f"{alone} events acknowledged by {second} alone")
    run.fault("TERM", second)
    run.start_node(first)
    run.expect(f"only {first} is back, and leads", {0: want(first, {first})}, 30.0)
    run.start_node(second)
    run.expect(f"{second} is back and has truncated", {0: want(first, {first, second})}, 45.0)
    acknowledge(run, client, 0, 1)
    run.lost_expected = alone


SCENARIO = Scenario(
    name="rolling-restart",
    summary="Every broker is restarted in turn, each once all replicas are in sync again.",
    text=(
        "SIGTERM hands leadership over first, so a producer that sends again when it must sees no "
        "error, and nothing is lost. With min ISR = RF there is no room for it: while any broker "
        "is away, everything is refused with NOT_ENOUGH_REPLICAS, step by step. The other control "
        "does not wait for replicas to be in sync, and has unclean election on: what only the "
        "broker that was stopped second had is lost."
    ),
    parts=(
        Part(name="main", title="min.insync.replicas=2 of 3 replicas", steps=steps, hurts=RESTARTS),
        Part(
            name="min-isr-equals-rf",
            title="Control: min.insync.replicas=3 of 3 replicas",
            steps=refused_at_each_step,
            hurts=RESTARTS,
            change={"min_isr": 3, "retries": 0},
            breaks_check="nothing is refused",
        ),
        Control(
            title="Control: in haste, with unclean election on",
            steps=in_haste,
            hurts=RESTARTS,
            change={
                "replication_factor": 2,
                "min_isr": 1,
                "partitions": 1,
                "unclean": True,
                "retries": 0,
            },
        ),
    ),
    fixed=frozenset(
        {"acks", "brokers", "partitions", "replication_factor", "min_isr", "signal", "elr"}
    ),
)
