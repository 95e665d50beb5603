"""A consumer that names its rack reads there, and goes on when that replica dies."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

from holdfast.config.node_keys import RACK_AWARE
from holdfast.lab.parameters import Parameters, refuse_if
from holdfast.lab.report import Table
from holdfast.lab.report.figures import percent
from holdfast.lab.run import WORK_S, Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.usual import bring_back, elect, expect_consumed
from holdfast.lab.steps.wants import want
from holdfast.lab.workload_processes import Worker

RACKS = ("a", "b", "c")
NEAR = 1  # the broker in the consumer's rack; it leads P0 and follows in P1 and P2
SHARE = 0.95
SIZE = 1000  # bytes of an event
CLAIM = "of the bytes come from the consumer's own rack"

Received = Mapping[int, int]  # bytes by broker, since the consumer's beginning


def steps(run: Run) -> None:
    """Read near, lose the near replica, read on from the leaders, and near again."""
    producer, reader, statistics = start(run, f"client.rack={RACKS[NEAR]}")
    expect_near(run, statistics, "all are up")
    run.fault("KILL", NEAR)
    left = {p: want(isr={0, 1, 2} - {NEAR}) for p in run.partitions}
    run.expect(f"{NEAR}, the near one, is down", left, run.parameters.noticed_s)
    run.expect_flow(producer, f"{NEAR} is down", 20.0)
    expect_consumed(run, reader, f"{NEAR} is down")
    run.steady(producer)
    bring_back(run, NEAR)
    elect(run)
    expect_consumed(run, reader, f"{NEAR} is back")
    # No share is expected here: librdkafka changes a partition's replica once a minute at most.
    watch(run, statistics, f"{NEAR} is back")


def without_rack(run: Run) -> None:
    """The consumer does not say where it is: the leaders serve it, two thirds from elsewhere."""
    _, reader, statistics = start(run, "client.rack=")
    expect_near(run, statistics, "all are up")
    expect_consumed(run, reader, "all are up")


def start(run: Run, rack: str) -> tuple[Worker, Worker, Path]:
    """Start producers and the consumer, and wait until everything flows."""
    run.make_topic()
    producer = run.start_producer(size=SIZE)
    run.must_flow(producer)
    statistics = run.history / "consumer.statistics"
    reader = run.start_readers(config=rack, statistics=statistics)
    run.wait(
        "the consumer to read every partition",
        lambda: len(reader.tail.poll().delivered_ms) == run.parameters.partitions,
        WORK_S,
    )
    run.wait("the consumer's statistics", lambda: len(samples(statistics)) > 1, WORK_S)
    run.steady(producer, 1.0)
    return producer, reader, statistics


def samples(statistics: Path) -> list[tuple[float, dict[int, int]]]:
    """Every line that the consumer has written: when, and what it had received by then."""
    try:
        lines = statistics.read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [(r["at_ms"], {int(n): b for n, b in r["received"].items()}) for r in rows]


def received_between(before: Received, after: Received) -> dict[int, int]:
    return {node: count - before.get(node, 0) for node, count in sorted(after.items())}


def share_of(received: Received) -> float:
    """The part of all bytes that came from the near broker."""
    total = sum(received.values())
    return received.get(NEAR, 0) / total if total else 0.0


def expect_near(run: Run, statistics: Path, when: str) -> None:
    """Check that the bytes of the next seconds come from the near broker."""
    share = watch(run, statistics, when)
    run.check(
        f"{SHARE:.0%} {CLAIM}, {when}",
        f"{SHARE:.0%} from broker {NEAR}",
        percent(share),
        kept=share >= SHARE,
    )


def watch(run: Run, statistics: Path, when: str) -> float:
    """Show where the next seconds' bytes come from; the near one's share. LabError: none come."""
    until_ms = (time.monotonic() + run.parameters.duration_s) * 1000
    before = samples(statistics)[-1][1]
    run.wait(
        "the consumer's statistics",
        lambda: samples(statistics)[-1][0] > until_ms,
        run.parameters.duration_s + WORK_S,
    )
    received = received_between(before, samples(statistics)[-1][1])
    total = sum(received.values())
    refuse_if(not total, "the consumer has received nothing")
    run.tables.append(
        Table(
            title=f"Whom the consumer's bytes came from, {when}",
            header=["broker", "rack", "bytes", "share"],
            rows=[
                [str(node), RACKS[node], f"{count:,}", percent(count / total)]
                for node, count in received.items()
            ],
            note=(
                f"As librdkafka counts them, in {run.parameters.duration_s:g} s, answers to all "
                "its requests included."
            ),
        )
    )
    return share_of(received)


SCENARIO = Scenario(
    name="nearest-replica",
    summary="A consumer in a rack reads from the replica there, until that one dies.",
    text=(
        "Three racks, a replica in each, and a consumer that says in which it is. It learns from "
        "the leaders whom to ask, and 95 % of its bytes come from its own rack, as librdkafka "
        "counts them. That broker is killed: the consumer goes on with the leaders, with no gap in "
        "what it reads and nothing twice. When the broker is back it comes back too, but takes its "
        "time: librdkafka changes a partition's replica once a minute at most. In the control the "
        "consumer doesn't say where it is: the leaders serve it, whatever rack they are in."
    ),
    defaults=Parameters(racks=RACKS, config={"replica.selector.class": RACK_AWARE}),
    parts=(
        Part(name="main", title="The consumer names its rack", steps=steps),
        Part(
            name="control",
            title="Control: the consumer doesn't say where it is",
            steps=without_rack,
            breaks_check=CLAIM,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "min_isr", "partitions", "replication_factor", "signal"}),
)
