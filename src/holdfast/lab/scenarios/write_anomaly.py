"""Acknowledged by the leader alone, and lost, on purpose, every time.

The followers are stopped until no Fetch of theirs waits at the leader; then the leader takes k
events and dies; the followers go on and elect one of theirs, who never saw them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from holdfast.clients.workload.raw_producer import RawProducer
from holdfast.judge.history import Acknowledged
from holdfast.lab.parameters import Parameters, refuse_if
from holdfast.lab.run import Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.steps.usual import acknowledge, settle, start_exact
from holdfast.lab.steps.wants import want

FETCH_WAIT_MS = 500  # replica.fetch.wait.max.ms, Kafka's default
PARKED_MARGIN_MS = 300
WARM_UP = 50
# The schedule must end well before the stopped followers' sessions do.
SESSION_MS = "6000"
STRIKES = frozenset({"STOP", "CONT", "KILL"})  # what is done to brokers


def write_anomaly(run: Run) -> None:
    """Lose exactly `count` events with acks=1; with acks=all none is acknowledged, none lost."""
    parameters = run.parameters
    replicas = parameters.assignment()[0]
    client, _ = start_exact(
        run, {0: replicas}, acks=parameters.acks, timeout_ms=2000, events=WARM_UP
    )
    acknowledged = strike(run, client, replicas)
    replaced = "the dead leader is replaced by one who lacks the events"
    expect_replaced(run, client, replaced, replicas)
    expected = 0 if parameters.acks == "all" else parameters.count
    run.check(
        f"acknowledged with acks={parameters.acks} while the followers stood still",
        str(expected),
        str(acknowledged),
        kept=acknowledged == expected,
    )
    run.lost_expected = expected


def strike(
    run: Run,
    client: RawProducer,
    replicas: Sequence[int],
    *,
    meanwhile: Callable[[], None] | None = None,
) -> int:
    """Stop the followers, send, kill the leader, let the followers go on; count what was acked.

    The partition is the first one. Nothing but what is sent here may be the leader's alone.
    `meanwhile` is done while only the leader has the events, and must be short.
    """
    acks, count = run.parameters.acks, run.parameters.count
    leader, *followers = replicas
    settle(run, 0)
    run.fault("STOP", *followers)
    stopped_s = time.monotonic()
    parked_s = (FETCH_WAIT_MS + PARKED_MARGIN_MS) / 1000
    run.wait(
        "the followers' last fetches to be answered",
        lambda: time.monotonic() - stopped_s > parked_s,
        parked_s + 5,
    )
    posted = [client.post(0) for _ in range(count)]
    run.note(f"{count} events sent with acks={acks}")
    acknowledged = sum(isinstance(outcome, Acknowledged) for outcome in posted)
    if acks == "1":
        acknowledged += sum(isinstance(client.take(), Acknowledged) for _ in posted)
    if meanwhile is not None:
        meanwhile()
    run.fault("KILL", leader)
    stretch_s = time.monotonic() - stopped_s
    run.fault("CONT", *followers)
    refuse_if(
        stretch_s >= run.parameters.session_s * 0.8,
        f"the followers stood still for {stretch_s:.1f} s of a session of "
        f"{run.parameters.session_s:g} s: this machine is too busy for the schedule",
    )
    if acks == "all":
        acknowledged += sum(
            isinstance(client.take(), Acknowledged) for _ in range(posted.count(None))
        )
    return acknowledged


def expect_replaced(run: Run, client: RawProducer, when: str, replicas: Sequence[int]) -> None:
    """Check that a follower leads, and that the dead leader comes back and follows it."""
    run.expect(when, {0: want(replicas[1], replicas[1:])}, run.parameters.session_s + 30)
    acknowledge(run, client, 0, 1)
    run.start_node(replicas[0])
    run.expect("the old leader is back and has truncated", {0: want(isr=replicas)}, 45.0)
    acknowledge(run, client, 0, 1)


SCENARIO = Scenario(
    name="write-anomaly",
    summary="The leader takes events while its followers stand still, and dies.",
    text=(
        "With acks=all nothing that the followers lack is acknowledged, so nothing acknowledged is "
        "lost. The control does the same with acks=1: every one of the events is acknowledged, "
        "and every one of them is lost."
    ),
    defaults=Parameters(partitions=1, retries=0, config={"broker.session.timeout.ms": SESSION_MS}),
    parts=(
        Part(
            name="main",
            title="acks=all",
            steps=write_anomaly,
            change={"acks": "all"},
            hurts=STRIKES,
        ),
        Control(
            title="Control: the same with acks=1",
            steps=write_anomaly,
            change={"acks": "1"},
            hurts=STRIKES,
        ),
    ),
    fixed=frozenset({"acks", "partitions", "signal"}),
    least={"replication_factor": 2},
)
