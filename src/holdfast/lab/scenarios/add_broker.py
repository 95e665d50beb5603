"""A broker is added, partitions are moved to it under load, and it is killed meanwhile."""

from __future__ import annotations

from holdfast.lab.parameters import Parameters
from holdfast.lab.run import WORK_S, Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.closing import end_of
from holdfast.lab.steps.moving import Mover, expect_even, share_table
from holdfast.lab.steps.usual import (
    elect,
    elect_preferred,
    expect_same_replicas,
    preload,
    start_clients,
)
from holdfast.lab.steps.wants import lists_text, names, whole
from holdfast.lab.workload_processes import Worker

NEW = 3
PRELOAD_EVENTS = 15_000
SLOW = 200_000  # bytes a second: the moves are still under way when they are disturbed
FAST = 50_000_000
EVEN = "load is even"


def steps(run: Run) -> None:
    """Move with a throttle, kill the new broker in the middle, call back, and move for good."""
    producer = with_a_new_broker(run)
    old, target = before(run), run.parameters.assignment()
    mover = Mover(run)
    mover.begin(target, rate=SLOW)
    run.wait("the new broker to hold something", lambda: copied(run) > 0, WORK_S)
    run.fault("KILL", NEW)
    had = copied(run)
    run.expect_flow(producer, f"{NEW} is down in the middle of the moves", 20.0)
    moving = mover.moving()
    run.check(
        f"{NEW} is down in the middle of the moves",
        "they are still under way",
        f"{names(moving)} under way" if moving else "none is",
        kept=bool(moving),
    )
    expect_in_sync(run, old, f"{NEW} is down in the middle of the moves")
    run.start_node(NEW)
    run.wait("it to go on copying", lambda: copied(run) > had, WORK_S)

    called_back = mover.cancel()
    mover.wait()
    expect_replicas(run, "the moves were called back", {p: old[p] for p in called_back})
    run.expect_flow(producer, "the moves were called back", 20.0)

    mover.begin(target, rate=SLOW)
    mover.set_rate(FAST)
    mover.wait()
    expect_replicas(run, "the moves are done", target)
    run.expect("the moves are done", whole(target), 45.0)
    elect_preferred(run, producer)
    run.tables.append(share_table(run, "Who holds and leads how many partitions at the end"))
    expect_even(run, f"{EVEN} at the end")
    run.steady(producer, 1.0)


def nothing_moves(run: Run) -> None:
    """Nobody reassigns: no replica is ever moved by itself."""
    producer = with_a_new_broker(run)
    elect(run)
    run.steady(producer)
    expect_same_replicas(run, f"{NEW} is there")
    expect_even(run, f"{EVEN} at the end")


def before(run: Run) -> dict[int, tuple[int, ...]]:
    """Where replicas are at first: in rings over all brokers but the new one."""
    copies = range(run.parameters.replication_factor)
    return {p: tuple((p + 1 - place) % NEW for place in copies) for p in run.partitions}


def with_a_new_broker(run: Run) -> Worker:
    """Make the topic on three brokers, load it, and start the fourth."""
    run.make_topic(before(run))
    run.fault("TERM", NEW)
    preload(run, PRELOAD_EVENTS)
    producer = start_clients(run).producer
    run.start_node(NEW)
    run.note(f"broker {NEW} has come, and holds nothing")
    return producer


def copied(run: Run) -> int:
    """How many events the new broker has on its disk."""
    return sum(max(0, end_of(run, NEW, partition)) for partition in run.partitions)


def expect_in_sync(run: Run, replicas: dict[int, tuple[int, ...]], when: str) -> None:
    """Check that those who held a partition before its move are still in sync."""
    view = run.view.partitions
    missing = [p for p, nodes in replicas.items() if not set(nodes) <= set(view[p].isr)]
    run.check(
        f"the ISR, {when}",
        "all who held the partition before",
        f"not so in {names(missing)}" if missing else "all who held the partition before",
        kept=not missing,
    )


def expect_replicas(run: Run, when: str, replicas: dict[int, tuple[int, ...]]) -> None:
    """Check that these partitions come to have exactly these replicas."""

    def seen() -> dict[int, tuple[int, ...]]:
        return {p: tuple(run.view.partitions[p].replicas) for p in replicas}

    reached = run.soon(
        lambda: all(set(nodes) == set(replicas[p]) for p, nodes in seen().items()), WORK_S
    )
    run.check(
        f"replicas, {when}", lists_text(replicas), lists_text(seen()), kept=reached, late=True
    )


SCENARIO = Scenario(
    name="add-broker",
    summary="A fourth broker comes, and partitions are moved to it under load, with disturbances.",
    text=(
        "With a throttle, so that clients don't suffer. In the middle the new broker is killed: "
        "clients notice nothing, and the moves wait for it. They are called back, and every "
        "partition is where it was. The second time they come to their end, the throttle is "
        "lifted meanwhile, and replicas and leaders are spread evenly; nothing is lost. In the "
        "control nobody reassigns, and the new broker idles: no copy is made by itself."
    ),
    defaults=Parameters(brokers=NEW + 1, partitions=6),
    parts=(
        Part(name="main", title="Partitions are moved to the new broker", steps=steps),
        Part(
            name="control",
            title="Control: nobody reassigns",
            steps=nothing_moves,
            breaks_check=EVEN,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "partitions", "replication_factor", "signal"}),
)
