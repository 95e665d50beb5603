"""Every consumer of a group is restarted in turn, and so is the producer."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.judge.groups.verdict import Commits
from holdfast.judge.history import Acknowledged, Refused, Send, Unknown
from holdfast.lab.group import Group
from holdfast.lab.group_members import Member
from holdfast.lab.parameters import Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenario import NOBODY, Part, Scenario
from holdfast.lab.steps.groups import BATCH, begin_load, both, finish
from holdfast.lab.workload_processes import Worker

MEMBERS = 3
COMMIT_EVERY = 5  # batches: so that there is something to commit when a member leaves
WORK_MS = 8.0  # so that members are mostly in the middle of a batch
REPEATED = "records of groups: repeated"
NO_REBALANCE = "static membership: nobody else is given anything or gives anything up"


def graceful(run: Run) -> None:
    """Consumers commit what they have done, and leave: nothing is done twice."""
    roll_gracefully(run, careless=False)


def careless(run: Run) -> None:
    """Control: they leave without a commit."""
    roll_gracefully(run, careless=True)


def roll_gracefully(run: Run, *, careless: bool) -> None:
    producer = begin_load(run)
    flags = {"careless": True} if careless else {}
    groups = both(run, "rolled", commit_every=COMMIT_EVERY, **flags)
    for group in groups:
        group.start_several(MEMBERS)
    for number in range(MEMBERS):
        run.steady(producer, 1.0)
        leaving = [group.members[0] for group in groups]
        for group, member in zip(groups, leaving, strict=True):
            group.leave(member)
        for group, member in zip(groups, leaving, strict=True):
            group.start(f"{group.name}-{number + 1}-again")
            group.wait_shared()
            group.expect_progress(f"{member.name} was replaced")
    finish(groups, producer)
    run.groups_expected = {"repeated": (0, 0)}


def killed(run: Run) -> None:
    """Consumers and producers are killed: done again is what was not committed, at most."""
    producer = begin_load(run)
    groups = both(run, "killed", work_ms=WORK_MS)
    for group in groups:
        group.start_several(MEMBERS)
    for number in range(MEMBERS):
        run.steady(producer, 1.0)
        victims = [group.members[0] for group in groups]
        for group, member in zip(groups, victims, strict=True):
            group.fault("KILL", member)
            group.start(f"{group.name}-{number + 1}-again")
        producer = replace_producer(run, producer, number + 2)
        for group, member in zip(groups, victims, strict=True):
            group.wait_shared()
            group.expect_progress(f"{member.name} was replaced")
    finish(groups, producer)
    run.groups_expected = {"repeated": (0, BATCH * MEMBERS * len(groups))}


def replace_producer(run: Run, producer: Worker, number: int) -> Worker:
    """Kill a producer, and start the next; check that only what was in flight has no outcome."""
    run.note(f"SIGKILL of {producer.name}")
    producer.kill()
    tail = producer.tail.poll()
    outcomes = sum(tail.count(kind) for kind in (Acknowledged, Refused, Unknown))
    left, sent = tail.count(Send) - outcomes, tail.count(Send)
    most = max(20, int(run.parameters.rate))  # what it sends in a second
    run.check(
        f"{producer.name} was killed",
        f"at most {most} of its sends are without an outcome",
        f"{left} of {sent}",
        kept=left <= most,
        late=True,
    )
    following = run.start_producer(f"producer-{number}")
    run.must_flow(following)
    return following


def static(run: Run) -> None:
    """Members with an instance of their own are restarted within their session: no rebalance."""
    producer = begin_load(run)
    groups = both(run, "static", commit_every=COMMIT_EVERY)
    for group in groups:
        for number in range(1, MEMBERS + 1):
            group.start(f"{group.name}-{number}", instance=f"i{number}")
        group.wait_shared()
    for number in range(1, MEMBERS + 1):
        run.steady(producer, 1.0)
        for group in groups:
            restart_static(group, f"i{number}", number)
    finish(groups, producer)
    run.groups_expected = {"repeated": (0, 0)}


def restart_static(group: Group, instance: str, number: int) -> None:
    """Restart one member, and check that the others notice nothing."""
    member = group.members[0]
    others = group.members[1:]
    owned = set(member.told.begun)
    before = moves_of(others)
    group.leave(member)
    again = group.start(f"{group.name}-{number}-again", instance=instance)
    group.wait_shared()
    seen = moves_of(others)
    group.run.check(
        f"{NO_REBALANCE}: {again.name}",
        f"it has {sorted(owned)} again, and the others are told nothing",
        f"it has {sorted(again.told.begun)}; the others: "
        + ("nothing" if seen == before else "given or given up something"),
        kept=set(again.told.begun) == owned and seen == before,
    )
    group.expect_progress(f"{again.name} is back")


def moves_of(members: Sequence[Member]) -> list[tuple[int, int, int]]:
    """Return of each how often it was given something, gave something up, and its epoch."""
    return [(m.told.assignments, m.told.revocations, m.told.epoch) for m in members]


SCENARIO = Scenario(
    name="rolling-clients",
    summary="Every consumer of a group is restarted in turn, and so is the producer.",
    text=(
        "Consumers that are asked to end commit what they have done and leave: others go on "
        "there, and no record is processed twice. Killed ones are replaced, and what they had "
        "done and not committed is done again, no more; of a killed producer only what was in "
        "flight is left without an outcome. Members with a group.instance.id come back to their "
        "own partitions within their session, and no other member notices. The control leaves "
        "without committing, and its records are processed again. All of it in both protocols "
        "of groups."
    ),
    defaults=Parameters(commits=Commits.AFTER),
    parts=(
        Part(name="main", title="Asked to leave", steps=graceful, hurts=NOBODY),
        Part(name="killed", title="Killed", steps=killed, hurts=NOBODY),
        Part(name="static", title="Static membership", steps=static, hurts=NOBODY),
        Part(
            name="control",
            title="Control: leaving without a commit",
            steps=careless,
            hurts=NOBODY,
            breaks_check=REPEATED,
        ),
    ),
    fixed=frozenset({"acks", "signal"}),
)
