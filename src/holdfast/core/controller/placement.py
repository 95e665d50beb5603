"""Where the replicas of new partitions go: striped over racks, then over brokers.

Owns the spreading of leaders and replicas. It looks at nothing but the brokers it is given, and its
chance comes in as a number, so the same number places the same way.

Rules: topics.md#placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

SEED_BOUND: Final = 1 << 63  # of the number that chance comes in as
_MASK: Final = (1 << 64) - 1


class PlacementError(ValueError):
    """The brokers there are can't hold what was asked for; the text says what would help."""


@dataclass(frozen=True, slots=True)
class Site:
    """A broker as placement sees it."""

    broker_id: int
    rack: str | None = None
    usable: bool = True  # unfenced and staying: may lead at once


class _Chance:
    """A stream of numbers from one seed (SplitMix64): pure, and the same everywhere."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def below(self, bound: int) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return (mixed ^ (mixed >> 31)) % bound

    def shuffle(self, items: list[int]) -> None:
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]


@dataclass(slots=True)
class _Ring:
    """The brokers of one kind in one rack, and who is next."""

    members: list[int] = field(default_factory=list)
    start: int = 0
    taken: int = 0

    def take(self) -> int | None:
        """The next broker not yet taken for this partition."""
        if self.taken == len(self.members):
            return None
        member = self.members[(self.start + self.taken) % len(self.members)]
        self.taken += 1
        return member

    def turn(self) -> None:
        self.taken = 0
        if self.members:
            self.start = (self.start + 1) % len(self.members)


@dataclass(slots=True)
class _Rack:
    usable: _Ring = field(default_factory=_Ring)
    fenced: _Ring = field(default_factory=_Ring)

    def take(self) -> int | None:
        """A broker that may lead, else one that may not yet."""
        member = self.usable.take()
        return member if member is not None else self.fenced.take()

    def rings(self) -> tuple[_Ring, _Ring]:
        return (self.usable, self.fenced)


class _Stripes:
    """The walk over the racks, one step further with each partition."""

    __slots__ = ("_chance", "_placed", "_racks", "_start", "_usable_count")

    def __init__(self, sites: Sequence[Site], chance: _Chance) -> None:
        racks: dict[str | None, _Rack] = {}
        # A missing rack is a rack of its own, sorted before the named ones.
        for site in sorted(sites, key=lambda site: (site.rack is not None, site.rack or "")):
            racks.setdefault(site.rack, _Rack())
        for site in sorted(sites, key=lambda site: site.broker_id):
            rack = racks[site.rack]
            (rack.usable if site.usable else rack.fenced).members.append(site.broker_id)
        self._racks = list(racks.values())
        self._chance = chance
        self._usable_count = sum(site.usable for site in sites)
        self._placed = 0
        self._start = chance.below(len(self._racks))
        for ring in self._rings():
            ring.start = chance.below(len(ring.members)) if ring.members else 0

    def _rings(self) -> Iterable[_Ring]:
        for rack in self._racks:
            yield from rack.rings()

    def next(self, replication_factor: int) -> list[int]:
        """The replicas of the next partition, its first leader first."""
        if self._placed and self._placed % self._usable_count == 0:
            self._shuffle()
        first_rack, leader = self._leader()
        replicas = [leader]
        position = self._start
        skip: int | None = first_rack  # the leader's rack is left out once, on the first round
        while len(replicas) < replication_factor:
            if position == skip:
                skip = None
            else:
                member = self._racks[position].take()
                if member is not None:
                    replicas.append(member)
            position = (position + 1) % len(self._racks)
        assert len(set(replicas)) == replication_factor, "a broker was taken twice"
        self._turn(first_rack)
        return replicas

    def _leader(self) -> tuple[int, int]:
        """Only a usable broker may lead; racks without one are passed over."""
        count = len(self._racks)
        for step in range(count):
            position = (self._start + step) % count
            member = self._racks[position].usable.take()
            if member is not None:
                return position, member
        raise AssertionError("no usable broker, although there was one")

    def _turn(self, first_rack: int) -> None:
        """Move on: the walk by one rack, the leader's rack by one broker.

        Were every rack turned each time, two racks of two would be led by the same two brokers.
        """
        self._placed += 1
        self._start = (self._start + 1) % len(self._racks)
        self._racks[first_rack].usable.turn()
        for rack in self._racks:
            rack.usable.taken = 0
            rack.fenced.turn()

    def _shuffle(self) -> None:
        """Break the pattern once every usable broker has had its turn.

        Otherwise a broker's partitions would have their followers on the same neighbours for ever,
        who would then carry all the load when it dies.
        """
        for ring in self._rings():
            self._chance.shuffle(ring.members)


def place(
    sites: Sequence[Site], partitions: int, replication_factor: int, seed: int
) -> list[list[int]]:
    """Replica lists for `partitions` new partitions, each with its preferred leader first.

    Raises PlacementError when there are fewer brokers than replicas, or none that may lead.
    """
    assert partitions > 0, "nothing to place"
    if replication_factor <= 0:
        raise PlacementError(
            f"The replication factor is {replication_factor}; it must be larger than 0."
        )
    if replication_factor > len(sites):
        raise PlacementError(
            f"The replication factor is {replication_factor}, but only {len(sites)} broker(s) are "
            "registered. Lower the replication factor or start more brokers."
        )
    if not any(site.usable for site in sites):
        raise PlacementError(
            "Every broker is fenced or shutting down. Start a broker, or wait until one is up."
        )
    stripes = _Stripes(sites, _Chance(seed))
    return [stripes.next(replication_factor) for _ in range(partitions)]
