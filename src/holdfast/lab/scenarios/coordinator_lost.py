"""The broker that coordinates a group leaves, dies, and stands still for longer than it may."""

from __future__ import annotations

import time
from functools import partial

from holdfast.clients.blocking_driver import Driver
from holdfast.judge.groups.verdict import Commits
from holdfast.lab.group import Group, silent_since
from holdfast.lab.parameters import Parameters
from holdfast.lab.report import Table
from holdfast.lab.report.scales import duration
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.groups import BATCH, CLASSIC, CONSUMER, LINGER_MS, begin_load, finish
from holdfast.lab.steps.mishaps import must_come
from holdfast.lab.steps.usual import bring_back, elect
from holdfast.lab.steps.wants import whole
from holdfast.lab.workload_processes import Worker

MEMBERS = 3
WAYS = ("TERM", "KILL", "STOP")
GOES_ON = "commits are taken while its coordinator is away"
COMMITS_S = 40.0  # for a commit of each member to be taken by another coordinator
BACK_S = 60.0  # for clients to find one that was away
WORK_MS = 5.0
CATCHES_UP_MS = 1.0  # behind a coordinator that was away for a quarter of a minute
# A broker that stands still keeps its connections. librdkafka waits a minute for an answer.
PATIENCE = "socket.timeout.ms=5000"
ONE_COPY = {"config": {"offsets.topic.replication.factor": "1"}}


def steps(run: Run, protocol: str) -> None:
    """Lose the coordinator in every way; the group goes on with another one."""
    producer = begin_load(run)
    group = group_of(run, "coordinated", protocol, config=PATIENCE)
    rows = [lose(run, group, action, producer) for action in WAYS]
    finish([group], producer)
    run.tables.append(
        Table(
            title="From the coordinator's loss to a commit of every member",
            header=["group", "fault", "commits again after"],
            rows=rows,
            note="Measured, not asserted.",
        )
    )


def group_of(run: Run, name: str, protocol: str, **flags: object) -> Group:
    """Start a group whose members commit all the time."""
    told = {"batch": BATCH, "linger_ms": LINGER_MS, "work_ms": WORK_MS, **flags}
    group = Group(run, f"{name}-{protocol}", protocol, **told)
    group.start_several(MEMBERS)
    return group


def lose(run: Run, group: Group, action: str, producer: Worker) -> list[str]:
    """Hurt the coordinator, wait for commits of every member, and bring it back."""
    run.steady(producer, 1.0)
    node = group.coordinator()
    at_ms = run.fault(action, node)
    took_ms = expect_commits(group, f"SIG{action} of {node}", at_ms)
    group.expect_progress(f"SIG{action} of its coordinator {node}")
    if action == "STOP":
        expect_another(run, group, node)
        run.fault("CONT", node)
        run.expect(f"{node} goes on, and is in sync", whole(run.replicas), 45.0)
        run.steady(producer, 1.0)
    else:
        bring_back(run, node, f"{group.name}: {node} is back after SIG{action}")
    group.expect_progress(f"{node} is back after SIG{action}")
    elect(run)
    return [group.name, f"SIG{action} {node}", "-" if took_ms is None else duration(took_ms)]


def expect_commits(
    group: Group, what: str, since_ms: float, bound_s: float = COMMITS_S
) -> float | None:
    """Check that every member commits again; return how long that took."""
    kept = group.expect_commits(f"{what}: {GOES_ON}", bound_s)
    return time.monotonic() * 1000 - since_ms if kept else None


def expect_another(run: Run, group: Group, node: int) -> None:
    """Check that another broker coordinates the group by now."""
    others = [n for n in run.cluster.broker_ids if n != node]
    addresses = [each.outside_address for each in map(run.cluster.node, others)]
    with Driver(",".join(addresses), "lab") as driver:
        now = group.coordinator(driver)
    run.check(
        f"{group.name}: coordinator while {node} stands still",
        "another broker",
        f"broker {now}",
        kept=now != node,
    )


def only_copy(run: Run, protocol: str) -> None:
    """Control: committed offsets have one copy, and nobody can take over."""
    producer = begin_load(run)
    group = group_of(run, "alone", protocol, work_ms=CATCHES_UP_MS)
    run.steady(producer, 1.0)
    node = group.coordinator()
    run.fault("KILL", node)
    # Long enough for another one to take over. What comes meanwhile has to be processed behind it.
    bound_s = run.parameters.noticed_s
    expect_commits(group, f"SIGKILL of {node}", time.monotonic() * 1000, bound_s)
    bring_back(run, node)
    # Clients take their time to look again: that is no peace yet.
    before = group.commits()
    must_come(run, f"{group.name} to commit again", lambda: not silent_since(before), BACK_S)
    finish([group], producer)


SCENARIO = Scenario(
    name="coordinator-lost",
    summary="The broker that coordinates a group leaves, dies, and stands still.",
    text=(
        "By SIGTERM, by SIGKILL, and by SIGSTOP for longer than its session: each time another "
        "broker leads the group's partition of __consumer_offsets, reads it, and goes on with "
        "the members that there are. What was committed stays committed; nothing is skipped. A "
        "coordinator that has stood still must take no commit any more when it goes on. In the "
        "controls committed offsets have one copy: while that broker is away no commit is taken. "
        "A part and a control for a group of each protocol."
    ),
    defaults=Parameters(commits=Commits.AFTER),
    parts=(
        Part(name="main", title="The classic protocol", steps=partial(steps, protocol=CLASSIC)),
        Part(
            name="consumer",
            title="The consumer protocol",
            steps=partial(steps, protocol=CONSUMER),
        ),
        Part(
            name="control",
            title="Control: one copy of committed offsets, the classic protocol",
            steps=partial(only_copy, protocol=CLASSIC),
            change=ONE_COPY,
            breaks_check=GOES_ON,
        ),
        Part(
            name="consumer-control",
            title="Control: one copy of committed offsets, the consumer protocol",
            steps=partial(only_copy, protocol=CONSUMER),
            change=ONE_COPY,
            breaks_check=GOES_ON,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "min_isr", "replication_factor", "signal"}),
)
