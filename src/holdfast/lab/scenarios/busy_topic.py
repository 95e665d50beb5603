"""One busy topic of many partitions: the cluster alone spreads who leads, and so the bytes."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.lab.parameters import Parameters
from holdfast.lab.report import Table
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.moving import expect_even, shares
from holdfast.lab.steps.sizes import replica_sizes
from holdfast.lab.steps.usual import (
    Clients,
    bring_back,
    elect_preferred,
    expect_only_flows,
    start_clients,
)
from holdfast.lab.steps.wants import preferred, want, without
from holdfast.lab.workload_processes import Worker

VICTIM = 1
APART = 0.10  # of their mean, between the bytes of any two brokers that lead
SPREAD = "are spread"  # in the names of what fails where somebody has placed them otherwise
LEADERS = f"leaders {SPREAD}"
LED_BYTES = f"bytes of what brokers lead {SPREAD}"


def steps(run: Run) -> None:
    """Let the cluster place the topic; look at it in peace, and when one broker is dead."""
    run.place_topic()
    producer, _, _ = load(run)
    measure(run, producer)
    run.fault("KILL", VICTIM)
    left = without(run.replicas, {VICTIM})
    run.expect(f"{VICTIM} is dead", left, run.parameters.noticed_s)
    run.expect_flow(producer, f"{VICTIM} is dead", SETTLE_S)
    show(run, f"While {VICTIM} is dead")
    bring_back(run, VICTIM)
    elect_preferred(run, producer)
    expect_even(run, f"{LEADERS}, with {VICTIM} back")


def two(run: Run) -> None:
    """Two brokers, two partitions, two copies of each: the one that is left leads both."""
    run.make_topic()
    producer, raw, _ = load(run)
    measure(run, producer)
    for victim in run.cluster.broker_ids:
        survivor = next(node for node in run.cluster.broker_ids if node != victim)
        run.fault("KILL", victim)
        run.expect(
            f"{victim} is dead",
            {partition: want(survivor, {survivor}) for partition in run.partitions},
            run.parameters.noticed_s,
        )
        expect_only_flows(run, raw, f"{survivor} leads both", list(run.partitions))
        bring_back(run, victim)
        elect_preferred(run, producer)


def crooked(run: Run) -> None:
    """Control: somebody has placed all first replicas on one broker."""
    nodes = run.cluster.broker_ids
    run.make_topic(dict.fromkeys(run.partitions, nodes))
    producer, _, _ = load(run)
    measure(run, producer)


def load(run: Run) -> Clients:
    """Start clients that send as much to each partition as to any other."""
    return start_clients(run, keys=len(run.partitions))


def measure(run: Run, producer: Worker) -> None:
    """Look who leads how many partitions, and what they come to in bytes."""
    run.steady(producer)
    run.expect("in peace", preferred(run.replicas))
    expect_even(run, LEADERS)
    led = bytes_led(run)
    mean = sum(led.values()) / len(led)
    apart = (max(led.values()) - min(led.values())) / mean if mean else 1.0
    run.check(
        LED_BYTES,
        f"{APART:.0%} apart at most",
        f"{apart:.1%} apart: {', '.join(f'{n}: {size:,}' for n, size in led.items())}",
        kept=apart <= APART,
    )
    show(run, "In peace")


def bytes_led(run: Run) -> Mapping[int, int]:
    """Return how many bytes the logs have that each broker leads, by broker."""
    led = dict.fromkeys(sorted(run.cluster.broker_ids), 0)
    sizes = replica_sizes(run)
    for partition, state in run.view.partitions.items():
        if state.leader in led:
            led[state.leader] += sizes.get((state.leader, partition), 0)
    return led


def show(run: Run, title: str) -> None:
    held, led = shares(run)
    sizes = bytes_led(run)
    run.tables.append(
        Table(
            title=f"{title}: who holds, leads and takes how much",
            header=["broker", "replicas", "leads", "bytes of what it leads"],
            rows=[
                [str(n), str(held[n]), str(led[n]), f"{sizes.get(n, 0):,}"] for n in sorted(held)
            ],
        )
    )


SCENARIO = Scenario(
    name="busy-topic",
    summary="One busy topic of many partitions: leaders and bytes are spread over all brokers.",
    text=(
        "The cluster places a topic of 48 partitions by itself, and all of them are written to: "
        "each broker leads as many as any other, give or take one, and the bytes of what they lead "
        "are within 10 % of each other. Then one is killed, and the others lead what it led. Once "
        "more with two brokers and two partitions of two copies: whoever is left leads both. In "
        "the control somebody has placed every first replica on one broker."
    ),
    defaults=Parameters(partitions=48, rate=1000.0),
    parts=(
        Part(name="main", title="48 partitions, three brokers", steps=steps),
        Part(
            name="two-brokers",
            title="Two brokers, two partitions, two copies; min ISR 1",
            steps=two,
            change={
                "brokers": 2,
                "partitions": 2,
                "replication_factor": 2,
                "min_isr": 1,
                "rate": 200.0,
            },
        ),
        Part(
            name="control",
            title="Control: every first replica on one broker",
            steps=crooked,
            breaks_check=SPREAD,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "min_isr", "partitions", "replication_factor", "signal"}),
)
