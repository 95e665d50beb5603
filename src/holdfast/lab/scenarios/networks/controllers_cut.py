"""All brokers are cut from the controllers, and not from each other: data go on."""

from __future__ import annotations

from holdfast.judge.history import Acknowledged
from holdfast.lab.parameters import Parameters
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.controllers import counts_of, expect_undisturbed
from holdfast.lab.steps.sides import AGAIN_S, Sides
from holdfast.lab.steps.usual import begin, expect_consumed
from holdfast.lab.steps.wants import preferred, whole
from holdfast.lab.workload_processes import Worker

CUT_SESSIONS = 3  # every broker is fenced by then, as far as controllers know
GOES_ON = "acknowledged while controllers are out of reach"


def steps(run: Run) -> None:
    """Clients notice nothing: leaders lead on, with acks=all too, and no replica takes over."""
    clients = begin(run)
    run.steady(clients.producer)
    before, counts = epochs(run), counts_of(clients.senders)
    sides = cut(run)
    expect_goes_on(run, clients.producer)
    run.steady(clients.producer, CUT_SESSIONS * run.parameters.session_s)
    expect_goes_on(run, clients.producer)
    expect_consumed(run, clients.reader, "while controllers are out of reach")
    run.expect("nobody has taken over", preferred(run.replicas))
    seen = epochs(run)
    run.check("leader epochs, for the brokers", text(before), text(seen), kept=seen == before)
    expect_undisturbed(run, "while controllers are out of reach", counts, clients.senders)
    sides.must_drop("the cut of brokers from controllers")
    sides.heal()
    unheard = run.soon(lambda: epochs(run) != before, SETTLE_S)
    run.expect("healed", whole(run.replicas), AGAIN_S)
    run.expect_flow(clients.producer, "healed", SETTLE_S)
    told = "controllers held no election meanwhile"
    if unheard:
        told = (
            f"leader epochs were {text(before)} for all brokers until the network healed, and are "
            f"{text(epochs(run))} now: as sessions ended one by one controllers held elections, of "
            "which nobody heard"
        )
    run.note(told)


def with_a_dead_follower(run: Run) -> None:
    """Control: nobody can drop a dead follower from the ISR, so acks=all waits for it."""
    clients = begin(run)
    run.steady(clients.producer)
    sides = cut(run)
    victim = run.replicas[0][1]
    run.fault("KILL", victim)
    run.steady_view(run.parameters.session_s)
    before = clients.raw.tail.poll().count(Acknowledged)
    expect_goes_on(run, clients.raw)
    acknowledged = clients.raw.tail.poll().count(Acknowledged) - before
    waiting = "with acks=all, while a dead follower is in sync"
    run.check(waiting, "none acknowledged", str(acknowledged), kept=acknowledged == 0)
    sides.heal()
    run.start_node(victim)
    run.expect("all is back", whole(run.replicas), AGAIN_S)
    run.expect_flow(clients.producer, "all is back", AGAIN_S)


def cut(run: Run) -> Sides:
    """Cut every broker from every controller."""
    sides = Sides(run)
    sides.cut("brokers", "controllers", run.cluster.controller_ids, "from all brokers")
    return sides


def expect_goes_on(run: Run, worker: Worker) -> None:
    """Check that events are acknowledged in every partition, of which all that it asks is told."""
    run.expect_flow(worker, GOES_ON, run.parameters.session_s)


def epochs(run: Run) -> dict[int, int]:
    return {p: state.leader_epoch for p, state in sorted(run.view.partitions.items())}


def text(found: dict[int, int]) -> str:
    return ", ".join(f"P{p}: {epoch}" for p, epoch in found.items())


SCENARIO = Scenario(
    name="controllers-cut",
    summary="All brokers are cut from the controllers, and not from each other.",
    text=(
        "No session is renewed, and the controllers fence one broker after the other; the brokers "
        "hear nothing of it. Leaders lead on, followers follow, acks=all is acknowledged, and "
        "clients notice nothing; no replica takes up leadership meanwhile. Healed, all are in "
        "sync, and nothing is lost. In the control a follower dies as well: only a controller "
        "could drop it from the ISR, so acks=all waits until the network is healed."
    ),
    defaults=Parameters(network=True),
    parts=(
        Part(name="main", title="Controllers out of reach", steps=steps),
        Part(
            name="control",
            title="Control: and a follower dies",
            steps=with_a_dead_follower,
            breaks_check=GOES_ON,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "replication_factor", "signal"}),
)
