"""One busy topic of many partitions: the cluster alone spreads who leads, and so the bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from holdfast.judge.history import Acknowledged
from holdfast.lab.parameters import Parameters, refuse_if
from holdfast.lab.report import Table
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.measures import replica_sizes
from holdfast.lab.steps.moving import shares
from holdfast.lab.steps.usual import (
    PRELOAD_BYTES,
    bring_back,
    elect_preferred,
    expect_only_flows,
    expect_same_replicas,
)
from holdfast.lab.steps.wants import preferred, want, without
from holdfast.lab.workload_processes import Worker

VICTIM = 1
EACH = 200  # events in each partition
FILL_S = 120.0  # for a slow machine
# An event that is given up on a slow machine would look like fewer bytes than others have.
PATIENT_MS = int(2 * FILL_S * 1000)
APART = 0.10  # of their mean, between the bytes of any two brokers that lead
SPREAD = "are spread"  # in the names of what fails where somebody has placed them otherwise
FILLED = "every partition is filled"
LEADERS = f"replicas and leaders {SPREAD}"
LED_BYTES = f"bytes of what brokers lead {SPREAD}"


def steps(run: Run) -> None:
    """Let the cluster place the topic; look at it in peace, and when one broker is dead."""
    run.place_topic()
    producer = load(run)
    run.fault("KILL", VICTIM)
    left = without(run.replicas, {VICTIM})
    run.expect(f"{VICTIM} is dead", left, run.parameters.noticed_s)
    run.expect_flow(producer, f"{VICTIM} is dead", SETTLE_S)
    show(run, f"While {VICTIM} is dead")
    bring_back(run, VICTIM)
    elect_preferred(run, producer)
    expect_same_replicas(run, f"with {VICTIM} back")


def two(run: Run) -> None:
    """Two brokers, two partitions, two copies of each: the one that is left leads both."""
    run.make_topic()
    producer = load(run)
    raw = run.start_raw()
    run.must_flow(raw)
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
    load(run)


def load(run: Run) -> Worker:
    """Fill every partition alike, look, and go on writing; who writes.

    librdkafka has a request for each partition, and few on their way: a cold Apache Kafka would
    never catch up with as many as there are events.
    """
    run.start_readers()
    told: dict[str, Any] = {"keys": len(run.partitions), "config": "linger.ms=200"}
    filled = EACH * len(run.partitions)
    worker = run.start_producer(
        "filling",
        **told,
        rate=0,
        max_messages=filled,
        size=PRELOAD_BYTES,
        delivery_timeout_ms=PATIENT_MS,
    )
    worker.wait(FILL_S)
    taken = worker.tail.poll().count(Acknowledged)
    run.check(FILLED, f"{filled:,} events", f"{taken:,}", kept=taken == filled, late=True)
    measure(run)
    producer = run.start_producer(**told)
    run.must_flow(producer)
    return producer


def measure(run: Run) -> None:
    """Look who leads how many partitions, and what they come to in bytes."""
    expect_placed_evenly(run)
    run.expect("in peace", preferred(run.replicas))
    led = bytes_led(run)
    mean = sum(led.values()) / len(led)
    apart = (max(led.values()) - min(led.values())) / mean if mean else 1.0
    run.check(
        LED_BYTES,
        f"{APART:.0%} apart at most",
        f"{apart:.1%} apart: {', '.join(f'{n}: {size:,}' for n, size in led.items())}",
        kept=apart <= APART,
        late=True,  # a starved broker that was fenced leads nothing until there is an election
    )
    show(run, "In peace")


def expect_placed_evenly(run: Run) -> None:
    """Check that no broker was given more than one replica, or one to lead, more than another.

    Of where they were placed, which no slow machine changes; that who was given them leads is
    another check.
    """
    nodes = run.cluster.broker_ids
    held = Counter(dict.fromkeys(nodes, 0))
    first = held.copy()
    for replicas in run.replicas.values():
        held.update(replicas)
        first[replicas[0]] += 1
    told = {"replicas": held, "leaders": first}
    run.check(
        LEADERS,
        "both differ by one at most",
        "; ".join(
            f"{what} {', '.join(f'{node}: {count}' for node, count in sorted(those.items()))}"
            for what, those in told.items()
        ),
        kept=all(max(those.values()) - min(those.values()) <= 1 for those in told.values()),
    )


def bytes_led(run: Run) -> Mapping[int, int]:
    """Return how many bytes the logs have that each broker leads, by broker.

    LabError: a leader does not say. That is no uneven load.
    """
    led = dict.fromkeys(sorted(run.cluster.broker_ids), 0)
    sizes = replica_sizes(run)
    for partition, state in run.view.partitions.items():
        if state.leader in led:
            size = sizes.get((state.leader, partition))
            refuse_if(size is None, f"node {state.leader} does not say how large P{partition} is")
            led[state.leader] += size or 0
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
        "The cluster places a topic of 24 partitions by itself, and all of them are written to: "
        "each broker leads as many as any other, give or take one, and the bytes of what they lead "
        "are within 10 % of each other. Then one is killed, and the others lead what it led. Once "
        "more with two brokers and two partitions of two copies: whoever is left leads both. In "
        "the control somebody has placed every first replica on one broker."
    ),
    defaults=Parameters(partitions=24, rate=500.0),
    parts=(
        Part(name="main", title="24 partitions, three brokers", steps=steps),
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
