"""The lab's campaigns for `make soak`: kills at random, and every scenario again and again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.cluster.layout import BROKER, CONTROLLER
from holdfast.judge.verdict import Anomaly
from holdfast.lab.evidence import evidence_of, history_files
from holdfast.lab.parameters import Parameters
from holdfast.lab.prove import PROBLEMS, named, prove
from holdfast.lab.run import Run
from holdfast.lab.scenario import NETWORKS, SCENARIOS, load_scenario
from holdfast.lab.soak.campaign import Campaign, not_judged
from holdfast.lab.soak.exercised import by_scenario
from holdfast.lab.steps.closing import conclude, expect_kept_somewhere
from holdfast.lab.steps.mishaps import break_off, expect_running, failed, too_busy
from holdfast.lab.steps.wants import whole

RUNS_OF_SCENARIO = 10
KILLS_PER_RUN = 10
BOTH_SHARE = 0.2  # of the kills that take a broker and a controller at one instant
# Before a kill, and before its broker starts again: sometimes the session ends meanwhile.
TRAFFIC_S = (0.0, 2.0)
DOWN_S = (0.0, 5.0)
KILLS = Parameters(kills=KILLS_PER_RUN, partitions=6, rate=300.0)


def proof_of(name: str) -> Callable[[Path], dict[str, Any]]:
    """Return what proves one scenario, all its parts and its controls, with its own settings."""

    def run(directory: Path) -> dict[str, Any]:
        scenario = load_scenario(name)
        command = f"holdfast prove {name}"
        outcome = prove(scenario, scenario.defaults, directory, command=command)
        failed = [c.name for result in outcome.results for c in result.checks if not c.kept]
        return {"kept": outcome.exit.kept, "verdict": outcome.verdict, "failed": failed}

    return run


def random_kills(directory: Path) -> dict[str, Any]:
    """Kill any node at any moment, whatever the ISR and the quorum are just then; then judge."""
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    killed: Counter[str] = Counter()
    broke_off = run = None
    try:
        with Run(KILLS, directory, lambda _line: None) as run:
            try:
                _kill_at_random(run, chance, killed)
            except Exception as error:  # noqa: BLE001 - what was seen before stays seen
                problem = named(error, directory)
                broke_off = break_off(run, problem)
                with suppress(*PROBLEMS):  # of a run that can't be looked at any more
                    expect_kept_somewhere(run)
    except Exception as error:  # noqa: BLE001 - as above, and at its end
        problem = named(error, directory)
        if run is None:
            return {**not_judged(problem, run), "seed": seed}
        broke_off = str(problem) if broke_off is None else f"{broke_off}; {problem}"
    try:
        run.journal.close()
        judgement = evidence_of(history_files(run.history)).judgement
    except Exception as error:  # noqa: BLE001 - checks that have failed stay so
        return {**not_judged(named(error, directory), run), "seed": seed}
    not_kept = failed(run)
    broken = judgement.broken(KILLS.promise.forbids)
    # What was seen broken stays broken, whatever became of the run behind it.
    why = broke_off or too_busy(run) or "; ".join(judgement.undecided)
    if not broken and not not_kept and why:
        return {"kept": None, "verdict": f"The run could not be made: {why}", "seed": seed}
    counts = judgement.counts
    verdict = (
        f"{killed[BROKER]} kills of brokers, {killed[CONTROLLER]} of controllers: "
        f"{counts.acknowledged:,} of {counts.sent:,} events acknowledged, "
        f"{judgement.count(Anomaly.LOST)} lost, {judgement.count(Anomaly.DUPLICATED)} duplicated."
    )
    if broke_off is not None:
        verdict += f" It broke off: {broke_off}"
    return {
        "kept": not broken and not not_kept,
        "verdict": verdict,
        "kills": killed.total(),
        "killed": dict(killed),
        "sent": counts.sent,
        "acknowledged": counts.acknowledged,
        "unknown": counts.unknown,
        "anomalies": {a.value: judgement.count(a) for a in Anomaly if judgement.count(a)},
        "failed": not_kept,
        "seed": seed,
    }


def _kill_at_random(run: Run, chance: random.Random, killed: Counter[str]) -> None:
    """Kill single nodes, sometimes one of each kind at one instant; count how many of which."""
    run.make_topic()
    producer = run.start_producer()
    run.start_raw(timeout_ms=3000)
    run.start_reader()
    run.must_flow(producer)
    while killed.total() < run.parameters.kills:
        run.steady(producer, chance.uniform(*TRAFFIC_S))
        victims = _victims(run, chance)
        run.fault("KILL", *victims)
        killed.update(run.cluster.node(victim).roles[0] for victim in victims)
        run.steady(producer, chance.uniform(*DOWN_S))
        run.start_node(*victims)
    run.expect("at the end", whole(run.parameters.assignment()), 60.0)
    expect_running(run, "at the end")
    run.expect_flow(producer, "at the end", 30.0)
    conclude(run)


def _victims(run: Run, chance: random.Random) -> list[int]:
    """One node of all, or a broker and a controller together."""
    if chance.random() < BOTH_SHARE:
        return [chance.choice(run.cluster.broker_ids), chance.choice(run.cluster.controller_ids)]
    return [chance.choice([node.id for node in run.cluster.nodes])]


CAMPAIGNS = (
    Campaign(
        name="random-kills",
        text=f"{KILLS_PER_RUN} SIGKILLs a run of random brokers and controllers at random moments, "
        "acks=all, RF 3, min ISR 2.",
        runs=10,
        run=random_kills,
    ),
    *(
        Campaign(
            name=name,
            text=load_scenario(name).summary,
            runs=RUNS_OF_SCENARIO,
            run=proof_of(name),
            exercises=by_scenario(name),
            in_namespaces=name in NETWORKS,
        )
        for name in SCENARIOS
    ),
)
