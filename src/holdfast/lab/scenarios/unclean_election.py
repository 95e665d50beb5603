"""The in-sync replicas go one by one, and the one that went first comes back alone."""

from __future__ import annotations

import time

from holdfast.clients.workload.raw_producer import RawProducer
from holdfast.judge.history import Delivered, Position
from holdfast.lab.evidence import events_of
from holdfast.lab.parameters import Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.steps.mishaps import must_come
from holdfast.lab.steps.usual import acknowledge, expect_consumed, start_exact, tally
from holdfast.lab.steps.wants import want
from holdfast.lab.workload_processes import Worker

A, B, C = 1, 0, 2  # replicas of the partition, in this order
REPLICAS = (A, B, C)


def go_one_by_one(run: Run, b_leaves_by: str = "KILL") -> tuple[RawProducer, Worker, int]:
    """Kill C, write n1, stop B, write n2; return who sends, who reads, and how many C lacks."""
    client, reader = start_exact(run, {0: REPLICAS})
    n1, alone = leave_a_alone(run, client, "KILL", b_leaves_by, "C and B are down")
    n2, refused = send_to_the_last(run, client, "n2, with A alone", given=alone)
    run.note(f"n2 = {n2} events acknowledged by A alone, {refused} refused")
    return client, reader, n1 + n2


def leave_a_alone(
    run: Run, client: RawProducer, c_by: str, b_by: str, when: str
) -> tuple[int, bool]:
    """Let C go, write n1, let B go; how many A and B have acknowledged, and whether A is alone."""
    # Who leaves in good order is out of the ISR at once, however long a session is.
    bound_s = 15.0 if c_by == "TERM" else run.parameters.noticed_s
    run.note(f"n0 = {run.parameters.count} events on all three")
    run.fault(c_by, C)
    run.expect("C is down", {0: want(A, {A, B})}, bound_s)
    n1 = acknowledge(run, client, 0, run.parameters.count)
    run.note(f"n1 = {n1} events acknowledged by A and B")
    run.fault(b_by, B)
    return n1, run.expect(when, {0: want(A, {A})}, bound_s)


def send_to_the_last(run: Run, client: RawProducer, name: str, *, given: bool) -> tuple[int, int]:
    """Send while A is alone; return how many it acknowledged, and how many it refused.

    Check that it refuses all of them under min ISR, and acknowledges all otherwise. `given`:
    whether A is alone by now.
    """
    count, under = run.parameters.count, run.parameters.min_isr > 1
    acknowledged, refused = tally(client.send(0) for _ in range(count))
    run.check(
        name,
        f"{count} refused" if under else f"{count} acknowledged",
        f"{acknowledged} acknowledged, {refused} refused",
        kept=(refused if under else acknowledged) == count,
        given=given,
    )
    return acknowledged, refused


def strike(run: Run) -> None:
    run.fault("KILL", A)
    run.start_node(C)
    must_come(
        run,
        "C to be live, and A not to be",
        lambda: C in run.view.brokers and A not in run.view.brokers,
        max(30.0, run.parameters.noticed_s),
    )


def expect_nothing_lost(run: Run, client: RawProducer, reader: Worker) -> None:
    healed_ms = time.monotonic() * 1000
    acknowledge(run, client, 0, 1)
    expect_consumed(run, reader, "all have caught up", healed_ms)
    run.lost_expected = 0


def steps(run: Run) -> None:
    """Unclean election off: offline until A returns, and nothing is lost."""
    client, reader, _ = go_one_by_one(run)
    strike(run)
    run.steady_view(2.0)
    run.expect("only C is back: it lacks events and must not lead", {0: want(-1, {A})})
    run.start_node(B)
    run.steady_view(1.0)
    run.expect("B is back too: it also lacks events", {0: want(-1, {A})})
    run.start_node(A)
    run.expect("A is back, and leads", {0: want(A)}, 20.0)
    run.expect("the others have caught up", {0: want(A, REPLICAS)}, 45.0)
    expect_nothing_lost(run, client, reader)


def elects_b(run: Run) -> None:
    """Eligible leader replicas: B left cleanly and last but one, has everything, and may lead."""
    client, reader, _ = go_one_by_one(run, b_leaves_by="TERM")
    strike(run)
    run.steady_view(1.0)
    run.expect("only C is back: it lacks events and must not lead", {0: want(-1, ())})
    run.start_node(B)
    run.expect("B is back: it was eligible, and leads without a loss", {0: want(B)}, 20.0)
    run.start_node(A)
    run.expect("all have caught up", {0: want(B, REPLICAS)}, 45.0)
    expect_nothing_lost(run, client, reader)


def elects_c(run: Run) -> None:
    """Unclean election on: C leads, and exactly what it lacks is lost."""
    client, reader, lacking = go_one_by_one(run)
    run.wait(
        "the reader to have read everything",
        lambda: reader.tail.poll().count(Delivered) >= 3 * run.parameters.count,
        20.0,
    )
    strike(run)
    run.expect("only C is back, and leads", {0: want(C, {C})}, 20.0)
    run.start_node(A, B)
    run.expect("A and B are back and have truncated", {0: want(C, REPLICAS)}, 45.0)
    words = run.wait("the reader to be told", lambda: told(run, reader.name), 30.0)
    run.check("the reader, whose position is gone", "is told", ", ".join(words), kept=bool(words))
    acknowledge(run, client, 0, 1)
    run.lost_expected = lacking


def told(run: Run, name: str) -> list[str]:
    """What a reader was told about its position, after the first."""
    events = events_of([run.history / f"{name}.jsonl"])
    return [event.reason for event in events if isinstance(event, Position)][1:]


SCENARIO = Scenario(
    name="unclean-election",
    summary="Three replicas go one by one; the one that went first, and lacks the most, returns.",
    text=(
        "C is killed, n1 events are written, B is killed, n2 are written, A is killed, C starts. "
        "Unclean election off: the partition is offline until A returns, and nothing is lost. With "
        "min ISR 2, n2 is refused in the first place; and with eligible leader replicas B, who "
        "left cleanly, has all that was acknowledged and may lead alone. The control turns unclean "
        "election on: C leads, exactly n1 + n2 are lost, A and B truncate, and a consumer is told "
        "that its position is gone, not reset in silence."
    ),
    defaults=Parameters(partitions=1, min_isr=1, retries=0),
    parts=(
        Part(name="main", title="Unclean election off", steps=steps),
        Part(
            name="min-isr-2",
            title="Unclean election off, min.insync.replicas=2",
            steps=steps,
            change={"min_isr": 2},
        ),
        Part(
            name="elr",
            title="Eligible leader replicas, min.insync.replicas=2",
            steps=elects_b,
            change={"min_isr": 2, "elr": True},
        ),
        Control(
            title="Control: unclean election on",
            steps=elects_c,
            change={"unclean": True},
        ),
    ),
    fixed=frozenset(
        {"acks", "brokers", "partitions", "replication_factor", "min_isr", "signal", "elr"}
    ),
)
