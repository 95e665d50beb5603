"""The `uniform` assignor: as many partitions for each as can be, and as few moved as can be.

Topics with the same subscribers are one pool: which of its partitions a member has doesn't matter,
only how many. Where all subscribe to the same there is one pool, and the outcome is exact: counts
differ by one at most, and no other outcome of that kind moves fewer partitions. With different
subscriptions pools are levelled in turns, until none of them gives anything away.

Rules: consumer-groups.md#uniform.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heapreplace
from operator import itemgetter
from typing import Final, TypeAlias

from holdfast.core.group.assignors.subscriber import Partitions, Subscriber

ROUNDS_MAX: Final = 16
"""Overlapping subscriptions can be levelled for long; each round halves what is left to gain."""

_Partition: TypeAlias = tuple[bytes, int]


def assign_uniform(
    subscribers: Sequence[Subscriber], sizes: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """Return what each member is to have.

    Work: a few steps a partition and a subscription, and for each pool that is uneven a few steps
    a subscriber.
    """
    members = sorted(subscribers, key=lambda each: each.member_id)
    loads = [0] * len(members)
    pools = _pools(members)
    pool_of = {topic_id: pool for pool in pools for topic_id in pool.topics}
    for index, member in enumerate(members):
        for topic_id in sorted(member.topics & member.target.keys()):
            for partition in member.target[topic_id]:
                pool_of[topic_id].keep(index, (topic_id, partition), sizes, loads)
    pools.sort(key=lambda pool: pool.urgency(sizes))
    for pool in pools:
        pool.hand_out(sizes, loads)
    _level(pools, loads)
    return _shares(members, pools)


def _pools(members: Sequence[Subscriber]) -> list[_Pool]:
    """Put topics with the same subscribers together."""
    # Most members share their subscription, so those are looked at first, and each only once.
    by_subscription: dict[frozenset[bytes], list[int]] = defaultdict(list)
    for index, member in enumerate(members):
        by_subscription[member.topics].append(index)
    kinds_of: dict[bytes, list[int]] = defaultdict(list)
    kinds = list(by_subscription.items())
    for kind, (topics, _) in enumerate(kinds):
        for topic_id in sorted(topics):
            kinds_of[topic_id].append(kind)
    by_kinds: dict[tuple[int, ...], list[bytes]] = defaultdict(list)
    for topic_id in sorted(kinds_of):
        by_kinds[tuple(kinds_of[topic_id])].append(topic_id)
    return [
        _Pool(topics, sorted(index for kind in which for index in kinds[kind][1]))
        for which, topics in by_kinds.items()
    ]


class _Pool:
    """Topics that the same members subscribe to, and who of these is to have which partitions."""

    __slots__ = ("owned", "subscribers", "taken", "topics")

    def __init__(self, topics: list[bytes], subscribers: list[int]) -> None:
        self.topics = topics  # by rising id
        self.subscribers = subscribers  # places in the list of members, rising
        self.owned: dict[int, list[_Partition]] = defaultdict(list)
        self.taken: set[_Partition] = set()

    def keep(
        self, member: int, partition: _Partition, sizes: Mapping[bytes, int], loads: list[int]
    ) -> None:
        """Leave to a member what it had, unless that is no more or somebody has it already."""
        topic_id, index = partition
        if index < sizes[topic_id] and partition not in self.taken:
            self.taken.add(partition)
            self.owned[member].append(partition)
            loads[member] += 1

    def urgency(self, sizes: Mapping[bytes, int]) -> tuple[Fraction, int, bytes]:
        """Say when the pool's turn is: before those with less for each, or with more takers."""
        partitions = sum(sizes[topic_id] for topic_id in self.topics)
        return (Fraction(-partitions, len(self.subscribers)), len(self.subscribers), self.topics[0])

    def hand_out(self, sizes: Mapping[bytes, int], loads: list[int]) -> None:
        """Give each partition that nobody has to a subscriber that has least. Who gets many gets
        neighbours.
        """
        free = [
            partition
            for topic_id in self.topics
            for index in range(sizes[topic_id])
            if (partition := (topic_id, index)) not in self.taken
        ]
        if not free:
            return
        takers = [(loads[member], member) for member in self.subscribers]
        heapify(takers)
        for _ in free:
            load, member = takers[0]
            heapreplace(takers, (load + 1, member))
        start = 0
        for load, member in sorted(takers, key=itemgetter(1)):
            stop = start + load - loads[member]
            if stop > start:
                self.owned[member] += free[start:stop]
                loads[member] = load
                start = stop
        assert start == len(free), "a partition was left over"

    def level(self, loads: list[int]) -> bool:
        """Move partitions from who has most to who has least. Return whether any was moved.

        What a member got last goes first, so that what has moved moves on and the rest stays.
        """
        if not self._uneven(loads):
            return False
        takers = [(loads[member], member) for member in self.subscribers]
        givers = [(-loads[member], member) for member in self.subscribers if self.owned[member]]
        heapify(takers)
        heapify(givers)
        moved = False
        # A member that gives or takes is out of date in the other heap. That changes nothing: it is
        # then within one of the others, and the pool is level.
        while givers and -givers[0][0] - takers[0][0] > 1:
            (most, giver), (least, taker) = givers[0], takers[0]
            self.owned[taker].append(self.owned[giver].pop())
            loads[giver] -= 1
            loads[taker] += 1
            heapreplace(takers, (least + 1, taker))
            if self.owned[giver]:
                heapreplace(givers, (most + 1, giver))
            else:
                heappop(givers)
            moved = True
        return moved

    def _uneven(self, loads: list[int]) -> bool:
        having = [loads[member] for member in self.subscribers]
        return max(having) - min(having) > 1


def _level(pools: Iterable[_Pool], loads: list[int]) -> None:
    """Level the pools in turns, until all of them are in a row, or for so many rounds."""
    shared = [pool for pool in pools if len(pool.subscribers) > 1]
    for _ in range(ROUNDS_MAX):
        moved = False
        for pool in shared:
            moved = pool.level(loads) or moved
        if not moved:
            return


def _shares(members: Sequence[Subscriber], pools: Iterable[_Pool]) -> dict[str, Partitions]:
    """Return who has what, by topic."""
    shares: list[dict[bytes, list[int]]] = [defaultdict(list) for _ in members]
    for pool in pools:
        for member, partitions in pool.owned.items():
            for topic_id, index in partitions:
                shares[member][topic_id].append(index)
    return {
        member.member_id: {topic_id: tuple(sorted(share[topic_id])) for topic_id in sorted(share)}
        for member, share in zip(members, shares, strict=True)
    }
