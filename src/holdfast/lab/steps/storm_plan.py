"""What a storm does, and when: drawn from a seed, the same on every engine. Pure.

Faults overlap, so that each kind meets the others' consequences. What could take more than the
promise allows is bounded: a disk is wiped only when nothing else is wrong (`storm` sees to that).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

GAP_S = (2.0, 7.0)  # from one deed to the next
LENGTH_S = (2.0, 12.0)  # of a deed: some are over before a session, most are not
CALM_S = 15.0  # at the end, in which nothing begins
SHORTEST_S = ceil(CALM_S + max(GAP_S))  # of a storm in which something begins, whatever its seed
LATENCIES_MS = (50, 100, 200, 400)
SHARES = (2, 5, 10, 25)  # per cent of packets
# By which a clock is wrong: below the hour from which on a broker refuses what producers stamp
# (message.timestamp.after.max.ms), as it must.
MINUTES = (-30, -5, 5, 30)


class Deed(StrEnum):
    """A kind of fault. Its words are those of reports."""

    KILL = "killed"
    LEAVE = "asked to end"
    PAUSE = "stands still"
    ISOLATE = "cut from all others"
    CUT = "cut from another"
    ONE_WAY = "not heard by another"
    SLOW = "slowed"
    LOSE = "loses packets"
    WIPE = "killed, its disk is new"
    FULL = "its disk is full"
    CLOCK = "its clock is wrong"


# How often each comes before the next round of all of them.
WEIGHTS = {
    Deed.KILL: 3,
    Deed.LEAVE: 1,
    Deed.PAUSE: 2,
    Deed.ISOLATE: 3,
    Deed.CUT: 2,
    Deed.ONE_WAY: 2,
    Deed.SLOW: 1,
    Deed.LOSE: 1,
    Deed.WIPE: 1,
    Deed.FULL: 1,
    Deed.CLOCK: 1,
}
# From this length on every kind is planned, whatever the seed: the first round has ended.
EVERY_KIND_S = ceil(CALM_S + max(GAP_S) * sum(WEIGHTS.values()))
AMOUNTS = {Deed.SLOW: LATENCIES_MS, Deed.LOSE: SHARES, Deed.CLOCK: MINUTES}
OF_BROKERS = frozenset({Deed.WIPE})  # a controller's log is not copied back


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One deed: from when on, for how long, to whom. `other`, `amount`: where a kind has them."""

    at_s: float
    length_s: float
    deed: Deed
    node: int
    other: int
    amount: int

    @property
    def words(self) -> str:
        """The deed as a sentence says it."""
        if self.deed is Deed.SLOW:
            return f"{self.node} and {self.other} are {self.amount} ms apart"
        if self.deed is Deed.LOSE:
            return f"{self.amount} % of packets between {self.node} and {self.other} are lost"
        if self.deed is Deed.FULL:
            return f"the disk of {self.node} is full"
        if self.deed is Deed.CLOCK:
            where = "ahead" if self.amount > 0 else "behind"
            return f"the clock of {self.node} is {abs(self.amount)} minutes {where}"
        if self.deed in {Deed.CUT, Deed.ONE_WAY}:
            return f"{self.node} is {self.deed.value.replace('another', str(self.other))}"
        return f"{self.node} {'' if self.deed is Deed.PAUSE else 'is '}{self.deed.value}"


def plan_storm(
    seed: int, duration_s: float, brokers: Sequence[int], controllers: Sequence[int]
) -> list[Planned]:
    """Return what is done in a storm of this length, in order of time."""
    chance = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    nodes = [*brokers, *controllers]
    planned: list[Planned] = []
    left: list[Deed] = []
    at_s = chance.uniform(*GAP_S)
    while at_s < duration_s - CALM_S:
        if not left:
            kinds = [deed for deed, weight in WEIGHTS.items() for _ in range(weight)]
            left = chance.sample(kinds, len(kinds))
        deed = left.pop()
        node = chance.choice(brokers if deed in OF_BROKERS else nodes)
        planned.append(
            Planned(
                at_s=round(at_s, 2),
                length_s=round(chance.uniform(*LENGTH_S), 2),
                deed=deed,
                node=node,
                other=chance.choice([each for each in nodes if each != node]),
                amount=chance.choice(AMOUNTS.get(deed, SHARES)),
            )
        )
        at_s += chance.uniform(*GAP_S)
    return planned
