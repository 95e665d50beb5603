"""Five brokers: one is being upgraded when another one dies."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.lab.parameters import Parameters
from holdfast.lab.report import Table
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.usual import (
    REFUSAL,
    begin,
    elect_preferred,
    expect_only_flows,
)
from holdfast.lab.steps.wants import names, whole, without
from holdfast.lab.workload_processes import Worker

UPGRADED, KILLED = 1, 2
GOES_ON = "goes on"  # in the name of what fails where none can be spared
REFUSED_S = 8.0  # for nothing to be acknowledged; clients wait longer


def steps(run: Run) -> None:
    """Only partitions that lose two replicas refuse; every other one goes on, nothing is lost."""
    producer, raw, _ = begin(run)
    run.steady(producer)
    run.fault("TERM", UPGRADED)
    run.expect(
        f"{UPGRADED} is being upgraded", without(run.replicas, {UPGRADED}), run.parameters.noticed_s
    )
    run.expect_flow(raw, f"{GOES_ON} while {UPGRADED} is upgraded", SETTLE_S)
    run.fault("KILL", KILLED)
    gone = {UPGRADED, KILLED}
    left = without(run.replicas, gone)
    noticed = run.expect("and another one dies", left, run.parameters.noticed_s)
    coincide = [p for p, nodes in run.replicas.items() if gone <= set(nodes)]
    going = [p for p in run.partitions if p not in coincide]
    expect_only_flows(run, raw, f"{GOES_ON} without two of five", going)
    refused = refusals(raw)
    run.soon(lambda: more(refused, refusals(raw)) == coincide, SETTLE_S)
    seen = more(refused, refusals(raw))
    run.check(
        f"all {GOES_ON} but those that had both: who refuses for want of replicas",
        f"those that had both: {names(coincide) or 'none'}",
        names(seen) or "none",
        kept=seen == coincide,
        late=set(seen) <= set(coincide),
        given=noticed,
    )
    show(run, gone, coincide)
    run.start_node(UPGRADED)
    run.expect_flow(raw, f"{GOES_ON} with {UPGRADED} back", SETTLE_S)
    run.start_node(KILLED)
    run.expect("all are back", whole(run.replicas), 60.0)
    elect_preferred(run, producer)
    run.steady(producer)


def refusals(raw: Worker) -> dict[int, int]:
    """Return how often each partition has refused for want of replicas so far."""
    errors = raw.tail.poll().errors
    return {p: count for (error, p), count in errors.items() if error == REFUSAL}


def more(before: Mapping[int, int], now: Mapping[int, int]) -> list[int]:
    """Return the partitions that have refused since."""
    return sorted(p for p, count in now.items() if count > before.get(p, 0))


def none_to_spare(run: Run) -> None:
    """Control: min ISR 3. One that is being upgraded is one too few for its partitions."""
    producer, raw, _ = begin(run)
    run.steady(producer)
    run.fault("TERM", UPGRADED)
    run.expect_flow(raw, f"{GOES_ON} while {UPGRADED} is upgraded", REFUSED_S)
    run.start_node(UPGRADED)
    run.expect("it is back", whole(run.replicas), 60.0)
    run.expect_flow(producer, "it is back", SETTLE_S)


def show(run: Run, gone: set[int], coincide: list[int]) -> None:
    rows = [
        [
            f"P{partition}",
            " ".join(map(str, nodes)),
            " ".join(str(node) for node in nodes if node not in gone),
            "refuses" if partition in coincide else "goes on",
        ]
        for partition, nodes in sorted(run.replicas.items())
    ]
    run.tables.append(
        Table(
            title=f"Without {UPGRADED} and {KILLED}",
            header=["partition", "replicas", "left", ""],
            rows=rows,
            note=f"min.insync.replicas is {run.parameters.min_isr}.",
        )
    )


SCENARIO = Scenario(
    name="five-brokers",
    summary="Of five brokers one is being upgraded when another one dies.",
    text=(
        "Replicas are on three of five brokers. One broker is asked to end, and another one is "
        "killed: only partitions that had replicas on both are left with one, and refuse; all "
        "others go on. With the first one back everything goes on, and nothing is lost. In the "
        "control min.insync.replicas is 3, so that a partition which misses one refuses as well."
    ),
    defaults=Parameters(brokers=5, partitions=10),
    parts=(
        Part(name="main", title="min ISR 2", steps=steps),
        Part(
            name="control",
            title="Control: min ISR 3, so none can be spared",
            steps=none_to_spare,
            change={"min_isr": 3},
            breaks_check=GOES_ON,
            met=("raw", REFUSAL),
        ),
    ),
    fixed=frozenset({"acks", "brokers", "min_isr", "replication_factor", "signal"}),
)
