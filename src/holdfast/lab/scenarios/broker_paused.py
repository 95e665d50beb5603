"""A leader stands still for longer than its session, goes on, and still thinks that it leads."""

from __future__ import annotations

from holdfast.judge.history import Acknowledged
from holdfast.lab.run import Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.steps.usual import acknowledge, begin, elect_preferred, settle, start_exact
from holdfast.lab.steps.wants import want, whole
from holdfast.lab.workload_processes import Worker

PARTITION = 1
WARM_UP = 20
PAUSES = frozenset({"STOP", "CONT"})
ANSWER_MARGIN_S = 45.0  # how much longer than the session a client waits for the zombie


def steps(run: Run) -> None:
    """acks=all: the zombie acknowledges nothing, and nothing that was acknowledged is lost."""
    producer = begin(run).producer
    run.steady(producer)
    acknowledged = zombie(run, producer)
    run.check(
        "sent to the old leader while it stood still, with acks=all",
        "none acknowledged",
        f"{acknowledged} of {run.parameters.count} acknowledged",
        kept=acknowledged == 0,
    )
    elect_preferred(run, producer)
    run.steady(producer)


def with_acks_one(run: Run) -> None:
    """acks=1: what the zombie acknowledges is lost, all of it, and nothing else."""
    start_exact(run, events=WARM_UP)
    acknowledged = zombie(run, None)
    run.check(
        "sent to the old leader while it stood still, with acks=1",
        "acknowledged when it goes on, before it hears that it leads no more",
        f"{acknowledged} of {run.parameters.count} acknowledged",
        kept=acknowledged > 0,
    )
    run.lost_expected = acknowledged


def zombie(run: Run, producer: Worker | None) -> int:
    """Stop the leader, send to it, let another be elected, let it go on; how many it acknowledged.

    What is sent meanwhile waits in its socket. It is the first thing that it reads when it goes on.
    """
    parameters = run.parameters
    leader, *followers = run.replicas[PARTITION]
    bound_s = parameters.session_s + ANSWER_MARGIN_S
    client = run.raw_client("zombie", acks=parameters.acks, timeout_ms=int(bound_s * 1000))
    acknowledge(run, client, PARTITION, WARM_UP)
    settle(run, PARTITION)
    epoch = run.view.partitions[PARTITION].leader_epoch
    run.fault("STOP", leader)
    posted = [client.post(PARTITION) for _ in range(parameters.count)]
    run.note(f"{parameters.count} events sent to {leader}, which stands still")
    replaced = run.expect(
        f"{leader} is out of its session",
        {PARTITION: want(followers[0], followers)},
        parameters.noticed_s,
    )
    now = run.view.partitions[PARTITION].leader_epoch
    run.check("leader epoch", f"above {epoch}", str(now), kept=now > epoch, given=replaced)
    if producer is not None:
        run.expect_flow(producer, f"{leader} stands still", 20.0)
        run.steady(producer)
    run.fault("CONT", leader)
    outcomes = [client.take() if outcome is None else outcome for outcome in posted]
    acknowledged = sum(isinstance(each, Acknowledged) for each in outcomes)
    run.note(f"{leader} goes on, and acknowledges {acknowledged} of them")
    run.expect(f"{leader} follows, and is in sync again", whole(run.replicas), 45.0)
    run.expect(f"{leader} leads no more", {PARTITION: want(followers[0])})
    acknowledge(run, client, PARTITION, WARM_UP)
    return acknowledged


SCENARIO = Scenario(
    name="broker-paused",
    summary="A leader stands still for longer than its session, and goes on as if nothing were.",
    text=(
        "SIGSTOP, and after the session another replica leads in a higher epoch. Clients that "
        "still hold a connection to the old leader have sent it events; SIGCONT, and it takes them "
        "first of all, a zombie that believes it leads. With acks=all it can acknowledge none: its "
        "followers have left it. It hears of the election, follows, truncates what only it has, "
        "and is in sync again. The control does it with acks=1: what the zombie takes it "
        "acknowledges, and every one of those events is lost."
    ),
    parts=(
        Part(name="main", title="acks=all", steps=steps, hurts=PAUSES),
        Control(
            title="Control: the same with acks=1",
            steps=with_acks_one,
            change={"acks": "1", "retries": 0},
            hurts=PAUSES,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "min_isr", "partitions", "replication_factor", "signal"}),
)
