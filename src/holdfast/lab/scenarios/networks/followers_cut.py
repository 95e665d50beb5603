"""The leader is cut from its followers, and from nobody else: it goes on alone, or not at all."""

from __future__ import annotations

from holdfast.clients.workload.raw_producer import RawProducer
from holdfast.judge.history import Acknowledged, Unknown
from holdfast.lab.parameters import SHORT_LAG, Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.steps.sides import AGAIN_S, Sides
from holdfast.lab.steps.usual import acknowledge, start_exact, tally
from holdfast.lab.steps.wants import want

PARTITION = 0
SLOW_S = 30.0  # beyond the lag, for a follower to be dropped on a slow machine


def alone_is_enough(run: Run) -> None:
    """Min ISR 1: acknowledged on one copy. That one dies: offline, and nothing is lost."""
    sides, client, _ = cut_followers(run)
    leader, *others = run.replicas[PARTITION]
    expect_acknowledged(run, client)
    run.fault("KILL", leader)
    nobody = {PARTITION: want(-1, [leader])}  # but one who was dropped too late may
    offline = run.expect(f"{leader} is dead", nobody, run.parameters.noticed_s)
    sides.heal()
    acknowledged, _ = tally(client.send(PARTITION) for _ in range(3))
    name = "acknowledged while nobody leads"
    run.check(name, "0", str(acknowledged), kept=acknowledged == 0, given=offline)
    run.start_node(leader)
    run.expect(f"{leader} is back", {PARTITION: want(leader, (leader, *others))}, AGAIN_S)
    acknowledge(run, client, PARTITION, run.parameters.count)
    run.lost_expected = 0


def alone_is_too_few(run: Run) -> None:
    """Min ISR 2: nothing is acknowledged, and every refusal is certain."""
    sides, client, dropped = cut_followers(run)
    leader, *others = run.replicas[PARTITION]
    count = run.parameters.count
    acknowledged, refused = tally(client.send(PARTITION) for _ in range(count))
    run.check(
        f"sent to {leader} while it is alone",
        f"none acknowledged, {count} refused for want of replicas",
        f"{acknowledged} acknowledged, {refused} refused for want of replicas",
        kept=acknowledged == 0 and refused == count,
        given=dropped or acknowledged > 0,  # cut off it can acknowledge nothing, in sync or not
    )
    sides.heal()
    run.expect("healed", {PARTITION: want(leader, (leader, *others))}, AGAIN_S)
    acknowledge(run, client, PARTITION, count)
    run.lost_expected = 0


def alone_and_replaced(run: Run) -> None:
    """Control: who lacks what the leader took alone may lead; all of that is lost."""
    sides, client, _ = cut_followers(run)
    leader, *others = run.replicas[PARTITION]
    expect_acknowledged(run, client)
    run.fault("KILL", leader)
    replaced = f"{leader} is replaced by who lacks events"
    run.expect(replaced, {PARTITION: want(others[0])}, run.parameters.noticed_s)
    # Not before: what the dead leader's system has to deliver still, followers would take.
    sides.heal()
    acknowledge(run, client, PARTITION, 1)
    run.start_node(leader)
    run.expect("all are back", {PARTITION: want(isr=(leader, *others))}, AGAIN_S)
    acknowledge(run, client, PARTITION, 1)
    run.lost_expected = run.parameters.count + 1  # with the one that had them dropped


def cut_followers(run: Run) -> tuple[Sides, RawProducer, bool]:
    """Cut the leader from its followers; a client that reaches all, and whether it is alone now."""
    # Below min ISR nothing is committed, so the answer is only that time is over.
    lag_s, min_isr = run.parameters.lag_s, run.parameters.min_isr
    patience_ms = int(1000 * (lag_s + SLOW_S if min_isr == 1 else 2 * lag_s))
    client, _ = start_exact(run, timeout_ms=patience_ms)
    leader, *others = run.replicas[PARTITION]
    sides = Sides(run)
    followers = ",".join(map(str, others))
    sides.cut(str(leader), followers, [leader], f"from its followers, {followers}")
    # Who lacks nothing is in sync, however long ago it was heard of.
    posted = client.post(PARTITION)
    alone = {PARTITION: want(leader, [leader])}
    dropped = run.expect("the followers are dropped", alone, lag_s + SLOW_S)
    outcome = client.take() if posted is None else posted
    kept = isinstance(outcome, Acknowledged if min_isr == 1 else Unknown)
    run.check(
        "sent before they were dropped",
        "acknowledged" if min_isr == 1 else "in doubt",
        outcome.KIND,
        kept=kept,
        given=dropped,
    )
    return sides, client, dropped


def expect_acknowledged(run: Run, client: RawProducer) -> None:
    """Check that the leader acknowledges events that only it has."""
    count = run.parameters.count
    acknowledged = acknowledge(run, client, PARTITION, count)
    name, kept = "acknowledged on one copy", acknowledged == count
    run.check(name, str(count), str(acknowledged), kept=kept, late=True)


SCENARIO = Scenario(
    name="followers-cut",
    summary="The leader is cut from its followers, and from nobody else.",
    text=(
        "Clients and controllers reach everybody. After replica.lag.time.max.ms the leader is "
        "alone in sync. With min.insync.replicas=1 that is enough, and what it acknowledges is on "
        "one copy: when it dies the partition is offline until it returns, and nothing is lost. "
        "With 2 it refuses every event. The control lets who lacks those events lead: all of them "
        "are lost."
    ),
    defaults=Parameters(partitions=1, network=True, retries=0, lab_config=SHORT_LAG),
    parts=(
        Part(
            name="main",
            title="min ISR 1: acknowledged on one copy, which dies",
            steps=alone_is_enough,
            change={"min_isr": 1},
        ),
        Part(name="min-isr-2", title="min ISR 2: refused", steps=alone_is_too_few),
        Control(
            title="Control: min ISR 1, and who lacks events may lead",
            steps=alone_and_replaced,
            change={"min_isr": 1, "unclean": True},
        ),
    ),
    fixed=frozenset(
        {"acks", "brokers", "min_isr", "partitions", "replication_factor", "signal", "unclean"}
    ),
)
