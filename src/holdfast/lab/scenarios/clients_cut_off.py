"""Clients are cut off from the cluster, for less and for more than they wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from holdfast.judge.groups.verdict import Commits
from holdfast.judge.history import Acknowledged, Refused, Send, Unknown
from holdfast.judge.verdict import Anomaly
from holdfast.lab.group import Group
from holdfast.lab.group_members import NO_MEMBER, Member
from holdfast.lab.parameters import Parameters
from holdfast.lab.run import WORK_S, Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.steps.groups import begin_load, both, finish, repeats
from holdfast.lab.steps.wants import whole
from holdfast.lab.workload_processes import Worker

# What clients do by themselves once they have given up.
DOUBLED = frozenset({Anomaly.DUPLICATED})
DOUBLED_BECAUSE = (
    "Once records have timed out, librdkafka goes on in another producer epoch, and sends again "
    "what was on its way: what is doubled by that is counted."
)
SHORT_S = 2.0  # less than any session, and than any client waits
DELIVERY_MS = 4000  # of the producer that is cut off for longer
LONG_S = 8.0
QUEUE = 400  # records that it keeps at most
LEAST_RATE = 100  # fills it meanwhile, twice
MEMBERS = 3  # of each group, each with something
QUEUE_WAIT_S = 0.2
DONE = 4  # records of its batch that a member has processed when it is stopped
REBALANCES = 4  # the victim is out, and back; the brokers stand still, and go on
SESSION_LEAST = 0.75  # of it: the last heartbeat may have come a tenth of it before


def shorter(run: Run) -> None:
    """Cut off for less than they wait: nobody outside notices anything."""
    producer = begin_load(run)
    groups = both(run, "short")
    for group in groups:
        group.start_several(2)
    stopped = [group.members[0] for group in groups]
    before, since = [told(group) for group in groups], run.starvation.mark()
    for group, member in zip(groups, stopped, strict=True):
        group.fault("STOP", member)
    run.steady_view(SHORT_S)  # that nothing happens can only be watched
    for group, member in zip(groups, stopped, strict=True):
        group.fault("CONT", member)
        group.expect_progress(f"{member.name} stood still for {SHORT_S:g} s")
    with brokers_stopped(run, groups):
        run.steady_view(SHORT_S)
    for group, then in zip(groups, before, strict=True):
        group.expect_progress(f"the brokers stood still for {SHORT_S:g} s")
        run.check(
            f"{group.name}: rebalances", "none", "none" if told(group) == then else "some",
            kept=told(group) == then, late=since,  # who is starved is taken for gone
        )  # fmt: skip
    finish(groups, producer)
    expect_reported(run, producer, is_short=True)


def told(group: Group) -> list[tuple[int, int]]:
    """Return how often each member was given anything, and gave anything up."""
    return [(each.told.assignments, each.told.revocations) for each in group.members]


@contextmanager
def brokers_stopped(run: Run, groups: Sequence[Group]) -> Iterator[None]:
    """Cut all clients off: every broker stands still meanwhile, and all are in sync again."""
    members = [(group, member) for group in groups for member in group.members]
    for group, member in members:
        group.note_fault("CUT", member)
    run.fault("STOP", *run.cluster.broker_ids)
    yield
    run.fault("CONT", *run.cluster.broker_ids)
    for group, member in members:
        group.note_fault("HEAL", member)
    run.expect("the brokers go on", whole(run.replicas), run.parameters.noticed_s + 30)


def expect_reported(run: Run, producer: Worker, *, is_short: bool) -> None:
    """Check what a producer, which has ended, was told, and what its full queue refused."""
    expect_told(run, producer, all_acknowledged=is_short)
    if is_short:
        return
    errors = producer.tail.poll().errors
    full = sum(count for (error, _), count in errors.items() if error == "_QUEUE_FULL")
    run.check(
        "its queue was full", "records are refused by the client", f"{full} of them", kept=full > 0
    )


def expect_told(run: Run, producer: Worker, *, all_acknowledged: bool) -> None:
    """Check what a producer, which has ended, was told of all that it sent."""
    sent, acknowledged, refused, unknown = tally(producer)
    whole = sent == acknowledged + refused + unknown
    seen = f"{sent} sent: {acknowledged} acknowledged, {refused} refused, {unknown} unknown"
    if all_acknowledged:
        wanted, kept = "each is acknowledged", sent == acknowledged
    else:
        wanted, kept = "an outcome of each, some in doubt", whole and unknown > 0
    run.check(f"what {producer.name} was told", wanted, seen, kept=kept and sent > 0)


def tally(producer: Worker) -> tuple[int, int, int, int]:
    """Return how many records a producer has sent, and how many came to each end."""
    tail = producer.tail.poll()
    sent, acknowledged = tail.count(Send), tail.count(Acknowledged)
    return sent, acknowledged, tail.count(Refused), tail.count(Unknown)


def longer(run: Run) -> None:
    """Cut off for more than they wait: what is not acknowledged is told, what was not done is."""
    run.make_topic()
    producer = run.start_producer(
        delivery_timeout_ms=DELIVERY_MS,
        queue_wait=QUEUE_WAIT_S,
        config=f"queue.buffering.max.messages={QUEUE}",
    )
    run.must_flow(producer)
    groups = both(run, "long")
    for group in groups:
        group.start_several(2)
    victims = [group.start(f"{group.name}-stopped") for group in groups]
    for group in groups:
        group.wait_shared()
    done = cut_members(run, groups, victims)
    with brokers_stopped(run, groups):
        run.steady_view(LONG_S)
    run.expect_flow(producer, "the brokers go on", 30.0)
    for group in groups:
        group.wait_shared()
        group.expect_progress(f"the brokers stood still for {LONG_S:g} s")
    finish(groups, producer)
    expect_reported(run, producer, is_short=False)
    run.groups_expected = {"repeated": repeats(done, groups, REBALANCES)}


def cut_members(run: Run, groups: Sequence[Group], victims: Sequence[Member]) -> int:
    """Stop a member of each group in its batch, until others have its partitions, and a bit on.

    Return how many records they had processed of those batches.
    """
    pairs = list(zip(groups, victims, strict=True))
    held = [group.hold({victim: DONE})[victim] for group, victim in pairs]
    in_vain = {victim: victim.told.in_vain for victim in victims}
    stopped_ms = [group.fault("STOP", victim) for group, victim in pairs]
    for (group, victim), at_ms in zip(pairs, stopped_ms, strict=True):
        others = [each for each in group.members if each is not victim]
        group.wait_shared(others)
        expect_session(group, victim, at_ms)
        group.expect_progress(f"{victim.name} stands still, and its session is over")
    for group, victim in pairs:
        group.let_go(victim)
        group.fault("CONT", victim)
    for group, victim in pairs:
        expect_late_commit_refused(run, victim, in_vain[victim])
        group.wait_shared()
    return sum(each.done for each in held)


def expect_session(
    group: Group,
    victim: Member,
    stopped_ms: float,
    why: str = "stands still",
    owned: Collection[int] | None = None,
) -> None:
    """Check that nobody was given what a silent member owns before its session was over.

    `owned`: what it had when it fell silent; None: it has that still.
    """
    had = set(victim.told.begun if owned is None else owned)
    given = [
        member.told.begun_ms[p]
        for member in group.members
        for p in had & member.told.begun.keys()
        if member is not victim
    ]
    least_ms = SESSION_LEAST * group.session_ms
    took_ms = min(given, default=0.0) - stopped_ms
    group.run.check(
        f"{victim.name} {why}: its partitions move",
        f"after {least_ms / 1000:g} s or more, when its session is over",
        f"after {took_ms / 1000:.1f} s",
        kept=took_ms >= least_ms,
    )


def expect_late_commit_refused(run: Run, victim: Member, before: Counter[str]) -> None:
    """Check that a member that was out commits in vain. Refused `before`: as members came."""
    taken = victim.told.commits
    run.soon(lambda: bool(victim.told.in_vain - before), WORK_S)
    now = victim.told
    found = now.in_vain - before
    run.check(
        f"{victim.name} goes on, and commits",
        f"refused: {', '.join(sorted(NO_MEMBER))}",
        f"{now.commits - taken} taken; refused: {dict(found) or 'none'}",
        kept=bool(found) and set(found) <= NO_MEMBER,
    )


# -- the control -----------------------------------------------------------------------------------


def sent_twice(run: Run) -> None:
    """Control: a producer that isn't idempotent sends again what the leader has had all along."""
    leader, *followers = run.parameters.assignment()[0]
    run.make_topic()
    producer = run.start_producer(
        retries=5, config=["socket.timeout.ms=500", "max.in.flight.requests.per.connection=1"]
    )
    run.must_flow(producer)
    run.note(f"{leader} takes records, and can't acknowledge them")
    run.fault("STOP", *followers)
    run.steady_view(SHORT_S)
    run.fault("CONT", *followers)
    run.expect_flow(producer, "the followers go on", 20.0)


SCENARIO = Scenario(
    name="clients-cut-off",
    summary="Producers and consumers are cut off, for less and for more than they wait.",
    text=(
        "Clients are cut off by SIGSTOP: of all brokers at once, or of a member. For less than "
        "they wait, each record is there once and no group rebalances. For more than "
        "delivery.timeout.ms, each record that is not acknowledged is told (others may be there "
        "twice: an idempotent client goes on in another epoch then), and once the client's "
        "queue is full it refuses more. A member that stands still for longer than its session "
        "loses its partitions, and its late commit is refused: nothing is skipped, and what it "
        "had not committed is done again. The control sends again without idempotence what the "
        "leader has had all along: it is there twice. Groups are of both protocols."
    ),
    defaults=Parameters(commits=Commits.AFTER),
    parts=(
        Part(name="main", title="For less than they wait", steps=shorter),
        Part(
            name="longer",
            title="For more than they wait",
            steps=longer,
            met=("producer", "_MSG_TIMED_OUT"),
            counted=DOUBLED,
            because=DOUBLED_BECAUSE,
        ),
        Control(
            title="Control: retries without idempotence",
            steps=sent_twice,
            change={"retries": 0, "partitions": 1, "commits": None},
            breaks_with=Anomaly.DUPLICATED,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "replication_factor", "min_isr", "signal"}),
    least={"rate": LEAST_RATE, "partitions": MEMBERS},
)
