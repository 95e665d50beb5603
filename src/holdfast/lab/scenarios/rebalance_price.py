"""What a redeploy costs a group: eager, cooperative, static, and with the consumer protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from holdfast.judge.groups.history import Processed
from holdfast.judge.groups.verdict import Commits
from holdfast.lab.evidence import events_of
from holdfast.lab.group import Group
from holdfast.lab.group_members import Member
from holdfast.lab.parameters import Parameters
from holdfast.lab.report import Table
from holdfast.lab.report.scales import duration
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.groups import BATCH, CLASSIC, CONSUMER, begin_load, retire

MEMBERS = 3
LINGER_MS = 20
PAUSE_MS = 250.0  # without a record of a partition, of which there are several in that time
STAYS = "what is not restarted gives up what moves, and no more"
DELAY = "group.initial.rebalance.delay.ms"
DELAY_MS = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A way to rebalance, and what its members are told."""

    name: str
    protocol: str = CLASSIC
    flags: Mapping[str, str] = field(default_factory=dict)
    is_static: bool = False
    gives_up_all: bool = False  # at each rebalance, whatever moves

    @property
    def waits(self) -> bool:
        """Whether a group whose members have all ended is empty, and waits before it begins.

        Static members do not leave, and the consumer protocol knows no such delay.
        """
        return self.protocol == CLASSIC and not self.is_static

    def start(self, group: Group, number: int, life: int) -> Member:
        """Start the member of this number, for the first time or again."""
        flags = {"instance": f"i{number}"} if self.is_static else {}
        return group.start(f"{group.name}-{number}-{life}", **flags)


EAGER = Strategy(name="eager", flags={"assignor": "range"}, gives_up_all=True)
STRATEGIES = (
    EAGER,
    Strategy(name="cooperative", flags={"assignor": "cooperative-sticky"}),
    Strategy(name="static", flags={"assignor": "range"}, is_static=True),
    Strategy(name="consumer", protocol=CONSUMER),
)


@dataclass(slots=True)
class Price:
    """What one redeploy has cost a group."""

    took_ms: float
    longest_ms: float  # the longest pause of any partition
    paused_ms: float  # all pauses of all partitions together
    given_up: int  # partitions, by members that were not restarted

    def row(self, name: str) -> list[str]:
        return [
            name,
            duration(self.took_ms),
            duration(self.longest_ms),
            duration(self.paused_ms),
            str(self.given_up),
        ]


def measured(run: Run, group: Group, redeploy: Callable[[], int]) -> Price:
    """Redeploy, and return what it has cost; `redeploy` returns what the others gave up."""
    begin_ms = time.monotonic() * 1000
    given_up = redeploy()
    end_ms = time.monotonic() * 1000
    group.expect_progress("it was redeployed")
    found = pauses(run, group, begin_ms, end_ms)
    return Price(end_ms - begin_ms, max(found, default=0.0), sum(found), given_up)


def pauses(run: Run, group: Group, begin_ms: float, end_ms: float) -> list[float]:
    """Return every pause of each partition that overlaps this time."""
    for member in group.all:
        member.told.poll()
    times: dict[int, list[float]] = {partition: [] for partition in run.partitions}
    for event in events_of([member.history for member in group.all]):
        if isinstance(event, Processed):
            times[event.partition].append(event.at_ms)
    return [
        later - earlier
        for moments in times.values()
        for earlier, later in pairwise(moments)
        if later - earlier > PAUSE_MS and later >= begin_ms and earlier <= end_ms
    ]


def rolling(group: Group, strategy: Strategy) -> int:
    """Restart each member in turn, and check what the others notice."""
    total = 0
    for number in range(1, MEMBERS + 1):
        member, others = group.members[0], group.members[1:]
        before = revoked(others)
        group.leave(member)
        if not strategy.is_static:
            group.wait_shared()
        again = strategy.start(group, number, 2)
        group.wait_shared()
        given_up, moved = revoked(others) - before, len(again.told.begun)
        limit = 0 if strategy.is_static else moved
        group.run.check(
            f"{group.name}, {member.name} is restarted: {STAYS}",
            f"at most {limit} partitions",
            f"{given_up} partitions",
            kept=given_up <= limit or strategy.gives_up_all,
        )
        total += given_up
    return total


def revoked(members: Sequence[Member]) -> int:
    return sum(member.told.revocations for member in members)


def cold(group: Group, strategy: Strategy) -> int:
    """Restart all members at once."""
    group.leave(*group.members)
    for number in range(1, MEMBERS + 1):
        strategy.start(group, number, 3)
    group.wait_shared()
    return 0


def group_of(run: Run, strategy: Strategy) -> Group:
    """Start a group that rebalances so, and wait until its members share the partitions."""
    group = Group(
        run,
        strategy.name,
        strategy.protocol,
        batch=BATCH,
        linger_ms=LINGER_MS,
        **strategy.flags,
    )
    for number in range(1, MEMBERS + 1):
        strategy.start(group, number, 1)
    group.wait_shared()
    group.expect_progress("it has begun")
    return group


def at_once(run: Run) -> None:
    """Redeploy a group of each kind, member by member, and then all members at once."""
    producer = begin_load(run)
    for strategy in STRATEGIES:
        group = group_of(run, strategy)
        prices = {
            "one by one": measured(run, group, partial(rolling, group, strategy)),
            "all at once": measured(run, group, partial(cold, group, strategy)),
        }
        run.tables.append(table_of(strategy.name, prices))
        retire(group, producer)


def delayed(run: Run) -> None:
    """Redeploy all members at once, where a group that is empty waits before it begins."""
    producer = begin_load(run)
    prices = {}
    for strategy in STRATEGIES:
        group = group_of(run, strategy)
        price = prices[strategy.name] = measured(run, group, partial(cold, group, strategy))
        if strategy.waits:
            run.check(
                f"{group.name}: an empty group waits for {DELAY}",
                f"at least {DELAY_MS / 1000:g} s",
                f"{price.took_ms / 1000:.1f} s",
                kept=price.took_ms >= DELAY_MS,
            )
        retire(group, producer)
    run.tables.append(table_of(f"all members at once, {DELAY}={DELAY_MS}", prices))


def eager(run: Run) -> None:
    """Control: an eager group is held to what a cooperative one keeps."""
    producer = begin_load(run)
    group = group_of(run, EAGER)
    rolling(group, Strategy(name=EAGER.name, flags=EAGER.flags))
    retire(group, producer)


def table_of(name: str, prices: Mapping[str, Price]) -> Table:
    return Table(
        title=f"The price of a redeploy: {name}",
        header=["redeployed", "took", "longest pause", "pauses together", "given up by others"],
        rows=[price.row(how) for how, price in prices.items()],
        note=(
            f"A pause is a time of over {PAUSE_MS:.0f} ms in which no record of a partition is "
            "processed; records come all the time. Measured, not asserted: a member is a Python "
            "process, and its start is in it."
        ),
    )


SCENARIO = Scenario(
    name="rebalance-price",
    summary="Groups that rebalance in four ways are redeployed, and what stands still is measured.",
    text=(
        "Groups of three members over six partitions: eager, cooperative, with static members, "
        "and with the consumer protocol (KIP-848). Each is redeployed member by member and all "
        "at once, and each pause of each partition is measured; once more with an initial delay "
        "of three seconds, which only empty groups wait for. A cooperative group and one of the "
        "consumer protocol give up what moves and no more, and static members' absence moves "
        "nothing. In the control an eager group is held to that."
    ),
    defaults=Parameters(commits=Commits.AFTER, partitions=6, rate=300.0),
    parts=(
        Part(name="main", title="No initial delay", steps=at_once),
        Part(
            name="delayed",
            title="An initial delay of three seconds",
            steps=delayed,
            change={"config": {DELAY: str(DELAY_MS)}},
        ),
        Part(
            name="control",
            title="Control: an eager group",
            steps=eager,
            breaks_check=STAYS,
        ),
    ),
    fixed=frozenset({"acks", "signal"}),
    least={"partitions": MEMBERS},
)
