"""C2: two of three brokers go, in turn and both at once; who may lead then, and who may not."""

from __future__ import annotations

from holdfast.judge.history import Acknowledged
from holdfast.judge.verdict import Anomaly
from holdfast.lab.closing import conclude
from holdfast.lab.run import Run
from holdfast.lab.scenario import Parameters, Part, Scenario
from holdfast.lab.wants import want
from holdfast.lab.workload import Worker

FIRST, SECOND, LEFT = 2, 1, 0  # P1's leader, then its other replica; the broker that stays
OFFLINE = 1  # the partition that has both of them


def steps(run: Run) -> None:
    assignment = run.parameters.assignment()
    preferred = {p: want(replicas[0], replicas) for p, replicas in assignment.items()}
    run.make_topic()
    producer = run.start_producer()
    raw = run.start_raw()
    run.start_reader()
    run.must_flow(producer)
    run.must_flow(raw)
    run.steady(producer)

    stop_both_in_turn(run)
    expect_only_others_flow(run, raw, "two brokers are down")

    run.start_node(FIRST)
    run.wait(f"{FIRST} to be live", lambda: FIRST in run.view.brokers, 20.0)
    run.steady(raw, 1.0)
    run.expect(
        f"(a) only {FIRST} is back: it lacks events and must not lead",
        {OFFLINE: want(-1, {SECOND})},
    )
    run.start_node(SECOND)
    run.expect(f"(b) {SECOND} is back: it has everything and leads", {OFFLINE: want(SECOND)}, 15.0)
    whole_again(run, producer, "(b) both are back")

    run.fault("KILL", FIRST, SECOND)
    bound_s = run.parameters.session_s + 15
    run.expect("(c) both killed at one instant", {0: want(LEFT, {LEFT}), 2: want(LEFT, {LEFT})},
               bound_s)  # fmt: skip
    run.expect("(c) both killed at one instant", {OFFLINE: want(-1)}, bound_s)
    stays = set(run.view.partitions[OFFLINE].isr)
    run.check(
        f"P{OFFLINE}, (c) who stays in the ISR",
        "its last member",
        "{" + ",".join(map(str, sorted(stays))) + "}",
        kept=len(stays) == 1 and stays <= {FIRST, SECOND},
    )
    run.start_node(FIRST, SECOND)
    run.expect("(c) both are back", {OFFLINE: want(next(iter(stays), None))}, 20.0)
    whole_again(run, producer, "(c) both are back")
    run.expect("at the end", preferred)
    conclude(run)


def stop_both_in_turn(run: Run) -> None:
    bound_s = run.parameters.session_s + 15
    run.fault("KILL", FIRST)
    run.expect(f"{FIRST} is down", {OFFLINE: want(SECOND, {SECOND})}, bound_s)
    run.fault("KILL", SECOND)
    run.expect(
        f"{FIRST} and {SECOND} are down",
        {0: want(LEFT, {LEFT}), 1: want(-1, {SECOND}), 2: want(LEFT, {LEFT})},
        bound_s,
    )


def expect_only_others_flow(run: Run, raw: Worker, when: str) -> None:
    """Sends to the offline partition fail; nothing else does."""
    before = raw.tail.poll().count(Acknowledged, OFFLINE)
    others = [p for p in run.partitions if p != OFFLINE]
    run.expect_flow(raw, when, 20.0, others)
    run.steady(raw, 1.0)
    acknowledged = raw.tail.poll().count(Acknowledged, OFFLINE) - before
    run.check(
        f"P{OFFLINE}, {when}", "acknowledges nothing", f"{acknowledged}", kept=acknowledged == 0
    )


def whole_again(run: Run, producer: Worker, when: str) -> None:
    assignment = run.parameters.assignment()
    run.expect(when, {p: want(isr=replicas) for p, replicas in assignment.items()}, 45.0)
    run.elect()
    wanted = {p: want(replicas[0], replicas) for p, replicas in assignment.items()}
    run.expect(f"{when}, after a preferred election", wanted)
    run.expect_flow(producer, f"{when}, after a preferred election", 20.0)


def unclean_return(run: Run) -> None:
    """(a) with unclean election: the one who lacks events leads, and they are lost, counted."""
    parameters = run.parameters
    assignment = parameters.assignment()
    run.make_topic()
    client = run.raw_client("producer", acks="all")
    run.acknowledge(client, OFFLINE, parameters.count)
    run.fault("KILL", FIRST)
    wanted = {OFFLINE: want(SECOND, {SECOND})}
    run.expect(f"{FIRST} is down", wanted, parameters.session_s + 15)
    alone = run.acknowledge(client, OFFLINE, parameters.count)
    run.note(f"{alone} events acknowledged by {SECOND} alone")
    run.fault("KILL", SECOND)
    run.expect(f"{SECOND} is down too", {0: want(LEFT, {LEFT})}, parameters.session_s + 15)
    run.start_node(FIRST)
    run.expect(f"only {FIRST} is back, unclean election on", {OFFLINE: want(FIRST, {FIRST})}, 20.0)
    run.start_node(SECOND)
    whole = {p: want(isr=replicas) for p, replicas in assignment.items()}
    run.expect(f"{SECOND} is back and has truncated", whole, 45.0)
    run.acknowledge(client, OFFLINE, 1)
    client.close()
    run.expect_lost(alone)
    run.check("events that only one replica had", f"{parameters.count}", f"{alone}",
              kept=alone == parameters.count)  # fmt: skip
    conclude(run)


SCENARIO = Scenario(
    name="two-brokers-down",
    summary="Two of three brokers stop, and come back in different orders.",
    text=(
        "The partition that had both replicas there has no leader; the others go on with one. "
        "(a) If only the first to go returns, it lacks events: the partition stays offline. "
        "(b) The last in the ISR returns: online at once. (c) Both killed at one instant: the ISR "
        "keeps its last member, and that one leads again. The control turns unclean election on."
    ),
    defaults=Parameters(replication_factor=2, min_isr=1),
    parts=(
        Part(name="main", title="Two brokers down", steps=steps),
        Part(
            name="control",
            title="Control: (a) with unclean election on",
            steps=unclean_return,
            change={"unclean": True, "retries": 0},
            breaks_with=Anomaly.LOST,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "partitions", "replication_factor", "min_isr", "signal"}),
)
