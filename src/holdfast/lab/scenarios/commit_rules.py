"""When members of a group commit says what a crash costs: repeats, or records that nobody did."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.judge.groups.verdict import Commits, GroupAnomaly
from holdfast.lab.group import Group
from holdfast.lab.group_members import NO_MEMBER, Held, Member
from holdfast.lab.parameters import Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenario import NOBODY, Part, Scenario
from holdfast.lab.steps.groups import (
    CLASSIC,
    CONSUMER,
    begin_load,
    both,
    finish,
    kill_in_batch,
    repeats,
)
from holdfast.lab.workload_processes import Worker

DONE = 4  # records of its batch that a member has processed when it is killed
MANY = 100_000
# How long a batch takes who is slow, in sessions. A member of the consumer protocol that is silent
# for max.poll.interval.ms only stops its heartbeats, and is thrown out a session later.
SLOW = 1.8
SLOW_BATCH = 10
POLL_MS = (
    2000  # max.poll.interval.ms of slow ones; of classic ones it is no shorter than the session
)
COMMIT_S = 20.0  # for a client to commit by itself


def steps(run: Run) -> None:
    """Commit after processing: killed in the middle of a batch, its records are done again."""
    producer = begin_load(run)
    groups = both(run, "after")
    held = crash(groups, begin(groups))
    begun = [from_the(run, reset, producer) for reset in ("earliest", "latest")]
    finish([*groups, *begun], producer)
    run.groups_expected = {"repeated": repeats(sum(each.done for each in held), groups, 2)}


def begin(groups: Sequence[Group]) -> list[Member]:
    """Let three members share each group's partitions; return the last one of each."""
    for group in groups:
        group.start_several(2)
    last = [group.start(f"{group.name}-3") for group in groups]
    for group in groups:
        group.wait_shared()
    return last


def crash(groups: Sequence[Group], victims: Sequence[Member]) -> list[Held]:
    """Kill a member of each group in the middle of a batch; the others have to go on."""
    places = {g: {v: DONE} for g, v in zip(groups, victims, strict=True)}
    held = kill_in_batch(places, leaving=True)
    for group in groups:
        group.wait_shared()
        group.expect_progress("a member was killed in its batch")
    return held


def from_the(run: Run, reset: str, producer: Worker) -> Group:
    """Let a group begin that has committed nothing."""
    ends = dict(producer.tail.poll().ends)
    group = Group(run, f"from-{reset}", CLASSIC, reset=reset, batch=100)
    (member,) = group.start_several(1)
    begun = member.told.begun
    if reset == "earliest":
        kept = not any(begun.values())
        expected = "it begins at 0, and reads all again"
    else:
        kept = all(begun[p] >= end for p, end in ends.items())
        expected = f"it begins at {list(ends.values())} or later, and passes over what is there"
    seen = f"it begins at {[begun[p] for p in run.partitions]}"
    run.check(f"nothing is committed, auto.offset.reset={reset}", expected, seen, kept=kept)
    return group


# -- slow processing -------------------------------------------------------------------------------


def slow(run: Run) -> None:
    """Work for longer than a member may be silent: with polls meanwhile, and without."""
    producer = begin_load(run)
    groups = [*both(run, "polls"), *both(run, "does-not-poll")]
    for group in groups:
        group.start_several(1)
    members = [start_slow(group, pause=group in groups[:2]) for group in groups]
    for group, member in zip(groups[:2], members[:2], strict=True):
        expect_stays(group, member)
    for group, member in zip(groups[2:], members[2:], strict=True):
        expect_thrown_out(group, member)
    finish(groups, producer)


def start_slow(group: Group, *, pause: bool) -> Member:
    """Start a member whose batches take longer than max.poll.interval.ms."""
    member = group.start(
        f"{group.name}-slow",
        batch=SLOW_BATCH,
        work_ms=SLOW * group.session_ms / SLOW_BATCH,
        max_poll_ms=POLL_MS if group.protocol == CONSUMER else group.session_ms,
        **({"pause": True} if pause else {}),
    )
    if not pause:
        group.note_fault("SLOW", member)
    return member


def batch_s(group: Group) -> float:
    """Return a bound for the batch of a slow one, on a slow machine."""
    return 2 * SLOW * group.session_ms / 1000 + 30


def expect_stays(group: Group, member: Member) -> None:
    """Check that who polls while it works keeps its partitions, and may commit."""
    run = group.run
    committed = run.soon(lambda: member.told.commits > 0, batch_s(group))
    told = member.told
    run.check(
        f"{member.name} works for longer than max.poll.interval.ms, and polls meanwhile",
        "it gives nothing up, and commits",
        f"gave up {told.revocations} partitions; commits: {told.commits} acknowledged, "
        f"refused: {dict(told.refusals) or 'none'}",
        kept=committed and not told.revocations and not told.refusals,
        late=True,  # who is starved does not poll in time, either
    )
    group.leave(member)


def expect_thrown_out(group: Group, member: Member) -> None:
    """Check that who does not poll loses its partitions, and that its late commit is refused."""
    run = group.run
    run.soon(lambda: bool(member.told.in_vain), batch_s(group))
    told = member.told
    run.check(
        f"{member.name} works for longer than max.poll.interval.ms, and does not poll",
        f"it is thrown out, and its late commit is refused: {', '.join(sorted(NO_MEMBER))}",
        f"commits: {told.commits} acknowledged, refused: {dict(told.in_vain) or 'none'}",
        kept=not told.commits and not NO_MEMBER.isdisjoint(told.in_vain),
        late=not told.commits,
    )
    group.fault("KILL", member)
    group.wait_shared()


# -- the controls ----------------------------------------------------------------------------------


def before(run: Run) -> None:
    """Control: committed before it is processed, what is left of a batch is done by nobody."""
    producer = begin_load(run)
    groups = both(run, "before")
    held = crash(groups, begin(groups))
    finish(groups, producer)
    left = sum(each.left for each in held)
    run.groups_expected = {"skipped": (left, left)}


def automatic(run: Run) -> None:
    """Control: the client commits by itself, whatever of it was processed by then."""
    producer = begin_load(run)
    groups = both(run, "automatic")
    victims = begin(groups)
    held = [g.hold({v: DONE}, leaving=True)[v] for g, v in zip(groups, victims, strict=True)]
    for group, victim in zip(groups, victims, strict=True):
        run.wait("a client to commit by itself", lambda: is_ahead(group, victim), COMMIT_S)  # noqa: B023 - called at once
        group.fault("KILL", victim)
    for group in groups:
        group.wait_shared()
        again = group.members[0]
        group.hold({again: 2 * DONE}, leaving=True)
        group.fault("KILL", again)
        group.wait_shared()
        group.expect_progress("a member was killed in its batch")
    finish(groups, producer)
    left = sum(each.left for each in held)
    run.groups_expected = {"skipped": (left, MANY), "repeated": (0, MANY)}


def is_ahead(group: Group, member: Member) -> bool:
    """Whether more is committed of all that a member owns than it has processed."""
    committed, told = group.committed(), member.told
    return any(committed.get(p, 0) > told.positions.get(p, told.begun[p]) for p in told.begun)


SCENARIO = Scenario(
    name="commit-rules",
    summary="Members of a group are killed in the middle of a batch, or are too slow.",
    text=(
        "Members that commit what they have processed lose nothing: whoever takes over does again "
        "what was not committed, and no more. Who works for longer than max.poll.interval.ms is "
        "thrown out, and its late commit is refused; who polls meanwhile, with its partitions "
        "paused, stays. A group that has committed nothing begins at the earliest record or at "
        "the latest, as it was told. The controls commit before they process, and by themselves: "
        "what was committed and not processed when a member was killed, nobody does. All of it "
        "in both protocols of groups."
    ),
    defaults=Parameters(commits=Commits.AFTER),
    parts=(
        Part(name="main", title="Commit after processing", steps=steps, hurts=NOBODY),
        Part(name="slow", title="Slow processing", steps=slow, hurts=NOBODY),
        Part(
            name="automatic",
            title="Control: enable.auto.commit",
            steps=automatic,
            hurts=NOBODY,
            change={"commits": Commits.AUTOMATIC},
            breaks_group=GroupAnomaly.SKIPPED,
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
)
