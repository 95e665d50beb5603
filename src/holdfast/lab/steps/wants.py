"""What a partition must look like, and how it is said. Values and words only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Want:
    """What a partition must look like; None: anything. Leader -1: none."""

    leader: int | None
    isr: frozenset[int] | None

    def __str__(self) -> str:
        words = []
        if self.leader is not None:
            words.append(f"leader {'none' if self.leader < 0 else self.leader}")
        if self.isr is not None:
            words.append(f"ISR {_set_text(self.isr)}")
        return ", ".join(words) or "anything"

    def only(self, asked: Want) -> Want:
        """Return the parts of this that `asked` says something about."""
        return Want(
            None if asked.leader is None else self.leader, None if asked.isr is None else self.isr
        )


def want(leader: int | None = None, isr: Iterable[int] | None = None) -> Want:
    return Want(leader, None if isr is None else frozenset(isr))


def matches(wanted: Want, seen: Want) -> bool:
    if wanted.leader is not None and wanted.leader != seen.leader:
        return False
    return wanted.isr is None or wanted.isr == seen.isr


def whole(assignment: Mapping[int, Iterable[int]]) -> dict[int, Want]:
    """Every replica is in sync, whoever leads."""
    return {partition: want(isr=nodes) for partition, nodes in assignment.items()}


def preferred(assignment: Mapping[int, Sequence[int]]) -> dict[int, Want]:
    """Every replica is in sync, and the first of each partition leads."""
    return {partition: want(nodes[0], nodes) for partition, nodes in assignment.items()}


def without(assignment: Mapping[int, Sequence[int]], down: Collection[int]) -> dict[int, Want]:
    """What partitions look like when these brokers are gone, and everybody knows it.

    The first replica left leads; where none is left there is no leader, and the ISR keeps its
    last member (rules: elections.md#last-member-of-the-isr).
    """
    wanted = {}
    for partition, replicas in assignment.items():
        left = [node for node in replicas if node not in down]
        wanted[partition] = want(left[0], left) if left else want(-1)
    return wanted


def names(partitions: Iterable[int]) -> str:
    return ", ".join(f"P{partition}" for partition in partitions)


def lists_text(replicas: Mapping[int, Sequence[int]]) -> str:
    return ", ".join(":".join(map(str, nodes)) for _, nodes in sorted(replicas.items()))


def _set_text(nodes: frozenset[int]) -> str:
    return "{" + ",".join(str(node) for node in sorted(nodes)) + "}"
