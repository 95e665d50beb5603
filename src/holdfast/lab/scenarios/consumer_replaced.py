"""Consumers die between a record's result and its commit, at fifty moments, and are replaced."""

from __future__ import annotations

from functools import partial

from holdfast.judge.groups.verdict import Commits, GroupAnomaly
from holdfast.lab.group import Group, name_in
from holdfast.lab.parameters import Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenario import NOBODY, Part, Scenario
from holdfast.lab.steps.group_results import ONCE, expect_once, rows_of, sink_of
from holdfast.lab.steps.groups import BATCH, PROTOCOLS, begin_load, finish, kill_in_batch, repeats

SURVIVORS = 2
VICTIMS = 5  # of each group, in each round
SINK_ROUNDS = 2
LINGER_MS = 1000
REBALANCES = 2  # in a round, that a victim sees; and survivors see some more


def manual(run: Run) -> None:
    """Commit after processing: none is missed, and what is repeated is within a batch."""
    groups = groups_of(run, "manual")
    done, _left = replace_often(run, groups, run.parameters.kills)
    run.groups_expected = {"repeated": repeats(done, groups, REBALANCES)}


def with_results(run: Run, mode: str, commits: str, rounds: int | None = None) -> None:
    """Put results into a table as `mode` says: each is there once, however often it was made."""
    groups = groups_of(run, mode, mode=mode, commits=commits)
    done, _left = replace_often(run, groups, rounds or SINK_ROUNDS)
    for group in groups:
        expect_once(group, rows_of(run, group.name, mode))
    run.groups_expected = {"repeated": repeats(done, groups, REBALANCES)}


def before(run: Run) -> None:
    """Control: commit before processing: what was left of each batch is done by nobody."""
    _done, left = replace_often(run, groups_of(run, "before"), 1)
    run.groups_expected = {"skipped": (left, left)}


def groups_of(run: Run, name: str, mode: str = "", **flags: object) -> list[Group]:
    """Make a group of each protocol, whose results go into a table of its own."""
    told = {"batch": BATCH, "linger_ms": LINGER_MS, **flags}
    groups = []
    for protocol in PROTOCOLS:
        whole = name_in(run, f"{name}-{protocol}")
        sink = {"sink": sink_of(run, whole), "sink_mode": mode} if mode else {}
        groups.append(Group(run, whole, protocol, **told, **sink))
    return groups


def replace_often(run: Run, groups: list[Group], rounds: int) -> tuple[int, int]:
    """Kill consumers at one moment of a batch after the other, and replace them.

    Return how many records they had processed of those batches, and how many they had not.
    """
    producer = begin_load(run)
    for group in groups:
        group.start_several(SURVIVORS)
    done = left = 0
    for number in range(1, rounds + 1):
        victims = {
            group: [group.start(f"{group.name}-{number}-{n}") for n in range(VICTIMS)]
            for group in groups
        }
        for group in groups:
            group.wait_shared()
        moments = {
            group: {member: moment(number, n) for n, member in enumerate(those)}
            for group, those in victims.items()
        }
        for held in kill_in_batch(moments):
            done, left = done + held.done, left + held.left
        for group in groups:
            group.wait_shared()
            group.expect_progress(f"round {number}: {VICTIMS} members were killed")
    finish(groups, producer)
    return done, left


def moment(round_number: int, victim: int) -> int:
    """Return how many records of its batch a victim has processed: each moment comes in turn."""
    return ((round_number - 1) * VICTIMS + victim) % (BATCH + 1)


SCENARIO = Scenario(
    name="consumer-replaced",
    summary="Consumers die between a record's result and its commit, and others take over.",
    text=(
        "Five rounds, in each of which five members of a group of either protocol are killed, "
        "each with another number of records of its batch processed and none of them committed: "
        "fifty moments. With manual commits no record is missed, and what was not committed is "
        "done again. Where the result and the offset behind it are one transaction, and the next "
        "owner begins at that offset, or where results are told apart by a key of their own, "
        "each is there once. One control puts results in as they come: those of records that are "
        "done again are there twice. The other commits before it processes: what was left of the "
        "batches is done by nobody."
    ),
    defaults=Parameters(commits=Commits.AFTER, partitions=9, rate=400.0, kills=5),
    parts=(
        Part(name="main", title="Manual commits", steps=manual, hurts=NOBODY),
        Part(
            name="transaction",
            title="Result and offset in one transaction",
            steps=partial(with_results, mode="transaction", commits="never"),
            hurts=NOBODY,
        ),
        Part(
            name="key",
            title="Results told apart by their key",
            steps=partial(with_results, mode="key", commits="after"),
            hurts=NOBODY,
        ),
        Part(
            name="plain",
            title="Control: results as they come",
            steps=partial(with_results, mode="plain", commits="after", rounds=1),
            hurts=NOBODY,
            breaks_check=ONCE,
        ),
        Part(
            name="control",
            title="Control: commit before processing",
            steps=before,
            hurts=NOBODY,
            change={"commits": Commits.BEFORE},
            breaks_group=GroupAnomaly.SKIPPED,
        ),
    ),
    fixed=frozenset({"acks", "signal"}),
    least={"partitions": SURVIVORS + VICTIMS},
)
