"""What an assignor is told of a member, and the shape of what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

Partitions: TypeAlias = Mapping[bytes, tuple[int, ...]]
"""Topic id to partition numbers, by rising number and none of them empty. Never changed."""

NOTHING: Final[Partitions] = MappingProxyType({})


def nothing() -> Partitions:
    """Return no partitions: what a field has by default."""
    return NOTHING


Assignor: TypeAlias = "Callable[[Sequence[Subscriber], Mapping[bytes, int]], dict[str, Partitions]]"
"""Takes the members and the number of partitions of each topic; gives each member its share."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """One member: the topics it subscribes to, all of which exist, and what it was to have.

    Members with the same subscription should share one set: it is looked at once.
    """

    member_id: str
    topics: frozenset[bytes]
    target: Partitions = field(default_factory=nothing)
    instance_id: str | None = None


def partition_count(partitions: Partitions) -> int:
    """Return how many partitions there are."""
    return sum(map(len, partitions.values()))
