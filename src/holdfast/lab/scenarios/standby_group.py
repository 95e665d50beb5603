"""A group is redeployed: restarted cold, or while a second group, which stands by, goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence

from holdfast.clients.workload.member_sink import Sink
from holdfast.judge.groups.verdict import Commits
from holdfast.lab.group import Group, name_in
from holdfast.lab.parameters import Parameters
from holdfast.lab.report import Table
from holdfast.lab.report.scales import duration
from holdfast.lab.run import WORK_S, Run
from holdfast.lab.scenario import NOBODY, Part, Scenario
from holdfast.lab.steps.group_results import ONCE, expect_once, gaps, rows_of, sink_of
from holdfast.lab.steps.groups import BATCH, CLASSIC, CONSUMER, begin_load, finish

SINK = "output"  # of both groups
MEMBERS = 2
DONE = 4  # records of its batch that the zombie has processed when it is stopped
LINGER_MS = 20


def fenced(run: Run) -> None:
    """The output says who may write: whoever else comes late puts nothing in."""
    redeploy(run, "transaction")


def unfenced(run: Run) -> None:
    """Control: nobody is refused, and a zombie puts its batch in beside that of the others."""
    redeploy(run, "unfenced")


def redeploy(run: Run, mode: str) -> None:
    producer = begin_load(run)
    path = sink_of(run, SINK)
    with Sink(path, mode) as table:
        table.switch(name_in(run, "A"))
    flags = {"sink": path, "sink_mode": mode, "commits": "never", "batch": BATCH,
             "linger_ms": LINGER_MS}  # fmt: skip
    first, second = Group(run, "A", CLASSIC, **flags), Group(run, "B", CONSUMER, **flags)
    first.start_several(MEMBERS)
    for number in range(1, MEMBERS + 1):
        second.start(f"B-{number}")
    first.begin_calm()
    run.steady(producer)
    first.expect_progress("before anything is redeployed")
    first.end_calm()
    cold = restart_cold(run, first, mode)
    run.steady(producer)
    switched = hand_over(run, first, second, mode)
    finish([second], producer)
    first.leave(*first.members)
    expect_once(second, rows_of(run, SINK, mode), "of both groups")
    run.tables.append(gap_table({"A restarted cold": cold, "B switched on": switched}))


def restart_cold(run: Run, group: Group, mode: str) -> dict[int, float]:
    """End all members and start others; return the longest gap in each partition's output."""
    run.note("A is restarted cold")
    at_ms = time.monotonic() * 1000
    group.leave(*group.members)
    group.start_several(MEMBERS, "A-again")
    group.expect_progress("it was restarted cold")
    return gaps(rows_of(run, SINK, mode), at_ms)


def hand_over(run: Run, first: Group, second: Group, mode: str) -> dict[int, float]:
    """Switch the second group on while a member of the first stands still, and let that go on."""
    zombie = first.members[0]
    held = first.hold({zombie: DONE})[zombie]
    first.fault("STOP", zombie)
    wanted = zombie.told.processed.total() + held.left
    run.note("B is switched on")
    with Sink(sink_of(run, SINK), mode) as table:
        at_ms = table.switch(name_in(run, "B"))
    second.wait_shared()
    second.expect_progress("B was switched on")
    found = gaps(rows_of(run, SINK, mode), at_ms)
    first.let_go(zombie)
    first.fault("CONT", zombie)
    # What it has held back it does, and then it tries to put that in.
    run.wait(f"{zombie.name} to go on", lambda: zombie.told.processed.total() >= wanted, WORK_S)
    if mode == "transaction":
        refused = run.soon(lambda: zombie.told.results_refused > 0, WORK_S)
        seen = "it puts nothing in" if refused else "it was not refused"
        run.check(f"{zombie.name} goes on", "it puts nothing in", seen, kept=refused, late=True)
    return found


def gap_table(found: dict[str, dict[int, float]]) -> Table:
    partitions: Sequence[int] = sorted({p for each in found.values() for p in each})
    return Table(
        title="The longest time without output",
        header=["redeployed", *(f"P{partition}" for partition in partitions)],
        rows=[
            [name, *(duration(each[p]) if p in each else "-" for p in partitions)]
            for name, each in found.items()
        ],
        note=(
            "Measured, not asserted: from a partition's last result of whoever wrote before to its "
            "first of whoever goes on. A cold start is that of a Python process."
        ),
    )


SCENARIO = Scenario(
    name="standby-group",
    summary="A group is redeployed: restarted cold, or while a second group goes on.",
    text=(
        "Group A reads, and puts results into a table together with the offsets behind them. "
        "First it is restarted cold: the output stands still while its members start and join. "
        "Then group B, which has joined and stands by, is switched on, by one row of that table; "
        "a member of A stands still in a batch just then, goes on as a zombie when B has gone "
        "past it, and is refused. Each result is there once, of both groups together. In the "
        "control the table refuses nobody: the zombie's batch is there twice."
    ),
    defaults=Parameters(commits=Commits.AFTER),
    parts=(
        Part(name="main", title="The output says who may write", steps=fenced, hurts=NOBODY),
        Part(
            name="control",
            title="Control: nobody is refused",
            steps=unfenced,
            hurts=NOBODY,
            breaks_check=ONCE,
        ),
    ),
    fixed=frozenset({"acks", "signal"}),
    least={"partitions": MEMBERS},
)
