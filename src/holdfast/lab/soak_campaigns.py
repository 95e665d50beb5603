"""The lab's campaigns for `make soak`: one-broker-down again and again, and kills at random."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from holdfast.clients.driver import DriverError
from holdfast.cluster import ClusterError
from holdfast.judge.history import HistoryError
from holdfast.judge.verdict import Anomaly
from holdfast.lab.closing import conclude
from holdfast.lab.evidence import evidence_of, history_files
from holdfast.lab.prove import Exit, prove
from holdfast.lab.run import Run
from holdfast.lab.scenario import LabError, Parameters, load_scenario
from holdfast.lab.soak import Campaign
from holdfast.lab.wants import want

KILLS_PER_RUN = 10
# Before a kill, and before its broker starts again: sometimes the session ends meanwhile.
TRAFFIC_S = (0.0, 2.0)
DOWN_S = (0.0, 5.0)
KILLS = Parameters(kills=KILLS_PER_RUN, partitions=6, rate=300.0)


def one_broker_down(directory: Path) -> dict[str, Any]:
    """The scenario with both signals and its control."""
    scenario = load_scenario("one-broker-down")
    command = "holdfast prove one-broker-down"
    outcome = prove(scenario, scenario.defaults, directory, command=command)
    kept = {Exit.KEPT: True, Exit.BROKEN: False, Exit.NOT_MADE: None}[outcome.exit]
    failed = [c.name for result in outcome.results for c in result.checks if not c.kept]
    return {"kept": kept, "verdict": outcome.verdict, "failed": failed}


def random_kills(directory: Path) -> dict[str, Any]:
    """Kill any broker at any moment, whatever the ISR is just then; judge after healing."""
    seed = random.SystemRandom().randrange(1 << 32)
    try:
        with Run(KILLS, directory, lambda _line: None) as run:
            _kill_at_random(run, random.Random(seed))  # noqa: S311 - moments, not secrets
        judgement = evidence_of(history_files(run.history)).judgement
    except (LabError, ClusterError, DriverError, HistoryError, OSError) as error:
        return {"kept": None, "verdict": f"The run could not be made: {error}", "seed": seed}
    counts = judgement.counts
    failed = [check.name for check in run.checks if not check.kept]
    broken = judgement.broken(KILLS.promise.forbids)
    verdict = (
        f"{KILLS_PER_RUN} kills: {counts.acknowledged:,} of {counts.sent:,} events acknowledged, "
        f"{judgement.count(Anomaly.LOST)} lost, {judgement.count(Anomaly.DUPLICATED)} duplicated."
    )
    return {
        "kept": judgement.decided and not broken and not failed,
        "verdict": verdict,
        "kills": KILLS_PER_RUN,
        "sent": counts.sent,
        "acknowledged": counts.acknowledged,
        "unknown": counts.unknown,
        "anomalies": {a.value: judgement.count(a) for a in Anomaly if judgement.count(a)},
        "failed": failed,
        "seed": seed,
    }


def _kill_at_random(run: Run, chance: random.Random) -> None:
    run.make_topic()
    producer = run.start_producer(delivery_timeout_ms=120_000)
    run.start_raw(timeout_ms=3000)
    run.start_reader()
    run.must_flow(producer)
    for _ in range(run.parameters.kills):
        run.steady(producer, chance.uniform(*TRAFFIC_S))
        victim = chance.choice(run.cluster.broker_ids)
        run.fault("KILL", victim)
        run.steady(producer, chance.uniform(*DOWN_S))
        run.start_node(victim)
    assignment = run.parameters.assignment()
    whole = {partition: want(isr=replicas) for partition, replicas in assignment.items()}
    run.expect("at the end", whole, 60.0)
    run.expect_flow(producer, "at the end", 30.0)
    conclude(run)


CAMPAIGNS = (
    Campaign(
        name="one-broker-down",
        text="SIGTERM and SIGKILL of one broker of three, and the control that must fail.",
        runs=20,
        run=one_broker_down,
    ),
    Campaign(
        name="random-kills",
        text=f"{KILLS_PER_RUN} SIGKILLs a run of random brokers at random moments, acks=all, RF 3, "
        "min ISR 2.",
        runs=10,
        run=random_kills,
    ),
)
