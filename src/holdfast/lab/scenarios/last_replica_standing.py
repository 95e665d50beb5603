"""The ISR shrinks to one, and that one loses power, and with it what it had not synced."""

from __future__ import annotations

from holdfast.lab.parameters import Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.scenarios.unclean_election import (
    REPLICAS,
    A,
    B,
    C,
    leave_a_alone,
    send_to_the_last,
)
from holdfast.lab.steps.closing import end_of
from holdfast.lab.steps.dead_disks import cut_back
from holdfast.lab.steps.usual import acknowledge, start_exact
from holdfast.lab.steps.wants import want


def steps(run: Run) -> None:
    """C goes, n1 is written, B goes, n2 is written, A loses power; all of them return, A first."""
    parameters = run.parameters
    client, _ = start_exact(run, {0: REPLICAS})
    kept = end_of(run, A, 0)
    n1, alone = leave_a_alone(run, client, "TERM", "TERM", "A is the last in the ISR")
    n2, _ = send_to_the_last(run, client, "n2, sent to A alone", given=alone)
    run.fault("KILL", A)
    cut_back(run, A, 0, kept)
    if parameters.elr and parameters.min_isr > 1:
        eligible_leads(run)
        run.lost_expected = 0
    else:
        last_leads_again(run)
        run.lost_expected = n1 + n2
    acknowledge(run, client, 0, parameters.count)


def eligible_leads(run: Run) -> None:
    """A is not trusted after its crash; B, who left last and cleanly, is eligible and leads."""
    run.start_node(A)
    run.steady_view(1.0)
    run.expect(
        "A is back after its crash: it may lack events, and must not lead", {0: want(-1, ())}
    )
    run.start_node(B)
    run.expect("B is back: it has everything and leads", {0: want(B)}, 20.0)
    run.start_node(C)
    run.expect("all follow B", {0: want(B, REPLICAS)}, 45.0)


def last_leads_again(run: Run) -> None:
    """A leads with what is left of its log, and the others truncate to it."""
    run.start_node(A)
    run.expect("A is back after its crash, and leads", {0: want(A, {A})}, 20.0)
    run.start_node(B, C)
    run.expect("the others follow A", {0: want(A, REPLICAS)}, 45.0)


SCENARIO = Scenario(
    name="last-replica-standing",
    summary="The ISR shrinks to one replica, which loses power and what it had not synced.",
    text=(
        "Brokers acknowledge before they sync to disk, as Kafka does: copies are the protection. "
        f"A, B and C are brokers {A}, {B} and {C}. C and B leave, cleanly; A is alone in the ISR, "
        "and crashes. The processes of one machine share its page cache, which SIGKILL spares; so "
        "what a power cut would take is cut off A's log by hand, n1 and n2, behind the point up to "
        "which it had synced. With eligible leader replicas and min ISR 2, A's crash is known from "
        "its missing proof of a clean shutdown, B is known to be complete, and nothing is lost. "
        "The controls do without: A is trusted, leads with what is left of its log, and the others "
        "truncate to it. With min ISR 1, eligible replicas can't help: A alone has acknowledged n2."
    ),
    defaults=Parameters(partitions=1, retries=0, elr=True),
    parts=(
        Part(name="main", title="Eligible leader replicas, min.insync.replicas=2", steps=steps),
        Control(
            name="elr-off",
            title="Control: without eligible leader replicas",
            steps=steps,
            change={"elr": False},
        ),
        Control(
            name="min-isr-1",
            title="Control: eligible leader replicas, min.insync.replicas=1",
            steps=steps,
            change={"min_isr": 1},
        ),
        Control(
            name="elr-off-min-isr-1",
            title="Control: without them, min.insync.replicas=1",
            steps=steps,
            change={"elr": False, "min_isr": 1},
        ),
    ),
    fixed=frozenset(
        {"acks", "brokers", "partitions", "replication_factor", "min_isr", "signal", "elr"}
    ),
)
