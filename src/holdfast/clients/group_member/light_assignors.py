"""How the leader of a classic group shares partitions out. Pure; `range` and `roundrobin`.

Both give the same for the same members, whatever their order, and take work in proportion to
members and partitions together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

Subscriptions: TypeAlias = Mapping[str, Sequence[str]]
"""Topics by the id of the member that wants them."""
Shares: TypeAlias = dict[str, dict[str, list[int]]]
"""Partitions by member and topic; a member that gets nothing is there too."""
Assignor: TypeAlias = Callable[[Mapping[str, int], Subscriptions], Shares]


def assign_range(partitions: Mapping[str, int], wanted: Subscriptions) -> Shares:
    """Cut each topic into runs, one a member; the first members get one more where it's uneven."""
    shares: Shares = {member: {} for member in wanted}
    for topic, members in _by_topic(partitions, wanted).items():
        least, more = divmod(partitions[topic], len(members))
        start = 0
        for place, member in enumerate(members):
            end = start + least + (place < more)
            if end > start:
                shares[member][topic] = list(range(start, end))
            start = end
    return shares


def assign_in_turn(partitions: Mapping[str, int], wanted: Subscriptions) -> Shares:
    """Deal partition after partition, and go on with the next topic where the last one ended."""
    shares: Shares = {member: {} for member in wanted}
    dealt = 0
    for topic, members in _by_topic(partitions, wanted).items():
        for partition in range(partitions[topic]):
            member = members[dealt % len(members)]
            shares[member].setdefault(topic, []).append(partition)
            dealt += 1
    return shares


ASSIGNORS: Final[Mapping[str, Assignor]] = {"range": assign_range, "roundrobin": assign_in_turn}
"""By the names that all of Kafka's clients give them."""


def _by_topic(partitions: Mapping[str, int], wanted: Subscriptions) -> dict[str, list[str]]:
    """Return who wants each topic, both in order; topics that aren't known are left out."""
    found: dict[str, list[str]] = {topic: [] for topic in sorted(partitions)}
    for member in sorted(wanted):
        for topic in dict.fromkeys(wanted[member]):
            if topic in found:
                found[topic].append(member)
    return {topic: members for topic, members in found.items() if members}
