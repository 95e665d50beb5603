"""The leader is killed: once it has the only copy, once it has one of three."""

from __future__ import annotations

from holdfast.lab.parameters import Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.steps.dead_disks import lose_replicas
from holdfast.lab.steps.usual import acknowledge, begin, tally
from holdfast.lab.steps.wants import want


def continues(run: Run) -> None:
    """RF 3: another replica leads, and the dead one's disk is not missed."""
    replicas = run.parameters.assignment()[0]
    leader, *others = replicas
    producer, raw, _ = begin(run)
    run.steady(producer)
    run.fault("KILL", leader)
    run.expect("the leader is down", {0: want(others[0], others)}, run.parameters.noticed_s)
    run.expect_flow(raw, "the leader is down", 20.0)
    run.steady(producer)
    lose_replicas(run, leader, [0], "its copy of P0 is gone")
    run.start_node(leader)
    run.expect("it is back, and has copied everything", {0: want(others[0], replicas)}, 45.0)
    run.expect_flow(producer, "it is back", 20.0)


def offline(run: Run) -> None:
    """RF 1: offline until the broker returns; nothing is lost, because its disk is there."""
    gone(run, lost=False)


def gone(run: Run, *, lost: bool = True) -> None:
    """RF 1 and the disk lost: everything acknowledged is gone."""
    parameters = run.parameters
    leader = parameters.assignment()[0][0]
    run.make_topic({0: (leader,)})
    client = run.raw_client("producer", acks="all", timeout_ms=2000)
    count = parameters.count
    before = acknowledge(run, client, 0, count)
    up = "acknowledged while it is up"
    run.check(up, str(count), str(before), kept=before == count, late=True)
    run.fault("KILL", leader)
    run.expect("the only replica is down", {0: want(-1, {leader})}, parameters.noticed_s)
    during, _ = tally(client.send(0) for _ in range(count))
    run.check("acknowledged while it is down", "0", str(during), kept=during == 0)
    if lost:
        lose_replicas(run, leader, [0], "its copy of P0 is gone")
    run.start_node(leader)
    run.expect("it is back", {0: want(leader, {leader})}, 30.0)
    after = acknowledge(run, client, 0, count)
    back = "acknowledged when it is back"
    run.check(back, str(count), str(after), kept=after == count, late=True)
    run.lost_expected = before if lost else 0


SCENARIO = Scenario(
    name="replication-factor-one",
    summary="The leader is killed: once it has one copy of three, once the only one.",
    text=(
        "With three replicas another one leads after the session, and even the dead one's copy is "
        "not missed. With one replica the partition is offline until the broker returns; nothing "
        "is lost as long as its disk is there. The control takes that disk away."
    ),
    defaults=Parameters(partitions=1),
    parts=(
        Part(name="main", title="Replication factor 3", steps=continues),
        Part(
            name="one-copy",
            title="Replication factor 1",
            steps=offline,
            change={"replication_factor": 1, "min_isr": 1, "retries": 0},
        ),
        Control(
            title="Control: replication factor 1, and the disk is lost",
            steps=gone,
            change={"replication_factor": 1, "min_isr": 1, "retries": 0},
        ),
    ),
    fixed=frozenset({"acks", "min_isr", "partitions", "replication_factor", "signal", "elr"}),
)
