"""What scenarios of groups do at one time or another, with both protocols at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.lab.group import Group
from holdfast.lab.group_members import Held, Member
from holdfast.lab.run import Run
from holdfast.lab.workload_processes import Worker

CLASSIC, CONSUMER = PROTOCOLS = ("classic", "consumer")
BATCH = 10  # records that members process between two commits
LINGER_MS = 300  # so that batches are full at the lab's rates


def begin_load(run: Run) -> Worker:
    """Make the topic, and let records flow into every partition."""
    run.make_topic()
    producer = run.start_producer()
    run.must_flow(producer)
    return producer


def both(run: Run, name: str, **flags: object) -> list[Group]:
    """Make a group of each protocol; they share what is done to the cluster, and nothing else."""
    told = {"batch": BATCH, "linger_ms": LINGER_MS, **flags}
    return [Group(run, f"{name}-{protocol}", protocol, **told) for protocol in PROTOCOLS]


def kill_in_batch(
    victims: Mapping[Group, Mapping[Member, int]], *, leaving: bool = False
) -> list[Held]:
    """Kill members of each group while they have processed so many records of a batch.

    `leaving`: and more of it are left.
    """
    held = [
        one
        for group, those in victims.items()
        for one in group.hold(those, leaving=leaving).values()
    ]
    for group, those in victims.items():
        group.fault("KILL", *those)
    return held


def repeats(done: int, groups: Iterable[Group], rebalances: int) -> tuple[int, int]:
    """Return how many records are done again: `done` of killed members, and not many more.

    A commit that meets a rebalance may be refused: a batch of each member each time, at most.
    """
    members = sum(len(group.all) for group in groups)
    return done, done + BATCH * members * rebalances


def finish(groups: Iterable[Group], producer: Worker) -> None:
    """End the groups of a run: peace, no more records, all of them processed, everybody leaves."""
    several = list(groups)
    run = several[0].run
    run.note("the groups are left in peace")
    for group in several:
        group.begin_calm()
    run.steady(producer)
    for group in several:
        group.expect_progress("in peace")
        if group.waits_for_commits:
            group.expect_commits("in peace: commits are taken")
    producer.stop()
    for group in several:
        group.wait_processed(producer)
        group.end_calm()
    for group in several:
        group.leave(*group.members)
        group.wait_looked()


def retire(group: Group, producer: Worker) -> None:
    """End one group while others of the run are still to come: some peace, and everybody leaves."""
    group.begin_calm()
    group.run.steady(producer)
    group.expect_progress("in peace")
    group.end_calm()
    group.leave(*group.members)
    group.wait_looked()
