"""Two of three brokers go, in turn and both at once; who may lead then, and who may not."""

from __future__ import annotations

from holdfast.clients.topic_descriptions import described
from holdfast.lab.parameters import Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.steps.controllers import expect_no_controller
from holdfast.lab.steps.mishaps import asking, must_come
from holdfast.lab.steps.usual import (
    acknowledge,
    begin,
    bring_back,
    elect_preferred,
    expect_only_flows,
)
from holdfast.lab.steps.wants import Want, want, whole
from holdfast.lab.workload_processes import Worker

FIRST, SECOND, LEFT = 2, 1, 0  # P1's leader, then its other replica; the broker that stays
OFFLINE = 1  # the partition that has both of them


def steps(run: Run) -> None:
    producer, raw, _ = begin(run)
    run.steady(producer)

    bound_s = run.parameters.noticed_s
    run.fault("KILL", FIRST)
    run.expect(f"{FIRST} is down", {OFFLINE: want(SECOND, {SECOND})}, bound_s)
    run.fault("KILL", SECOND)
    run.expect(
        f"{FIRST} and {SECOND} are down",
        {0: want(LEFT, {LEFT}), 1: offline(run), 2: want(LEFT, {LEFT})},
        bound_s,
    )
    expect_only_flows(run, raw, "two brokers are down", [0, 2])

    run.start_node(FIRST)
    must_come(run, f"{FIRST} to be live again", lambda: FIRST in run.view.brokers, bound_s)
    run.steady(raw, 1.0)
    run.expect(
        f"only {FIRST} is back: it lacks events and must not lead",
        {OFFLINE: offline(run)},
    )
    if run.parameters.elr:
        seen = eligible(run)
        run.check(f"P{OFFLINE}, only {FIRST} is back: who may lead", str([SECOND]), str(seen),
                  kept=seen == [SECOND])  # fmt: skip
    run.start_node(SECOND)
    run.expect(f"{SECOND} is back: it has everything and leads", {OFFLINE: want(SECOND)})
    whole_again(run, producer, "both are back, one after the other")

    run.fault("KILL", FIRST, SECOND)
    run.expect("both killed at one instant", {0: want(LEFT, {LEFT}), 2: want(LEFT, {LEFT})},
               bound_s)  # fmt: skip
    noticed = run.expect("both killed at one instant", {OFFLINE: want(-1)}, bound_s)
    stays = eligible(run) if run.parameters.elr else run.view.partitions[OFFLINE].isr
    word = "is eligible" if run.parameters.elr else "stays in the ISR"
    run.check(
        f"P{OFFLINE}, both killed at one instant: who {word}",
        "its last member",
        "{" + ",".join(map(str, sorted(stays))) + "}",
        kept=len(stays) == 1 and set(stays) <= {FIRST, SECOND},
        given=noticed,
    )
    run.start_node(FIRST, SECOND)
    run.expect("both are back, started together", {OFFLINE: want(next(iter(stays), None))})
    whole_again(run, producer, "both are back, started together")


def offline(run: Run) -> Want:
    """Without a leader: the ISR keeps its last member, or that one is eligible (KIP-966)."""
    return want(-1, () if run.parameters.elr else {SECOND})


def eligible(run: Run) -> list[int]:
    """Return the eligible leader replicas of the offline partition, as a broker shows them."""
    with asking("the topic can't be described"):
        (topic,) = described(run.driver, [run.topic])
    return next(each for each in topic.partitions if each.index == OFFLINE).elr or []


def combined(run: Run) -> None:
    """The brokers are the controllers: with two of them the majority goes too."""
    producer, raw, _ = begin(run)
    run.fault("KILL", FIRST)
    bound_s = run.parameters.noticed_s + run.parameters.quorum_s
    wanted = {0: want(SECOND, {SECOND, LEFT}), 1: want(SECOND, {SECOND}), 2: want(LEFT, {LEFT})}
    run.expect(f"{FIRST} is down, two of three voters are left", wanted, bound_s)
    run.fault("KILL", SECOND)
    expect_no_controller(run, f"{FIRST} and {SECOND} are down")
    run.steady_view(2 * run.parameters.session_s)
    run.expect("no election at all: metadata stay as they were", wanted)
    expect_only_flows(run, raw, "two of three voters are down", [2])
    run.start_node(SECOND)
    back = f"{SECOND} is back, and with it a majority"
    run.expect(f"{back}: who alone was in sync leads", {OFFLINE: want(SECOND)}, bound_s)
    run.expect_flow(raw, back, 30.0)
    run.start_node(FIRST)
    whole_again(run, producer, "both are back")


def whole_again(run: Run, producer: Worker, when: str) -> None:
    run.expect(when, whole(run.replicas), 45.0)
    elect_preferred(run, producer, f"{when}, after a preferred election")


def unclean_return(run: Run) -> None:
    """With unclean election: the one who lacks events leads, and they are lost, counted."""
    parameters = run.parameters
    run.make_topic()
    client = run.raw_client("producer", acks="all")
    acknowledge(run, client, OFFLINE, parameters.count)
    run.fault("KILL", FIRST)
    run.expect(f"{FIRST} is down", {OFFLINE: want(SECOND, {SECOND})}, parameters.noticed_s)
    alone = acknowledge(run, client, OFFLINE, parameters.count)
    run.note(f"{alone} events acknowledged by {SECOND} alone")
    run.fault("KILL", SECOND)
    run.expect(f"{SECOND} is down too", {0: want(LEFT, {LEFT})}, parameters.noticed_s)
    run.start_node(FIRST)
    run.expect(f"only {FIRST} is back, unclean election on", {OFFLINE: want(FIRST, {FIRST})}, 20.0)
    bring_back(run, SECOND, f"{SECOND} is back and has truncated")
    acknowledge(run, client, OFFLINE, 1)
    run.check("events that only one replica had", f"{parameters.count}", f"{alone}",
              kept=alone == parameters.count)  # fmt: skip
    run.lost_expected = alone


SCENARIO = Scenario(
    name="two-brokers-down",
    summary="Two of three brokers stop, and come back in different orders.",
    text=(
        "The partition that had both replicas there has no leader; the others go on with one. "
        "If only the first to go returns, it lacks events: the partition stays offline. The last "
        "in the ISR returns: online at once. Both killed at one instant: the ISR keeps its last "
        "member, and that one leads again; with eligible leader replicas it is the one that is "
        "eligible. Controllers inside the brokers: with two of three the quorum is gone, and no "
        "election is held at all. The control turns unclean election on, and the first to go leads."
    ),
    defaults=Parameters(replication_factor=2, min_isr=1),
    parts=(
        Part(name="main", title="Two brokers down", steps=steps),
        Part(
            name="elr",
            title="The same with eligible leader replicas",
            steps=steps,
            change={"elr": True},
        ),
        Part(
            name="combined",
            title="Three voters inside the brokers: the quorum goes with them",
            steps=combined,
            change={"controllers": 3, "combined": True},
        ),
        Control(
            title="Control: unclean election on, and only the first to go is back",
            steps=unclean_return,
            change={"unclean": True, "retries": 0},
        ),
    ),
    fixed=frozenset({"acks", "brokers", "partitions", "replication_factor", "min_isr", "signal"}),
)
