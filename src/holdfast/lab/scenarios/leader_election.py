"""The leader is killed again and again, at random moments."""

from __future__ import annotations

import random

from holdfast.lab.run import Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.scenarios.write_anomaly import SESSION_MS, STRIKES, write_anomaly
from holdfast.lab.steps.usual import begin, bring_back
from holdfast.lab.steps.wants import want

PAUSE_S = (0.1, 1.5)  # traffic between the ISR being whole and the next kill


def steps(run: Run) -> None:
    parameters = run.parameters
    chance = random.Random()  # noqa: S311 - a moment, not a secret
    producer, raw, _ = begin(run)
    for number in range(1, parameters.kills + 1):
        run.steady(producer, chance.uniform(*PAUSE_S))
        before = run.view.partitions[0]
        leader, epoch = before.leader, before.leader_epoch
        run.fault("KILL", leader)
        name = f"kill {number} of {parameters.kills}: {leader} led P0"
        left = next(node for node in run.replicas[0] if node != leader)
        led = run.expect(name, {0: want(left)}, parameters.noticed_s)
        now = run.view.partitions[0].leader_epoch
        rises = f"{name}; leader epoch"
        run.check(rises, f"above {epoch}", str(now), kept=now > epoch, given=led)
        run.expect_flow(raw, name, 20.0)
        bring_back(run, leader, f"{name}; it is back")
    run.expect_flow(producer, "at the end", 20.0)
    run.steady(producer, 0.5)


SCENARIO = Scenario(
    name="leader-election",
    summary="The leader of partition 0 is killed at random moments, and each time comes back.",
    text=(
        "With acks=all and min ISR 2 nothing acknowledged is lost, however often: the first "
        "in-sync replica in the list leads in a higher epoch, and a consumer's position never "
        "jumps. acks=0 and acks=1 lose what only the dead leader had; that is counted. The control "
        "does with acks=1, on purpose, what a kill does by chance."
    ),
    parts=(
        Part(
            name="main",
            title="Leader killed again and again",
            steps=steps,
            hurts=frozenset({"KILL"}),
        ),
        Control(
            title="Control: acks=1, and the leader dies before a follower has the events",
            steps=write_anomaly,
            hurts=STRIKES,
            change={
                "acks": "1",
                "partitions": 1,
                "retries": 0,
                "config": {"broker.session.timeout.ms": SESSION_MS},
            },
        ),
    ),
    fixed=frozenset({"combined", "min_isr", "replication_factor", "signal"}),
)
